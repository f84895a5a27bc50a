//! The trail a request leaves: access log, metrics, decision record, proof. Settled however the request ended.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvasir_core::record::{AttemptRecord, OutcomeRecord};
use kvasir_core::{
    DecisionRecord, Endpoint, InferenceRequest, Phase, RequestId, RequestKind, RouterError, TokenSlot,
    TokenSource, Usage,
};
use kvasir_state::plan::TargetKind;
use kvasir_state::{NoRoute, Redirect, Resolved, RouteName};
use kvasir_telemetry::access_log::{AccessError, timestamp};
use kvasir_telemetry::{AccessRecord, Gauge, RequestLabels};
use pingora_http::RequestHeader;

use crate::Gateway;
use crate::admit::Admitted;
use crate::explain;
use crate::place::Placed;
use crate::reply;

mod phases;

use phases::Phases;

/// Longest `x-request-id` taken from a client.
const LONGEST_ID: usize = 128;

/// Collects what happened; writes it all down when dropped.
pub(crate) struct Trail<'g> {
    gateway: &'g Gateway,
    id: RequestId,
    started: Instant,
    first_dispatch: Option<Instant>,
    answered: Option<Instant>,
    ended: Option<Instant>,
    log: AccessRecord,
    labels: RequestLabels,
    active: Option<Gauge>,
    upstream: Option<Gauge>,
    phases: Phases,
    record: Option<Box<DecisionRecord>>,
    proof: Option<(TokenSource, u32)>,
    block_size: u64,
    usage: Option<Usage>,
    held: Admitted,
    outcome: &'static str,
    error_label: &'static str,
}

impl<'g> Trail<'g> {
    /// Begins with the request's head.
    pub(crate) fn open(gateway: &'g Gateway, head: &RequestHeader, kind: RequestKind) -> Self {
        let id = request_id(head);
        let log = AccessRecord {
            timestamp: if gateway.access_log.is_some() { timestamp() } else { String::new() },
            method: head.method.as_str().to_owned(),
            path: head.uri.path().to_owned(),
            protocol: if head.version == http::Version::HTTP_2 { "HTTP/2.0" } else { "HTTP/1.1" },
            request_id: id.as_str().to_owned(),
            ..AccessRecord::default()
        };
        Self {
            gateway,
            id,
            started: gateway.clock.now(),
            first_dispatch: None,
            answered: None,
            ended: None,
            log,
            labels: RequestLabels::unresolved("unknown", kind.path_label()),
            active: None,
            upstream: None,
            phases: Phases::default(),
            record: None,
            proof: None,
            block_size: 16,
            usage: None,
            held: Admitted::default(),
            outcome: "router_error",
            error_label: "request_failed",
        }
    }

    /// The request's id.
    pub(crate) fn request_id(&self) -> &RequestId {
        &self.id
    }

    /// The route matched: from here on the model is a label that settings made, unless an HTTPRoute took the request,
    /// whose model is the client's word alone.
    pub(crate) fn bound(&mut self, request: &InferenceRequest, route: &Resolved) {
        let requested = request.requested_model.to_string();
        let upstream = route.rewrite().map_or_else(|| requested.clone(), str::to_owned);
        let target = &route.target;
        self.labels.path = request.kind.path_label();
        self.labels.backend_type = target.id.kind.as_str();
        self.labels.backend_name = target.label.to_string();
        if let RouteName::Model(name) = &route.route {
            self.labels.model.clone_from(&requested);
            self.labels.model_route = name.to_string();
            self.labels.upstream_model.clone_from(&upstream);
            self.log.model_route = name.to_string();
        }
        let active = self.gateway.metrics.active_downstream(&self.labels.model);
        active.inc();
        self.active = Some(active);
        self.log.model_name = requested;
        self.log.upstream_model = upstream;
        if target.id.kind != TargetKind::InferencePool {
            self.log.model_server = target.label.to_string();
        }
        self.log.backend_name = target.label.to_string();
        self.log.backend_type = target.id.kind.as_str();
        if target.id.kind == TargetKind::InferencePool {
            self.log.inference_pool = target.label.to_string();
        }
        if let RouteName::Http(name) = &route.route {
            self.log.http_route = name.to_string();
        }
        if let Some(listener) = &route.listener {
            self.log.gateway = listener.gateway.to_string();
        }
        self.record = Some(Box::new(explain::begin(&self.id, request, now_ms())));
    }

