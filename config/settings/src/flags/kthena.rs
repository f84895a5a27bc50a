//! Flags that kthena's manifests pass: taken where they change nothing but a port, refused where they ask for more.

use clap::Args;

use crate::compat::parse_bool;
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
    /// Not available yet: true is refused
    #[arg(long, env = "KVASIR_ENABLE_WEBHOOK", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub enable_webhook: Option<String>,
    /// Not available yet: true is refused
    #[arg(long, env = "KVASIR_ENABLE_GATEWAY_API", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub enable_gateway_api: Option<String>,
    /// Not available yet: true is refused
    #[arg(long, env = "KVASIR_ENABLE_GATEWAY_API_INFERENCE_EXTENSION", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub enable_gateway_api_inference_extension: Option<String>,
    /// Metrics are served at --metrics-listen only: true is refused
    #[arg(long, env = "KVASIR_EXPOSE_METRICS_ON_ROUTER_PORT", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING, hide_short_help = true)]
    pub expose_metrics_on_router_port: Option<String>,
    /// Without an effect while there is no webhook
    #[arg(long, env = "KVASIR_WEBHOOK_PORT", value_name = "PORT", help_heading = HEADING, hide_short_help = true)]
    pub webhook_port: Option<String>,
    /// Without an effect while there is no webhook
    #[arg(long, env = "KVASIR_WEBHOOK_TLS_CERT_FILE", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub webhook_tls_cert_file: Option<String>,
    /// Without an effect while there is no webhook
    #[arg(long, env = "KVASIR_WEBHOOK_TLS_PRIVATE_KEY_FILE", value_name = "FILE", help_heading = HEADING, hide_short_help = true)]
    pub webhook_tls_private_key_file: Option<String>,
    /// Without an effect while there is no webhook
    #[arg(long, env = "KVASIR_CERT_SECRET_NAME", value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    pub cert_secret_name: Option<String>,
    /// Without an effect while there is no webhook
    #[arg(long, env = "KVASIR_WEBHOOK_SERVICE_NAME", value_name = "NAME", help_heading = HEADING, hide_short_help = true)]
    pub webhook_service_name: Option<String>,
    /// Without an effect while no Kubernetes objects are watched
    #[arg(long, env = "KVASIR_KUBE_API_QPS", value_name = "RATE", help_heading = HEADING, hide_short_help = true)]
    pub kube_api_qps: Option<String>,
    /// Without an effect while no Kubernetes objects are watched
    #[arg(long, env = "KVASIR_KUBE_API_BURST", value_name = "COUNT", help_heading = HEADING, hide_short_help = true)]
    pub kube_api_burst: Option<String>,
}

impl KthenaFlags {
    /// Refuses what is not there yet, and says what has no effect. The ports are read by the listeners.
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
        let kubernetes = "watching Kubernetes objects is not available yet";
        for (flag, value, message, fix) in [
            ("--enable-webhook", &self.enable_webhook, kubernetes, "write --enable-webhook=false"),
            (
                "--enable-gateway-api",
                &self.enable_gateway_api,
                kubernetes,
                "write --enable-gateway-api=false",
            ),
            (
                "--enable-gateway-api-inference-extension",
                &self.enable_gateway_api_inference_extension,
                kubernetes,
                "write --enable-gateway-api-inference-extension=false",
            ),
            (
                "--expose-metrics-on-router-port",
                &self.expose_metrics_on_router_port,
                "metrics are served at --metrics-listen only",
                "write --expose-metrics-on-router-port=false and scrape the metrics port",
            ),
        ] {
            match value.as_deref().filter(|value| !value.is_empty()).map(parse_bool) {
                None | Some(Some(false)) => {}
                Some(Some(true)) => findings.error(&Place::flag(flag), message, fix),
                Some(None) => findings.error(&Place::flag(flag), "is no boolean", "write true or false"),
            }
        }
        for (flag, value) in [
            ("--webhook-port", &self.webhook_port),
            ("--webhook-tls-cert-file", &self.webhook_tls_cert_file),
            ("--webhook-tls-private-key-file", &self.webhook_tls_private_key_file),
            ("--cert-secret-name", &self.cert_secret_name),
            ("--webhook-service-name", &self.webhook_service_name),
            ("--kube-api-qps", &self.kube_api_qps),
            ("--kube-api-burst", &self.kube_api_burst),
        ] {
            if value.as_deref().is_some_and(|value| !value.is_empty()) {
                findings.warn(&Place::flag(flag), "has no effect: Kubernetes objects are not watched yet");
            }
        }
    }
}
