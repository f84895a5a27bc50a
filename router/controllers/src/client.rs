//! The way to the API server: from inside the cluster, or as a kubeconfig says.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::{InvalidHeaderValue, USER_AGENT};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

/// How long a connection may take to be made.
const CONNECT_LASTS: Duration = Duration::from_secs(5);
/// How long a connection may be silent. API servers send a bookmark on every watch once a minute, so a watch that is
/// silent for twice as long is dead, whatever its socket says.
const READ_LASTS: Duration = Duration::from_secs(120);
/// How long a piece of a request may take to be sent.
const WRITE_LASTS: Duration = Duration::from_secs(30);

/// Where the API server is.
#[derive(Clone, Debug, Default)]
pub struct ClientSettings {
    /// Kubeconfig files, the first has precedence. Read where the process does not run inside a cluster.
    pub kubeconfigs: Vec<PathBuf>,
    /// The kubeconfig that is read where none is named and the process does not run inside a cluster.
    pub default_kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; `None`: its current one.
    pub context: Option<String>,
    /// The router's version, for the API server's audit log.
    pub version: String,
}

/// No way to an API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// Neither inside a cluster nor with a kubeconfig.
    #[error("not inside a cluster ({0}), and no kubeconfig is named")]
    Nowhere(#[source] InClusterError),
    /// A kubeconfig that cannot be used.
    #[error("not inside a cluster ({in_cluster}), and the kubeconfig cannot be used: {kubeconfig}")]
    Kubeconfig {
        /// Why it is not the cluster's own.
        in_cluster: InClusterError,
        /// What is wrong with the kubeconfig.
        #[source]
        kubeconfig: KubeconfigError,
    },
    /// A version that cannot be said.
    #[error("the version cannot be sent as a header: {0}")]
    Version(#[from] InvalidHeaderValue),
    /// Credentials or certificates that cannot be used.
    #[error("the API server's client cannot be made: {0}")]
    Client(#[from] kube::Error),
}

/// A client for the API server: with the pod's own service account inside a cluster, else with the first kubeconfigs
/// there are. Nothing is asked yet, so an API server that is away is no error.
///
/// # Errors
/// No place or no credentials to use.
pub async fn connect(settings: &ClientSettings) -> Result<Client, ConnectError> {
    let mut config = match Config::incluster() {
        Ok(config) => config,
        Err(in_cluster) => outside(settings, in_cluster).await?,
    };
    config.connect_timeout = Some(CONNECT_LASTS);
    config.read_timeout = Some(READ_LASTS);
    config.write_timeout = Some(WRITE_LASTS);
    // Whoever asks waits and asks again by its own rules, and wants to know that it had to.
    config.default_retry = false;
    let agent = HeaderValue::try_from(format!("kvasir/{}", settings.version))?;
    config.headers.push((USER_AGENT, agent));
    Ok(Client::try_from(config)?)
}

async fn outside(settings: &ClientSettings, in_cluster: InClusterError) -> Result<Config, ConnectError> {
    let mut paths = settings.kubeconfigs.iter().collect::<Vec<_>>();
    if paths.is_empty() {
        paths.extend(settings.default_kubeconfig.as_ref());
    }
    if paths.is_empty() {
        return Err(ConnectError::Nowhere(in_cluster));
    }
    let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
    let merged = paths
        .into_iter()
        .try_fold(Kubeconfig::default(), |merged, path| merged.merge(Kubeconfig::read_from(path)?));
    let config = match merged {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
        Err(problem) => Err(problem),
    };
    config.map_err(|kubeconfig| ConnectError::Kubeconfig { in_cluster, kubeconfig })
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;

    fn kubeconfig(server: &str, context: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c, user: u, namespace: models}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n"
        )
    }

    #[tokio::test]
    async fn the_first_kubeconfig_has_precedence() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        write(&first, kubeconfig("http://127.0.0.1:1", "one")).expect("written");
        write(&second, kubeconfig("http://127.0.0.1:2", "two")).expect("written");
        let settings = ClientSettings {
            kubeconfigs: vec![first, second.clone()],
            default_kubeconfig: Some(second),
            version: "1.2.3".to_owned(),
            ..ClientSettings::default()
        };
        let config = outside(&settings, Config::incluster().expect_err("no cluster")).await.expect("usable");
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:1/");
        assert_eq!(connect(&settings).await.expect("a client").default_namespace(), "models");
        let named = ClientSettings { kubeconfigs: Vec::new(), context: Some("two".to_owned()), ..settings };
        let config = outside(&named, Config::incluster().expect_err("no cluster")).await.expect("usable");
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:2/");
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let nowhere = connect(&ClientSettings::default()).await.err().expect("no cluster");
        assert!(nowhere.to_string().contains("no kubeconfig is named"), "{nowhere}");
        let kubeconfigs = vec![PathBuf::from("/no/such/file")];
        let settings = ClientSettings { kubeconfigs, ..ClientSettings::default() };
        let missing = connect(&settings).await.err().expect("no file");
        assert!(missing.to_string().contains("/no/such/file"), "{missing}");
    }
}
