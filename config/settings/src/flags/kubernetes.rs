//! The flags that say whether a cluster is watched, and what in it.

use clap::Args;

use crate::defaults;

pub(crate) const HEADING: &str = "Kubernetes";

/// What was said about the cluster, as it was typed; kthena's flags say the rest.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct KubernetesArgs {
    /// Whether models and endpoints come from Kubernetes objects: on, off, or auto. auto is on where no model is named
    /// (--model, --models) and the process runs in a pod (KUBERNETES_SERVICE_HOST is set) or one of
    /// --enable-webhook, --enable-gateway-api and --enable-gateway-api-inference-extension is true. Outside of a pod the
    /// cluster is that of KUBECONFIG, else of ~/.kube/config. With on, named models are served beside those of the
    /// cluster
    #[arg(long, env = "KVASIR_KUBERNETES", value_name = "MODE", default_value = defaults::KUBERNETES, help_heading = HEADING)]
    pub kubernetes: String,
    /// The only namespace whose pods, servers and routes count [default: all]
    #[arg(long, env = "KVASIR_WATCH_NAMESPACE", value_name = "NAMESPACE", help_heading = HEADING)]
    pub watch_namespace: Option<String>,
    /// The ConfigMap that holds the router document; without more, in the pod's namespace and under the key
    /// routerConfiguration. It is followed: a new version takes effect at once, a bad one is reported and the last good
    /// one stays. Wins over --config, which counts until the ConfigMap is there
    #[arg(long, env = "KVASIR_CONFIG_MAP", value_name = "[NAMESPACE/]NAME[:KEY]", help_heading = HEADING)]
    pub config_map: Option<String>,
    /// The class whose Gateways are served, with --enable-gateway-api [default: kthena-router]
    #[arg(long, env = "KVASIR_GATEWAY_CLASS", value_name = "NAME", help_heading = HEADING)]
    pub gateway_class: Option<String>,
    /// The Lease in the pod's namespace whose holder writes statuses. Replicas of one router share it; two routers in one
    /// namespace need one each [default: kvasir-router]
    #[arg(long, env = "KVASIR_LEASE_NAME", value_name = "NAME", help_heading = HEADING)]
    pub lease_name: Option<String>,
    /// An address or a name by which clients reach the router, shown in the status of Gateways; may be repeated. The
    /// variable separates entries with `;` [default: none]
    #[arg(long, env = "KVASIR_GATEWAY_ADDRESS", value_name = "ADDRESS", value_delimiter = ';', help_heading = HEADING)]
    pub gateway_address: Vec<String>,
    /// The ValidatingWebhookConfiguration that gets the authority of the webhook's certificate
    /// [default: kthena-router-validating-webhook]
    #[arg(long, env = "KVASIR_WEBHOOK_CONFIGURATION_NAME", value_name = "NAME", help_heading = HEADING)]
    pub webhook_configuration_name: Option<String>,
    /// Make the webhook's certificate where there is none, and write its authority into the configuration; false where
    /// cert-manager or a person does both [default: true]
    #[arg(long, env = "KVASIR_WEBHOOK_MANAGE_CERTIFICATE", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING)]
    pub webhook_manage_certificate: Option<String>,
}

impl Default for KubernetesArgs {
    fn default() -> Self {
        Self {
            kubernetes: defaults::KUBERNETES.to_owned(),
            watch_namespace: None,
            config_map: None,
            gateway_class: None,
            lease_name: None,
            gateway_address: Vec::new(),
            webhook_configuration_name: None,
            webhook_manage_certificate: None,
        }
    }
}
