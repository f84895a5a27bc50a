//! How the pods of a ModelServer are spoken to: time-outs, further attempts, TLS.

use std::time::Duration;

use kvasir_api::model_server::{Retry, WorkloadProtocol};
use kvasir_api::{FieldError, ModelServer, ModelServerSpec};
use kvasir_settings::resolved::Limits;
use kvasir_state::plan::{RetryPolicy, UpstreamTls};
use tokio_rustls::rustls::pki_types::ServerName;

/// The annotation that names what the pods' certificates are for.
const TLS_SERVER_NAME: &str = "kvasir.io/tls-server-name";

/// The pause that kthena's CRD fills in.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What is wrong with them, beyond what the webhook looks at.
pub(super) fn errors(server: &ModelServer) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(attempts) = said_retry(&server.spec).and_then(|retry| retry.attempts)
        && attempts < 0
    {
        let field = "spec.trafficPolicy.retry.attempts";
        errors.push(FieldError::invalid(field, attempts, "must be 0 or more"));
    }
    if let Some(name) = server_name(server)
        && ServerName::try_from(name).is_err()
    {
        let field = format!("metadata.annotations[{TLS_SERVER_NAME}]");
        errors.push(FieldError::invalid(field, name, "must be a DNS name or an IP address"));
    }
    errors
}

/// The limit of one attempt. Zero would leave no time at all, and is read as no limit, as Gateway API has it.
pub(super) fn timeout(spec: &ModelServerSpec) -> Option<Duration> {
    let timeout = spec.traffic_policy.as_ref()?.timeout?.0;
    Some(timeout).filter(|timeout| !timeout.is_zero())
}

/// Further attempts. A policy that does not say how many has as many as the router makes on its own.
pub(super) fn retry(spec: &ModelServerSpec) -> Option<RetryPolicy> {
    let said = said_retry(spec)?;
    let own = || u32::try_from(Limits::default().max_attempts).unwrap_or(u32::MAX).saturating_sub(1);
    Some(RetryPolicy {
        attempts: said.attempts.map_or_else(own, |attempts| u32::try_from(attempts).unwrap_or(0)),
        interval: said.retry_interval.map_or(RETRY_INTERVAL, |interval| interval.0),
    })
}

fn said_retry(spec: &ModelServerSpec) -> Option<&Retry> {
    spec.traffic_policy.as_ref()?.retry.as_ref()
}

/// TLS where the port speaks it. Pods are called by their address, for which no authority signs: their certificates are
/// checked only where the annotation says which name they have.
pub(super) fn tls(server: &ModelServer) -> Option<UpstreamTls> {
    match (server.spec.workload_port.protocol, server_name(server)) {
        (WorkloadProtocol::Http, _) => None,
        (WorkloadProtocol::Https, None) => Some(UpstreamTls::Unverified),
        (WorkloadProtocol::Https, Some(name)) => Some(UpstreamTls::Verified(name.into())),
    }
}

fn server_name(server: &ModelServer) -> Option<&str> {
    server.metadata.annotations.as_ref()?.get(TLS_SERVER_NAME).map(String::as_str)
}