    /// A route matched and leads nowhere, or none did.
    pub(crate) fn refused(&mut self, error: &NoRoute, requested: &str) {
        requested.clone_into(&mut self.log.model_name);
        match error.route() {
            Some(RouteName::Model(name)) => {
                requested.clone_into(&mut self.labels.model);
                self.labels.model_route = name.to_string();
                self.log.model_route = name.to_string();
            }
            Some(RouteName::Http(name)) => self.log.http_route = name.to_string(),
            None => {}
        }
    }

    /// The client is sent elsewhere.
    pub(crate) fn redirected(&mut self, redirect: &Redirect) {
        self.ended = Some(self.gateway.clock.now());
        self.log.status_code = redirect.status;
        if let RouteName::Http(name) = &redirect.route {
            self.log.http_route = name.to_string();
        }
        (self.outcome, self.error_label) = ("success", "successful_request");
    }

    /// It waited for its turn.
    pub(crate) fn queued(&mut self, waited: Duration) {
        self.log.queued_ms = Some(millis(waited));
    }

    /// It may run; its place is given back when it has ended.
    pub(crate) fn hold(&mut self, admitted: Admitted) {
        self.held = admitted;
    }

    /// The decision was made.
    pub(crate) fn placed(&mut self, placed: &Placed) {
        if let Some(record) = &mut self.record {
            explain::fill(record, placed);
        }
        if let Some(reason) = placed.fallback {
            self.fell_back(reason);
        }
        if let TokenSlot::Ready(tokens) = &placed.cycle.tokens
            && tokens.whole
        {
            self.proof = Some((tokens.source, placed.cycle.prompt_tokens));
        }
        if let Some(chain) = placed.cycle.chains.first() {
            self.block_size = chain.block_size.tokens() as u64;
        }
    }

    /// An attempt is about to be made.
    pub(crate) fn attempt_begun(&mut self, endpoint: &Endpoint) {
        let now = self.gateway.clock.now();
        self.first_dispatch.get_or_insert(now);
        self.log.upstream_attempts = self.log.upstream_attempts.saturating_add(1);
        self.log.selected_pod = endpoint.id.to_string();
        if self.upstream.is_none() {
            let gauge = self.gateway.metrics.active_upstream(&self.labels);
            gauge.inc();
            self.upstream = Some(gauge);
        }
    }

    /// An endpoint answered to its `phase`.
    pub(crate) fn attempt_answered(&mut self, endpoint: &Endpoint, phase: Phase, status: u16) {
        // A prefill endpoint may report behind the answer that another one gives.
        if self.answered.is_none() {
            self.log.upstream_status_code = status;
        }
        if phase == Phase::Decode && status >= 300 {
            self.decode_ended(status);
        }
        self.push_attempt(endpoint, phase, Some(status), None);
    }

    /// An endpoint did not, and what that means for the client.
    pub(crate) fn attempt_failed(
        &mut self,
        endpoint: &Endpoint,
        phase: Phase,
        what: &str,
        meaning: &RouterError,
    ) {
        if phase == Phase::Decode {
            self.decode_ended(reply::sort(meaning).status.as_u16());
        }
        self.push_attempt(endpoint, phase, None, Some(what.to_owned()));
    }

    fn push_attempt(
        &mut self,
        endpoint: &Endpoint,
        phase: Phase,
        status: Option<u16>,
        error: Option<String>,
    ) {
        if let Some(record) = &mut self.record {
            record.attempts.push(AttemptRecord { endpoint: endpoint.id.clone(), phase, status, error });
        }
    }

    /// The answer's head goes to the client now.
    pub(crate) fn answering(&mut self, status: u16, endpoint: &Endpoint) {
        let now = self.gateway.clock.now();
        self.answered = Some(now);
        self.log.status_code = status;
        self.log.upstream_status_code = status;
        self.log.selected_pod = endpoint.id.to_string();
        let took = now.duration_since(self.started);
        self.log.ttft_ms = Some(millis(took));
        self.gateway.metrics.first_byte(&self.labels.model, took);
    }

