//! How a Redis is reached: one server, Sentinel, or Cluster.

use std::fmt;
use std::path::PathBuf;

mod choice;
mod url;

pub use choice::{SidecarRedis, resolve_sidecar, resolve_sidecar_from};

pub(crate) use choice::{KthenaProgram, choose};

/// The host that kthena's programs try when nobody names one.
pub const KTHENA_HOST: &str = "redis-server";

/// Port of a Redis server.
pub const PORT: u16 = 6379;

/// Port of a Sentinel.
pub const SENTINEL_PORT: u16 = 26_379;

/// A text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for whoever must send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisNode {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// How the servers are arranged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedisTopology {
    /// One server, or a proxy that looks like one.
    Single(RedisNode),
    /// Sentinels that know which server is the master.
    Sentinel {
        /// The sentinels, asked in order.
        sentinels: Vec<RedisNode>,
        /// The master's name.
        master: String,
        /// User of the sentinels themselves.
        username: Option<String>,
        /// Password of the sentinels themselves.
        password: Option<Secret>,
    },
    /// Some nodes of a Cluster; the others are found through them.
    Cluster(Vec<RedisNode>),
}

/// TLS towards Redis.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedisTls {
    /// PEM file with the authority that signed the servers' certificates; the system's authorities without it.
    pub ca_file: Option<PathBuf>,
    /// PEM files of a client certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A Redis and how to get in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisSettings {
    /// Where.
    pub topology: RedisTopology,
    /// ACL user; `None` is the default user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<Secret>,
    /// Database; always 0 on Cluster.
    pub database: u16,
    /// TLS, where the URL's scheme says so.
    pub tls: Option<RedisTls>,
    /// Whether nobody named it: kthena's default host, tried because a document asks for `kvcache-aware`.
    pub implied: bool,
}

impl RedisSettings {
    /// Reads `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, `redis-sentinel://...HOST[:PORT],.../MASTER[/DB]` or
    /// `redis-cluster://...HOST[:PORT],...`; each with `rediss` for TLS. What stands before the `@` is for the data
    /// servers; it and the master's name are percent-decoded.
    ///
    /// # Errors
    /// A sentence that names the part that is wrong and the fix, and shows nothing of the URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        url::parse(url).map_err(|fault| format!("{}; {}", fault.message, fault.fix))
    }

    /// One server without credentials and TLS.
    pub(crate) fn single(node: RedisNode) -> Self {
        Self {
            topology: RedisTopology::Single(node),
            username: None,
            password: None,
            database: 0,
            tls: None,
            implied: false,
        }
    }
}

impl fmt::Display for RedisSettings {
    /// Where it is, without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[RedisNode]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match &self.topology {
            RedisTopology::Single(node) => write!(f, "{node}/{}", self.database),
            RedisTopology::Sentinel { sentinels, master, .. } => {
                write!(f, "master {master} of sentinels {}/{}", list(sentinels), self.database)
            }
            RedisTopology::Cluster(nodes) => write!(f, "cluster at {}", list(nodes)),
        }
    }
}
