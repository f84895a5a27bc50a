//! Which Redis is meant: by flag, by our variable, by kthena's variables, or kthena's default host.

use std::path::{Path, PathBuf};

use super::url::{Fault, is_host, parse, read_port, split_port};
use super::{KTHENA_HOST, PORT, RedisNode, RedisSettings, RedisTls, RedisTopology, Secret};
use crate::facts::{DiskFiles, Files, KthenaEnvironment, RedisEnvironment, SystemFacts};
use crate::flags::RedisArgs;
use crate::flags::redis::{
    CA_FILE, CLIENT_CERT, CLIENT_KEY, PASSWORD_FILE, SENTINEL_PASSWORD_FILE, SENTINEL_USER,
};
use crate::problems::{Findings, Place, Problems};

#[cfg(test)]
mod tests;

/// What `--redis` takes for "no Redis at all", so that kthena's default host is not tried either.
const NONE: &str = "none";

/// Which of kthena's programs the variables were set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KthenaProgram {
    /// The router, which always uses database 0.
    Router,
    /// The sidecar beside an engine, which reads `REDIS_DB`.
    Sidecar,
}

/// The Redis of an agent, which takes the place of kthena's sidecar.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidecarRedis {
    /// Where; kthena's default host when nobody said, `None` only for `--redis none`.
    pub redis: Option<RedisSettings>,
    /// What was noticed that is no error: one sentence each, for the log.
    pub warnings: Vec<String>,
}

/// Works out the Redis of an agent, with the files and the environment of this machine.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn resolve_sidecar(args: &RedisArgs) -> Result<SidecarRedis, Problems> {
    resolve_sidecar_from(args, &DiskFiles, &SystemFacts::read().environment)
}

/// The same from given files and a given environment.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn resolve_sidecar_from(
    args: &RedisArgs,
    files: &dyn Files,
    environment: &KthenaEnvironment,
) -> Result<SidecarRedis, Problems> {
    let mut findings = Findings::default();
    let redis = choose(args, files, &environment.redis, KthenaProgram::Sidecar, true, &mut findings);
    findings.into_result().map(|warnings| SidecarRedis { redis, warnings })
}

/// The Redis that is meant. `default_host` tries kthena's own where nobody named one.
pub(crate) fn choose(
    args: &RedisArgs,
    files: &dyn Files,
    environment: &RedisEnvironment,
    program: KthenaProgram,
    default_host: bool,
    findings: &mut Findings,
) -> Option<RedisSettings> {
    let extras = Extras::read(args, files, findings);
    let by_url = args.url().is_some();
    let named = match args.url() {
        Some(NONE) => None,
        Some(url) => match parse(url) {
            Ok(redis) => {
                warn_of_shadowed(&redis, &extras, environment, findings);
                Some(redis)
            }
            Err(Fault { message, fix }) => {
                findings.error(&Place::flag("--redis"), message, fix);
                // What else was said cannot be judged without knowing the servers.
                return None;
            }
        },
        None => of_environment(environment, program, default_host, findings),
    };
    match named {
        Some(redis) => extras.complete(redis, by_url, findings),
        None => {
            extras.refuse(findings);
            None
        }
    }
}

/// kthena's variables. What does not fit warns and has no effect, as with all of them; a host that is none is refused,
/// because another one would be asked in its place.
fn of_environment(
    environment: &RedisEnvironment,
    program: KthenaProgram,
    default_host: bool,
    findings: &mut Findings,
) -> Option<RedisSettings> {
    let said = &environment.host;
    if said.is_none() && !default_host {
        for (name, is_set) in environment.beside_the_host() {
            if is_set {
                findings.warn(&Place::flag(name), "has no effect without REDIS_HOST or --redis");
            }
        }
        return None;
    }
    let host = said.as_deref().unwrap_or(KTHENA_HOST).trim();
    let host = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
    if !is_host(host) {
        let fix = match split_port(host) {
            Some((name, Some(port))) if is_host(name) && read_port(port).is_some() => {
                "write the port into REDIS_PORT"
            }
            _ => "write the host alone, or use --redis with a URL",
        };
        findings.error(&Place::flag("REDIS_HOST"), "is neither a name nor an address", fix);
        return None;
    }
    let node = RedisNode { host: host.to_owned(), port: port_of(environment, findings) };
    Some(RedisSettings {
        username: environment.username.clone(),
        password: environment.password.clone(),
        database: database_of(environment, program, findings),
        implied: said.is_none(),
        ..RedisSettings::single(node)
    })
}

fn port_of(environment: &RedisEnvironment, findings: &mut Findings) -> u16 {
    let Some(text) = environment.port.as_deref() else { return PORT };
    read_port(text.trim()).unwrap_or_else(|| {
        // Kubernetes sets REDIS_PORT=tcp://IP:PORT in every pod beside a Service that is called redis.
        let reason =
            if text.contains("://") { "; Kubernetes sets it so for a Service called redis" } else { "" };
        findings.warn(&Place::flag("REDIS_PORT"), format!("{text:?} is no port{reason}; {PORT} is used"));
        PORT
    })
}

fn database_of(environment: &RedisEnvironment, program: KthenaProgram, findings: &mut Findings) -> u16 {
    let Some(text) = environment.database.as_deref() else { return 0 };
    let place = Place::flag("REDIS_DB");
    match (text.trim().parse(), program) {
        (Ok(database), KthenaProgram::Sidecar) => database,
        (Ok(0), KthenaProgram::Router) => 0,
        (Ok(_), KthenaProgram::Router) => {
            let message = "has no effect on the router, which uses database 0 as kthena's does; \
                           name another in --redis redis://HOST:PORT/DB";
            findings.warn(&place, message);
            0
        }
        (Err(_), _) => {
            findings.warn(&place, format!("{text:?} is no database; 0 is used"));
            0
        }
    }
}

