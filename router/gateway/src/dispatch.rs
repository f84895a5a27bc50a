//! Tries the picks in order, with the whole body each time, until one answers (decision D8).

use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{CycleState, Endpoint, ErrorKind, InFlightCost, RouterError};
use kvasir_scheduler::Scheduler;
use kvasir_state::{Attempt, InFlight, Resolved};
use pingora_http::ResponseHeader;

use crate::leg::{Leg, LegError};
use crate::place::Placed;
use crate::resolve::Bound;
use crate::settle::Trail;
use crate::turns::Turns;
use crate::{Gateway, outbound};

/// Engines that may die on one request before it is given up: it must not walk the fleet.
const MOST_DEATHS: u32 = 2;

/// Attempts of one request, however many its target asks for: each holds the client and its body's bytes.
const MOST_TRIES: usize = 16;

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
    /// The route, where it changes the answer.
    pub edited: Option<Resolved>,
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
        placed.scheduler.dispatched(&placed.cycle, endpoint, cost);
        Self {
            endpoint: Arc::clone(endpoint),
            predicted,
            scheduler: Arc::clone(&placed.scheduler),
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

/// Sends the request to the best pick that answers, within the route's time for all attempts.
pub(crate) async fn dispatch(
    gateway: &Gateway,
    bound: &Bound,
    placed: &Placed,
    trail: &mut Trail<'_>,
) -> Result<Answer, RouterError> {
    let tries = walk_picks(gateway, bound, placed, trail);
    match bound.route.deadline {
        None => tries.await,
        Some(limit) => {
            tokio::time::timeout(limit, tries).await.unwrap_or(Err(ErrorKind::FirstByteTimeout(limit).into()))
        }
    }
}

async fn walk_picks(
    gateway: &Gateway,
    bound: &Bound,
    placed: &Placed,
    trail: &mut Trail<'_>,
) -> Result<Answer, RouterError> {
    let model = bound.request.model.as_str();
    let (picks, policy) = (&placed.decision.picks, bound.route.target.retry);
    let most = match policy {
        // Where the target asks for more attempts than there are picks, the first have another turn.
        Some(policy) => (policy.attempts.saturating_add(1) as usize).min(MOST_TRIES),
        None => gateway.limits.max_attempts.min(picks.len()),
    };
    let mut held: Option<Answer> = None;
    let mut last = ErrorKind::ConnectFailed;
    let mut deaths = 0;
    let mut reason = "";
    gateway.retry_budget.request(gateway.clock.now());
    let mut turns = if policy.is_some() { Turns::for_ever(picks) } else { Turns::once(picks) };
    for number in 0..most {
        if number > 0 {
            if !gateway.retry_budget.try_retry(gateway.clock.now()) {
                gateway.metrics.retry_denied(model, "budget");
                break;
            }
            if let Some(policy) = policy {
                tokio::time::sleep(policy.interval).await;
            }
        }
        let Some(pick) = turns.next(&gateway.state) else {
            gateway.metrics.retry_denied(model, "left");
            break;
        };
        if number > 0 {
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
                let (kind, result, report) = sort(gateway, bound, &error);
                trail.attempt_failed(&pick.endpoint, result);
                gateway.metrics.attempt(model, result);
                gateway.state.report_of(&pick.endpoint, report);
                reason = result;
                last = kind;
                match error {
                    LegError::Connect => {}
                    // Decision D8: a slow engine is left for another one only where the target asks for it.
                    LegError::FirstByte if policy.is_some() => {}
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
    let header = outbound::header(gateway, bound, endpoint).map_err(|_| LegError::Garbage)?;
    let limit = bound.route.timeout;
    let first = gateway.connections.send(endpoint, limit, header.clone(), bound.body.clone(), false);
    let mut leg = match first.await {
        // A pooled connection that the engine had just closed: it never saw the request. A fresh connection tells;
        // when that one cannot be made, the engine itself has died, perhaps of this request.
        Err(LegError::Died { reused: true }) => {
            match gateway.connections.send(endpoint, limit, header, bound.body.clone(), true).await {
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
    let edits_answer = bound.route.edits.as_ref().is_some_and(|edits| !edits.response.is_empty());
    let edited = edits_answer.then(|| bound.route.clone());
    Ok(Answer { header: answer_header, first, leg, running, edited })
}

/// Whether another endpoint should be asked instead of passing this status on.
fn may_retry(gateway: &Gateway, endpoint: &Endpoint, status: u16) -> bool {
    match status {
        502 | 503 | 429 => true,
        // A draining vLLM answers 500 while its /health says 200; a healthy engine's 500 is the request's own.
        500 => !gateway.state.still_takes(endpoint) || gateway.state.unhealthy(&endpoint.id),
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
    gateway.state.report_of(endpoint, report);
}

/// What a failed leg means for the client, the metrics and the endpoint's health.
fn sort(gateway: &Gateway, bound: &Bound, error: &LegError) -> (ErrorKind, &'static str, Attempt) {
    match error {
        LegError::Connect => (ErrorKind::ConnectFailed, "connect", Attempt::ConnectFailed),
        LegError::FirstByte | LegError::Idle => (
            ErrorKind::FirstByteTimeout(bound.route.timeout.unwrap_or(gateway.limits.first_byte_timeout)),
            "timeout",
            Attempt::FirstByteTimeout,
        ),
        LegError::Died { .. } | LegError::Broken => {
            (ErrorKind::UpstreamClosed, "died", Attempt::DiedAfterSend)
        }
        LegError::Garbage => (ErrorKind::BadUpstream, "garbage", Attempt::DiedAfterSend),
    }
}