    /// The answer went out whole; `stream_error` when the engine said in it that it failed.
    pub(crate) fn relayed(&mut self, usage: Option<Usage>, predicted: u32, stream_error: bool) {
        self.ended = Some(self.gateway.clock.now());
        self.decode_ended(self.log.status_code);
        (self.outcome, self.error_label) = match self.log.status_code {
            _ if stream_error => ("engine_error", "proxy"),
            0..400 => ("success", "successful_request"),
            429 | 503 => ("overloaded", "upstream_response"),
            400..500 => ("client_error", "upstream_response"),
            _ => ("engine_error", "upstream_response"),
        };
        if let Some(record) = &mut self.record {
            record.predicted_cached_tokens = Some(predicted);
        }
        self.log.predicted_cached_tokens = Some(predicted);
        let Some(usage) = usage else { return };
        self.usage = Some(usage);
        self.log.input_tokens = usage.prompt_tokens;
        self.log.output_tokens = usage.completion_tokens;
        self.log.cached_tokens = usage.cached_tokens;
        let metrics = &self.gateway.metrics;
        metrics.usage(&self.labels, &usage);
        let Some((source, counted)) = self.proof else { return };
        let Some(record) = &self.record else { return };
        if usage.prompt_tokens > 0 {
            let equal = u64::from(counted) == usage.prompt_tokens;
            metrics.proof(record.model.as_str(), source.as_str(), equal);
            self.gateway.tokens.observe(&record.model, source, counted, usage.prompt_tokens);
        }
        if let Some(cached) = usage.cached_tokens {
            metrics.prediction(record.model.as_str(), u64::from(predicted), cached, self.block_size);
        }
    }

    /// The request failed on our side of the answer, or the answer broke off.
    pub(crate) fn failed(&mut self, error: &RouterError) {
        let sorted = reply::sort(error);
        self.outcome = sorted.outcome;
        self.error_label = sorted.label;
        if self.log.status_code == 0 {
            self.log.status_code = sorted.status.as_u16();
        }
        self.log.error = Some(AccessError { kind: sorted.label, message: error.to_string() });
    }
}

impl Drop for Trail<'_> {
    fn drop(&mut self) {
        self.held.give_back(self.outcome, self.usage.as_ref());
        let now = self.gateway.clock.now();
        let total = now.duration_since(self.started);
        self.end_phases();
        for gauge in [self.active.take(), self.upstream.take()].into_iter().flatten() {
            gauge.dec();
        }
        let metrics = &self.gateway.metrics;
        metrics.request_ended(&self.labels, self.log.status_code, self.error_label, total);
        metrics.outcome(&self.labels.model, self.outcome);
        if let Some(mut record) = self.record.take() {
            record.outcome = Some(OutcomeRecord {
                status: self.log.status_code,
                usage: self.usage,
                ttft_ms: self.answered.map(|at| at.duration_since(self.started).as_secs_f64() * 1000.0),
                total_ms: total.as_secs_f64() * 1000.0,
                error: self.log.error.as_ref().map(|error| error.message.clone()),
            });
            self.gateway.ring.push(*record);
        }
        if let Some(logger) = &self.gateway.access_log {
            let dispatched = self.first_dispatch.unwrap_or(now);
            let ended = self.ended.unwrap_or(now);
            self.log.duration_total = millis(total);
            self.log.duration_request_processing = millis(dispatched.duration_since(self.started));
            self.log.duration_upstream_processing = millis(ended.saturating_duration_since(dispatched));
            self.log.duration_response_processing = millis(now.duration_since(ended));
            logger.log(std::mem::take(&mut self.log));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// The client's id when it is short and printable, else a new one.
fn request_id(head: &RequestHeader) -> RequestId {
    let given = head.headers.get("x-request-id").and_then(|value| value.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|b| b.is_ascii_graphic()) => {
            id.into()
        }
        _ => uuid::Uuid::new_v4().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_kept_when_it_is_short_and_printable() {
        let with = |value: &str| {
            let mut head = RequestHeader::build("GET", b"/", None).unwrap();
            head.insert_header("x-request-id", value).unwrap();
            request_id(&head)
        };
        assert_eq!(with("abc-1").as_str(), "abc-1");
        assert_ne!(with("a b").as_str(), "a b");
        assert_eq!(with("").as_str().len(), 36);
        assert_eq!(with(&"x".repeat(129)).as_str().len(), 36);
    }
}
