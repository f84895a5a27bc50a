//! The cluster whose objects say what is routed where, and how this process takes part in it.

use std::fmt;
use std::path::PathBuf;

use crate::defaults;
use crate::facts::{DiskFiles, Files, KthenaEnvironment, SystemFacts};
use crate::problems::{Findings, Place, Problems};

mod access;
mod names;

pub(crate) use access::Access;
pub(crate) use names::{is_label, is_subdomain, parse_config_map};

/// What is needed to watch a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesSettings {
    /// Files that name a cluster and how to get in, merged in this order; every one existed when it was looked for. Empty
    /// where only the pod's own service account counts.
    pub kubeconfig: Vec<PathBuf>,
    /// Whether the process runs in a pod; its service account then goes before `kubeconfig`.
    pub in_cluster: bool,
    /// The pod's namespace: of the default Gateway, the lease, and the webhook's Secret.
    pub namespace: String,
    /// The only namespace whose objects count; `None` is all of them.
    pub watch_namespace: Option<String>,
    /// Whether requests come in by the listeners of Gateways.
    pub gateway_api: bool,
    /// Whether HTTPRoutes and InferencePools count; only with `gateway_api`.
    pub inference_extension: bool,
    /// The class whose Gateways are ours.
    pub gateway_class: String,
    /// The Lease in [`Self::namespace`] whose holder writes statuses: one for the replicas of one router.
    pub lease_name: String,
    /// Addresses and names that the status of Gateways shows; may be empty.
    pub gateway_addresses: Vec<String>,
    /// The validating webhook; `None` serves none.
    pub webhook: Option<WebhookSettings>,
    /// Statuses written a second, in the long run; 0 is the router's default. Each takes two calls to the API server.
    /// No other calls are paced: statuses are the only ones whose number grows with the cluster.
    pub api_qps: f64,
    /// Statuses written at once after a pause; 0 is the router's default.
    pub api_burst: u32,
    /// The ConfigMap whose document is followed while the router runs.
    pub config_map: Option<ConfigMapRef>,
}

impl Default for KubernetesSettings {
    /// The pod's own cluster, all namespaces, every addition off.
    fn default() -> Self {
        Self {
            kubeconfig: Vec::new(),
            in_cluster: true,
            namespace: defaults::NAMESPACE.to_owned(),
            watch_namespace: None,
            gateway_api: false,
            inference_extension: false,
            gateway_class: defaults::GATEWAY_CLASS.to_owned(),
            lease_name: defaults::LEASE_NAME.to_owned(),
            gateway_addresses: Vec::new(),
            webhook: None,
            api_qps: 0.0,
            api_burst: 0,
            config_map: None,
        }
    }
}

/// The validating webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Port, at the address of [`Settings::listen`](crate::Settings::listen).
    pub port: u16,
    /// PEM file of the certificate. It may appear after the start: a Secret that is mounted is filled in later.
    pub cert_file: PathBuf,
    /// PEM file of the certificate's key.
    pub key_file: PathBuf,
    /// The Secret in [`KubernetesSettings::namespace`] that holds the certificate.
    pub secret_name: String,
    /// The Service by which the API server reaches the webhook; the certificate is for its names.
    pub service_name: String,
    /// The ValidatingWebhookConfiguration that gets the authority of the certificate.
    pub configuration_name: String,
    /// Whether a missing certificate is made, and the authority written into the configuration. When false somebody else
    /// does both, and only the files count.
    pub manage_certificate: bool,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            port: defaults::WEBHOOK_PORT,
            cert_file: PathBuf::from(defaults::WEBHOOK_CERT_FILE),
            key_file: PathBuf::from(defaults::WEBHOOK_KEY_FILE),
            secret_name: defaults::WEBHOOK_SECRET.to_owned(),
            service_name: defaults::WEBHOOK_SERVICE.to_owned(),
            configuration_name: defaults::WEBHOOK_CONFIGURATION.to_owned(),
            manage_certificate: true,
        }
    }
}

/// One key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key under `data`.
    pub key: String,
}

impl fmt::Display for ConfigMapRef {
    /// As `--config-map` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.name, self.key)
    }
}

/// Works out how a program that only watches reaches the cluster, with the files and the environment of this machine.
/// An empty `watch_namespace` is all of them.
///
/// # Errors
/// There is no cluster, or a namespace that can be none.
pub fn resolve_watcher(watch_namespace: Option<&str>) -> Result<KubernetesSettings, Problems> {
    resolve_watcher_from(watch_namespace, &DiskFiles, &SystemFacts::read().environment)
}

/// The same from given files and a given environment.
///
/// # Errors
/// There is no cluster, or a namespace that can be none.
pub fn resolve_watcher_from(
    watch_namespace: Option<&str>,
    files: &dyn Files,
    environment: &KthenaEnvironment,
) -> Result<KubernetesSettings, Problems> {
    let mut findings = Findings::default();
    let access = Access::find(&environment.kubernetes, files, "set KUBECONFIG", &mut findings);
    let watch_namespace = watch_namespace.map(str::trim).filter(|name| !name.is_empty());
    if let Some(name) = watch_namespace.filter(|name| !is_label(name)) {
        findings.error(&Place::flag("WATCH_NAMESPACE"), names::no_namespace(name), names::NAMESPACE_FIX);
    }
    findings.into_result()?;
    Ok(KubernetesSettings {
        kubeconfig: access.kubeconfig,
        in_cluster: access.in_cluster,
        namespace: access.namespace,
        watch_namespace: watch_namespace.map(str::to_owned),
        ..KubernetesSettings::default()
    })
}

#[cfg(test)]
mod tests;
