//! Tries the picks in order, with the whole body each time, until one answers (decision D8).

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header};
use kvasir_core::{CycleState, Endpoint, ErrorKind, InFlightCost, RouterError};
use kvasir_scheduler::Scheduler;
use kvasir_state::{Attempt, InFlight};
use kvasir_wire::headers::{ConnectionNames, passes_to_engine};
use pingora_http::{RequestHeader, ResponseHeader};

use crate::Gateway;
use crate::leg::{Leg, LegError};
use crate::place::Placed;
use crate::resolve::Bound;
use crate::settle::Trail;

/// Engines that may die on one request before it is given up: it must not walk the fleet.
const MOST_DEATHS: u32 = 2;

/// An answer whose first piece is here, so that nothing can be retried any more.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer's header.
    pub header: ResponseHeader,
    /// The first piece of the body, `None` when it has none.
    pub first: Option<Bytes>,
    /// For the rest.
    pub leg: Leg,
    /// The attempt's place at the endpoint.
    pub running: Running,
}

/// One running attempt. Dropping it without [`Running::completed`] tells the observers that it failed.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where it runs.
    pub endpoint: Arc<Endpoint>,
    /// Cached tokens expected there.
    pub predicted: u32,
    scheduler: Arc<Scheduler>,
    cycle: Arc<CycleState>,
    in_flight: InFlight,
    settled: bool,
}

impl Running {
    fn begin(gateway: &Gateway, placed: &Placed, index: usize, endpoint: &Arc<Endpoint>) -> Self {
        let predicted = placed.cycle.reusable_tokens(index);
        let cost = cost_of(&placed.cycle, index, predicted);
        gateway.scheduler.dispatched(&placed.cycle, endpoint, cost);
        Self {
            endpoint: Arc::clone(endpoint),
            predicted,
            scheduler: Arc::clone(&gateway.scheduler),
            cycle: Arc::clone(&placed.cycle),
            in_flight: gateway.state.begin(endpoint, cost),
            settled: false,
        }
    }

    /// The endpoint is past the prefill.
    pub(crate) fn first_byte(&mut self) {
        self.in_flight.first_byte();
    }

    /// The answer was relayed to its end.
    pub(crate) fn completed(mut self, usage: Option<&kvasir_core::Usage>) {
        self.settled = true;
        self.scheduler.completed(&self.cycle, &self.endpoint, usage);
    }
}

/// What the request costs candidate `index`, of which `reusable` prompt tokens are there already.
fn cost_of(cycle: &CycleState, index: usize, reusable: u32) -> InFlightCost {
    let hit = cycle.hits.get(index).copied().unwrap_or_default();
    InFlightCost {
        prefill_tokens: cycle.prompt_tokens.saturating_sub(reusable),
        confirmed_tokens: hit.tokens.saturating_sub(hit.predicted_tokens),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.settled {
            self.scheduler.failed(&self.cycle, &self.endpoint);
        }
    }
}

/// Sends the request to the best pick that answers.
pub(crate) async fn dispatch(
    gateway: &Gateway,
    bound: &Bound,
    placed: &Placed,
    trail: &mut Trail<'_>,
) -> Result<Answer, RouterError> {
    let model = bound.request.model.as_str();
    let most = gateway.limits.max_attempts.min(placed.decision.picks.len());
    let mut held: Option<Answer> = None;
    let mut last = ErrorKind::ConnectFailed;
    let mut deaths = 0;
    let mut reason = "";
    gateway.retry_budget.request(gateway.clock.now());
    for (number, pick) in placed.decision.picks.iter().take(most).enumerate() {
        if number > 0 {
            if !gateway.retry_budget.try_retry(gateway.clock.now()) {
                gateway.metrics.retry_denied(model, "budget");
                break;
            }
            gateway.metrics.retry(model, reason);
        }
        let others = number + 1 < most;
        match attempt(gateway, bound, placed, pick.index, &pick.endpoint, trail).await {
            Ok(answer) => {
                let status = answer.header.status.as_u16();
                trail.attempt_answered(&pick.endpoint, status);
                report_status(gateway, model, &pick.endpoint, status);
                let again = others && may_retry(gateway, &pick.endpoint, status);
                if !again {
                    return Ok(answer);
                }
                reason = "status";
                held = Some(answer);
            }
            Err(error) => {
                let (kind, result, report) = sort(gateway, &error);
                trail.attempt_failed(&pick.endpoint, result);
                gateway.metrics.attempt(model, result);
                gateway.state.report(&pick.endpoint.id, report);
                reason = result;
                last = kind;
                match error {
                    LegError::Connect => {}
                    LegError::FirstByte => break,
                    _ => {
                        deaths += 1;
                        if deaths >= MOST_DEATHS {
                            gateway.metrics.retry_denied(model, "second_death");
                            break;
                        }
                    }
                }
            }
        }
    }
    // An engine's own answer, with its Retry-After, tells the client more than ours.
    held.ok_or_else(|| last.into())
}

