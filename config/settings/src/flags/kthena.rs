//! Flags that kthena's manifests pass, with the meaning that they have there.

use clap::Args;

use crate::problems::{Findings, Place};

const HEADING: &str = "kthena's flags";

/// kthena's flags, as they were typed.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct KthenaFlags {
    /// Only the port of --listen
    #[arg(long, env = "KVASIR_PORT", value_name = "PORT", help_heading = HEADING, hide_short_help = true)]
    pub port: Option<String>,
    /// Only the port of --metrics-listen
    #[arg(long, env = "KVASIR_METRICS_PORT", value_name = "PORT", help_heading = HEADING, hide_short_help = true)]
    pub metrics_port: Option<String>,
    /// Only the port of --admin-listen
    #[arg(long, env = "KVASIR_DEBUG_PORT", value_name = "PORT", help_heading = HEADING, hide_short_help = true)]
    pub debug_port: Option<String>,
    /// Not available yet: the router refuses to start rather than serve without TLS
    #[arg(long, env = "KVASIR_TLS_CERT", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub tls_cert: Option<String>,
    /// Not available yet: the router refuses to start rather than serve without TLS
    #[arg(long, env = "KVASIR_TLS_KEY", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub tls_key: Option<String>,
    /// Check objects as they are written, by a validating webhook [default: true in a pod that watches its cluster,
    /// else false]
    #[arg(long, env = "KVASIR_ENABLE_WEBHOOK", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub enable_webhook: Option<String>,
    /// Take requests in by the listeners of Gateways [default: false]
    #[arg(long, env = "KVASIR_ENABLE_GATEWAY_API", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub enable_gateway_api: Option<String>,
    /// Route by HTTPRoutes to InferencePools; needs --enable-gateway-api [default: false]
    #[arg(long, env = "KVASIR_ENABLE_GATEWAY_API_INFERENCE_EXTENSION", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub enable_gateway_api_inference_extension: Option<String>,
    /// Serve /metrics on the inference port too [default: false]
    #[arg(long, env = "KVASIR_EXPOSE_METRICS_ON_ROUTER_PORT", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub expose_metrics_on_router_port: Option<String>,
    /// The webhook's port; the address is that of --listen [default: 8443]
    #[arg(long, env = "KVASIR_WEBHOOK_PORT", value_name = "PORT", help_heading = HEADING, hide_short_help = true)]
    pub webhook_port: Option<String>,
    /// A PEM file with the webhook's certificate [default: /etc/tls/tls.crt]
    #[arg(long, env = "KVASIR_WEBHOOK_TLS_CERT_FILE", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub webhook_tls_cert_file: Option<String>,
    /// A PEM file with the key of that certificate [default: /etc/tls/tls.key]
    #[arg(long, env = "KVASIR_WEBHOOK_TLS_PRIVATE_KEY_FILE", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub webhook_tls_private_key_file: Option<String>,
    /// The Secret in the pod's namespace that holds the webhook's certificate [default: kthena-router-webhook-certs]
    #[arg(long, env = "KVASIR_CERT_SECRET_NAME", value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    pub cert_secret_name: Option<String>,
    /// The Service by which the API server reaches the webhook; its certificate is for that name
    /// [default: kthena-router-webhook]
    #[arg(long, env = "KVASIR_WEBHOOK_SERVICE_NAME", value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    pub webhook_service_name: Option<String>,
    /// Statuses written a second, in the long run, each by two calls to the API server; other calls are not paced. 0 is 50
    /// [default: 0]
    #[arg(long, env = "KVASIR_KUBE_API_QPS", value_name = "RATE", help_heading = HEADING, hide_short_help = true)]
    pub kube_api_qps: Option<String>,
    /// Statuses written at once after a pause; 0 is 50 [default: 0]
    #[arg(long, env = "KVASIR_KUBE_API_BURST", value_name = "COUNT", help_heading = HEADING, hide_short_help = true)]
    pub kube_api_burst: Option<String>,
}

impl KthenaFlags {
    /// Refuses what is not there yet.
    pub(crate) fn check(&self, findings: &mut Findings) {
        for (flag, value) in [("--tls-cert", &self.tls_cert), ("--tls-key", &self.tls_key)] {
            if value.as_deref().is_some_and(|value| !value.is_empty()) {
                let message =
                    "serving with TLS is not available yet, and plain HTTP must not stand in for it";
                findings.error(
                    &Place::flag(flag),
                    message,
                    "remove the flag and end TLS in front of the router",
                );
            }
        }
    }
}
