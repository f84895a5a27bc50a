//! The names that a cluster's ModelServers give to models, as they come.

use std::collections::BTreeSet;

use kvasir_controllers::{ClientSettings, ConnectError, connect, model_names};
use kvasir_settings::KubernetesSettings;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// All names; `None` before the first list of ModelServers.
pub type Names = watch::Receiver<Option<BTreeSet<String>>>;

/// A cluster to be watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Where it is, and which namespace counts.
    pub settings: KubernetesSettings,
    /// Whether it was asked for. One that was only found may turn out to be of no use.
    pub asked_for: bool,
}

/// Follows the names until `stop`. An API server that is away is waited for.
///
/// # Errors
/// There are no credentials for it.
pub async fn follow(settings: &KubernetesSettings, stop: CancellationToken) -> Result<Names, ConnectError> {
    let client = ClientSettings {
        kubeconfigs: settings.kubeconfig.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..ClientSettings::default()
    };
    let client = connect(&client).await?;
    let (tell, names) = watch::channel(None);
    let on_change = move |names| drop(tell.send_replace(Some(names)));
    let namespace = settings.watch_namespace.clone();
    tokio::spawn(model_names::follow(client, namespace, on_change, stop));
    Ok(names)
}