/// A Secret of kthena's manifests does not reach a Redis that is named by URL; without it, logging in would fail.
fn warn_of_shadowed(
    redis: &RedisSettings,
    extras: &Extras,
    environment: &RedisEnvironment,
    findings: &mut Findings,
) {
    let has_password = redis.password.is_some() || extras.password.is_some();
    if environment.password.is_some() && !has_password {
        let message = "is not used, because --redis names the Redis and no password; put it into the URL, or use \
                       --redis-password-file";
        findings.warn(&Place::flag("REDIS_PASSWORD"), message);
    }
}

/// What the flags beside `--redis` say, read from their files. A flag that was said and could not be read is noted,
/// and `None` here.
#[derive(Debug, Default)]
struct Extras {
    password: Option<Secret>,
    sentinel_user: Option<String>,
    sentinel_password: Option<Secret>,
    ca_file: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    /// Every flag that was said, read or not.
    said: Vec<&'static str>,
}

impl Extras {
    fn read(args: &RedisArgs, files: &dyn Files, findings: &mut Findings) -> Self {
        let texts = args.extras();
        let said = |flag: &str| texts.iter().find(|(name, _)| *name == flag).and_then(|(_, text)| *text);
        let mut secret =
            |flag| said(flag).and_then(|path| read_secret(flag, Path::new(path), files, findings));
        let (password, sentinel_password) = (secret(PASSWORD_FILE), secret(SENTINEL_PASSWORD_FILE));
        let mut file = |flag| {
            let path = PathBuf::from(said(flag)?);
            if !files.is_file(&path) {
                findings.error(&Place::flag(flag), format!("there is no file {}", path.display()), "");
            }
            Some(path)
        };
        let ca_file = file(CA_FILE);
        let client = match (file(CLIENT_CERT), file(CLIENT_KEY)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (certificate, _) => {
                let (there, missing) =
                    if certificate.is_some() { (CLIENT_CERT, CLIENT_KEY) } else { (CLIENT_KEY, CLIENT_CERT) };
                findings.error(&Place::flag(there), format!("is of no use without {missing}"), "give both");
                None
            }
        };
        Self {
            password,
            sentinel_user: said(SENTINEL_USER).map(str::to_owned),
            sentinel_password,
            ca_file,
            client,
            said: texts.into_iter().filter_map(|(flag, text)| text.map(|_| flag)).collect(),
        }
    }

    fn was_said(&self, flag: &str) -> bool {
        self.said.contains(&flag)
    }

    /// Nothing is there that the flags could be about.
    fn refuse(&self, findings: &mut Findings) {
        for flag in &self.said {
            let fix = "add --redis redis://HOST:PORT, or remove the flag";
            findings.error(&Place::flag(flag), "has no effect: no Redis is named", fix);
        }
    }

    /// Puts in what the flags say; `None` when they do not go together.
    fn complete(
        self,
        mut redis: RedisSettings,
        by_url: bool,
        findings: &mut Findings,
    ) -> Option<RedisSettings> {
        let before = findings.problem_count();
        self.check(&redis, by_url, findings);
        if let Some(tls) = &mut redis.tls {
            *tls = RedisTls { ca_file: self.ca_file, client: self.client };
        }
        if let RedisTopology::Sentinel { username, password, .. } = &mut redis.topology {
            *username = self.sentinel_user;
            *password = self.sentinel_password;
        }
        redis.password = self.password.or(redis.password);
        (findings.problem_count() == before).then_some(redis)
    }

    fn check(&self, redis: &RedisSettings, by_url: bool, findings: &mut Findings) {
        let mut error =
            |flag: &str, message: &str, fix: &str| findings.error(&Place::flag(flag), message, fix);
        if by_url && redis.password.is_some() && self.was_said(PASSWORD_FILE) {
            error(PASSWORD_FILE, "the URL of --redis has a password too", "remove one of the two");
        }
        if redis.username.is_some() && redis.password.is_none() && !self.was_said(PASSWORD_FILE) {
            let place = if by_url { "--redis" } else { "REDIS_USERNAME" };
            error(place, "there is a user without a password", "add the password, or --redis-password-file");
        }
        if redis.tls.is_none() {
            for flag in [CA_FILE, CLIENT_CERT, CLIENT_KEY].into_iter().filter(|flag| self.was_said(flag)) {
                error(flag, "the connection is made without TLS", "write --redis rediss://HOST:PORT");
            }
        }
        if !matches!(redis.topology, RedisTopology::Sentinel { .. }) {
            let flags = [SENTINEL_USER, SENTINEL_PASSWORD_FILE];
            for flag in flags.into_iter().filter(|flag| self.was_said(flag)) {
                error(flag, "there are no sentinels", "write --redis redis-sentinel://HOST:PORT/MASTER");
            }
        } else if self.was_said(SENTINEL_USER) && !self.was_said(SENTINEL_PASSWORD_FILE) {
            error(SENTINEL_USER, "there is a user without a password", "add --redis-sentinel-password-file");
        }
    }
}

/// The one line of a file.
fn read_secret(flag: &str, path: &Path, files: &dyn Files, findings: &mut Findings) -> Option<Secret> {
    let place = Place::flag(flag);
    let text = match files.read(path) {
        Ok(text) => text,
        Err(error) => {
            findings.error(&place, format!("cannot read {}: {error}", path.display()), "");
            return None;
        }
    };
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.contains('\n') {
        let message = if secret.is_empty() { "is empty" } else { "has more than one line" };
        findings.error(&place, format!("{} {message}", path.display()), "write the password alone into it");
        return None;
    }
    Some(Secret::new(secret))
}
