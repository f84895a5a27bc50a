//! The flags that name a Redis: of the router, and of every other command that needs one.

use clap::Args;

use crate::redis::Secret;

pub(crate) const HEADING: &str = "Redis";

pub(crate) const PASSWORD_FILE: &str = "--redis-password-file";
pub(crate) const SENTINEL_USER: &str = "--redis-sentinel-user";
pub(crate) const SENTINEL_PASSWORD_FILE: &str = "--redis-sentinel-password-file";
pub(crate) const CA_FILE: &str = "--redis-ca-file";
pub(crate) const CLIENT_CERT: &str = "--redis-client-cert";
pub(crate) const CLIENT_KEY: &str = "--redis-client-key";

/// Where Redis is and how to get in, as it was typed.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisArgs {
    /// The Redis that replicas and agents share: redis://[USER[:PASSWORD]@]HOST[:PORT][/DB],
    /// redis-sentinel://HOST[:PORT],.../MASTER[/DB] or redis-cluster://HOST[:PORT],...; with rediss for TLS. `none` is
    /// no Redis at all [default: REDIS_HOST, if set]
    #[arg(long, env = "KVASIR_REDIS", value_name = "URL", hide_env_values = true, help_heading = HEADING)]
    pub redis: Option<Secret>,
    /// A file with the password, so that neither the command line nor the environment shows it
    #[arg(long, env = "KVASIR_REDIS_PASSWORD_FILE", value_name = "FILE", help_heading = HEADING)]
    pub redis_password_file: Option<String>,
    /// The user of the sentinels themselves, where they ask for one
    #[arg(long, env = "KVASIR_REDIS_SENTINEL_USER", value_name = "NAME", help_heading = HEADING)]
    pub redis_sentinel_user: Option<String>,
    /// A file with the password of the sentinels themselves; the URL's is for the servers they watch
    #[arg(long, env = "KVASIR_REDIS_SENTINEL_PASSWORD_FILE", value_name = "FILE", help_heading = HEADING)]
    pub redis_sentinel_password_file: Option<String>,
    /// A PEM file with the authorities that may sign the servers' certificates [default: the system's]
    #[arg(long, env = "KVASIR_REDIS_CA_FILE", value_name = "FILE", help_heading = HEADING)]
    pub redis_ca_file: Option<String>,
    /// A PEM file with the certificate that is shown to the servers; needs its key
    #[arg(long, env = "KVASIR_REDIS_CLIENT_CERT", value_name = "FILE", help_heading = HEADING)]
    pub redis_client_cert: Option<String>,
    /// A PEM file with the key of that certificate
    #[arg(long, env = "KVASIR_REDIS_CLIENT_KEY", value_name = "FILE", help_heading = HEADING)]
    pub redis_client_key: Option<String>,
}

impl RedisArgs {
    /// The URL, where one was given. A variable that is set to nothing says nothing.
    pub(crate) fn url(&self) -> Option<&str> {
        self.redis.as_ref().map(|url| url.reveal().trim()).filter(|url| !url.is_empty())
    }

    /// The flags beside the URL, each with its text where one was given.
    pub(crate) fn extras(&self) -> [(&'static str, Option<&str>); 6] {
        fn said(text: &Option<String>) -> Option<&str> {
            text.as_deref().filter(|text| !text.trim().is_empty())
        }
        [
            (PASSWORD_FILE, said(&self.redis_password_file)),
            (SENTINEL_USER, said(&self.redis_sentinel_user)),
            (SENTINEL_PASSWORD_FILE, said(&self.redis_sentinel_password_file)),
            (CA_FILE, said(&self.redis_ca_file)),
            (CLIENT_CERT, said(&self.redis_client_cert)),
            (CLIENT_KEY, said(&self.redis_client_key)),
        ]
    }
}