/// One try at one endpoint, up to the first piece of the answer's body: until then another endpoint may take over.
async fn attempt(
    gateway: &Gateway,
    bound: &Bound,
    placed: &Placed,
    index: usize,
    endpoint: &Arc<Endpoint>,
    trail: &mut Trail<'_>,
) -> Result<Answer, LegError> {
    let mut running = Running::begin(gateway, placed, index, endpoint);
    trail.attempt_begun(endpoint);
    let header = outbound_header(gateway, bound, endpoint).map_err(|_| LegError::Garbage)?;
    let mut leg = match gateway.connections.send(endpoint, header.clone(), bound.body.clone(), false).await {
        // A pooled connection that the engine had just closed: it never saw the request. A fresh connection tells;
        // when that one cannot be made, the engine itself has died, perhaps of this request.
        Err(LegError::Died { reused: true }) => {
            match gateway.connections.send(endpoint, header, bound.body.clone(), true).await {
                Err(LegError::Connect) => return Err(LegError::Died { reused: true }),
                other => other?,
            }
        }
        other => other?,
    };
    let answer_header = leg.header().cloned().ok_or(LegError::Garbage)?;
    let first = match leg.chunk().await {
        Ok(first) => first,
        Err(LegError::Broken) => return Err(LegError::Died { reused: false }),
        Err(error) => return Err(error),
    };
    running.first_byte();
    Ok(Answer { header: answer_header, first, leg, running })
}

/// Whether another endpoint should be asked instead of passing this status on.
fn may_retry(gateway: &Gateway, endpoint: &Endpoint, status: u16) -> bool {
    match status {
        502 | 503 | 429 => true,
        // A draining vLLM answers 500 while its /health says 200; a healthy engine's 500 is the request's own.
        500 => gateway.state.unhealthy(&endpoint.id),
        _ => false,
    }
}

fn report_status(gateway: &Gateway, model: &str, endpoint: &Endpoint, status: u16) {
    let (result, report) = match status {
        500.. => ("status_5xx", Attempt::Status5xx(status)),
        400.. => ("status_4xx", Attempt::Ok),
        _ => ("ok", Attempt::Ok),
    };
    gateway.metrics.attempt(model, result);
    gateway.state.report(&endpoint.id, report);
}

/// What a failed leg means for the client, the metrics and the endpoint's health.
fn sort(gateway: &Gateway, error: &LegError) -> (ErrorKind, &'static str, Attempt) {
    match error {
        LegError::Connect => (ErrorKind::ConnectFailed, "connect", Attempt::ConnectFailed),
        LegError::FirstByte | LegError::Idle => (
            ErrorKind::FirstByteTimeout(gateway.limits.first_byte_timeout),
            "timeout",
            Attempt::FirstByteTimeout,
        ),
        LegError::Died { .. } | LegError::Broken => {
            (ErrorKind::UpstreamClosed, "died", Attempt::DiedAfterSend)
        }
        LegError::Garbage => (ErrorKind::BadUpstream, "garbage", Attempt::DiedAfterSend),
    }
}

/// The head as it goes to an engine: the client's end-to-end headers, and what only we know.
fn outbound_header(
    gateway: &Gateway,
    bound: &Bound,
    endpoint: &Endpoint,
) -> pingora_core::Result<RequestHeader> {
    let from = &bound.outbound;
    let path = format!("{}{}", endpoint.address.path_prefix, from.path);
    let mut header =
        RequestHeader::build(from.method.clone(), path.as_bytes(), Some(from.headers.len() + 4))?;
    let connection = ConnectionNames::of(&from.headers);
    for (name, value) in &from.headers {
        let passes = passes_to_engine(name, &connection, gateway.headers.forward_credentials)
            && !(from.decoded && *name == header::CONTENT_ENCODING)
            // Answers are read on the side for usage, so they must come plain.
            && *name != header::ACCEPT_ENCODING
            && *name != "x-request-id";
        if passes {
            header.append_header(name.clone(), value.clone())?;
        }
    }
    header.insert_header(
        header::HOST,
        HeaderValue::from_str(&endpoint.address.authority).unwrap_or(HeaderValue::from_static("engine")),
    )?;
    if !bound.body.is_empty() || from.method == http::Method::POST {
        header.insert_header(header::CONTENT_LENGTH, bound.body.len().to_string())?;
    }
    header.insert_header("x-request-id", bound.request.id.as_str())?;
    if endpoint.pin_rank {
        header.insert_header("x-data-parallel-rank", endpoint.id.rank.to_string())?;
    }
    Ok(header)
}
