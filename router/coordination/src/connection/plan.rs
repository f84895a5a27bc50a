//! From settings to what the client library wants: addresses, credentials, certificates.

use std::path::Path;
use std::time::Duration;

use kvasir_settings::redis::{RedisNode, RedisSettings, RedisTls, RedisTopology, Secret};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates,
};

/// A whole connection attempt, greeting included. Two round trips at 200 ms each must fit in.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Why a Redis cannot even be tried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Redis, {what}: {problem}; {fix}")]
pub struct RedisSetupError {
    what: String,
    problem: String,
    fix: &'static str,
}

/// All that is needed to connect, checked and read once.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(super) topology: RedisTopology,
    login: RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
}

impl Plan {
    pub(crate) fn new(settings: &RedisSettings) -> Result<Self, RedisSetupError> {
        let cluster = matches!(settings.topology, RedisTopology::Cluster(_));
        let mut login = credentials(settings.username.as_deref(), settings.password.as_ref());
        if !cluster {
            login = login.set_db(i64::from(settings.database));
        }
        let certificates = settings.tls.as_ref().map(read_certificates).transpose()?;
        let plan = Self { topology: settings.topology.clone(), login, certificates };
        let nodes = match &plan.topology {
            RedisTopology::Single(node) => std::slice::from_ref(node),
            RedisTopology::Sentinel { sentinels, .. } => sentinels,
            RedisTopology::Cluster(nodes) => nodes,
        };
        let Some(first) = nodes.first() else {
            return Err(RedisSetupError {
                what: "addresses".to_owned(),
                problem: "there is none".to_owned(),
                fix: "name at least one host and port",
            });
        };
        // The library parses the PEM files here; what it does not like is found at start and not in the background.
        plan.client(first).map_err(|error| RedisSetupError {
            what: "TLS files".to_owned(),
            problem: error.to_string(),
            fix: "give PEM files with certificates and an unencrypted key",
        })?;
        Ok(plan)
    }

    /// A client of one data server.
    pub(crate) fn client(&self, node: &RedisNode) -> RedisResult<Client> {
        self.open(node, self.login.clone())
    }

    /// A client of one sentinel.
    pub(super) fn sentinel_client(
        &self,
        node: &RedisNode,
        username: Option<&str>,
        password: Option<&Secret>,
    ) -> RedisResult<Client> {
        self.open(node, credentials(username, password))
    }

    /// The plan of one server of a Cluster.
    pub(super) fn of(&self, node: RedisNode) -> Self {
        Self { topology: RedisTopology::Single(node), ..self.clone() }
    }

    /// What every connection is made with: the callers bring their own limits for answers.
    pub(super) fn config() -> AsyncConnectionConfig {
        AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_LIMIT)).set_response_timeout(None)
    }

    fn open(&self, node: &RedisNode, login: RedisConnectionInfo) -> RedisResult<Client> {
        let info = self.info(node, login)?;
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    fn info(&self, node: &RedisNode, login: RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
        let (host, port) = (node.host.clone(), node.port);
        let address = match self.certificates {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        };
        Ok(address.into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp()))
    }
}

/// Small commands must not wait for each other's acknowledgements.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn credentials(username: Option<&str>, password: Option<&Secret>) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default().set_lib_name("kvasir", env!("CARGO_PKG_VERSION"));
    if let Some(username) = username {
        info = info.set_username(username);
    }
    if let Some(password) = password {
        info = info.set_password(password.reveal());
    }
    info
}

fn read_certificates(tls: &RedisTls) -> Result<TlsCertificates, RedisSetupError> {
    let client_tls = match &tls.client {
        Some((certificate, key)) => Some(ClientTlsConfig {
            client_cert: read("client certificate", certificate)?,
            client_key: read("client key", key)?,
        }),
        None => None,
    };
    let root_cert = tls.ca_file.as_deref().map(|path| read("certificate authority", path)).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, RedisSetupError> {
    let failed = |problem: String| RedisSetupError {
        what: format!("{what} `{}`", path.display()),
        problem,
        fix: "name a PEM file that this process may read",
    };
    let content = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    // An empty list of authorities would be taken as an authority that nobody has.
    if content.windows(11).any(|window| window == b"-----BEGIN ") {
        Ok(content)
    } else {
        Err(failed("it is no PEM file".to_owned()))
    }
}
