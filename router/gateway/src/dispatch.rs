//! Tries the picks in order, with the whole body each time, until one answers (decision D8).

use std::ops::ControlFlow;
use std::time::Duration;

use kvasir_core::{Decision, Endpoint, ErrorKind, Phase, Pick, RouterError};
use kvasir_settings::resolved::PdFallback;
use kvasir_state::Attempt;
use smallvec::SmallVec;

use crate::Gateway;
use crate::buffers::HeldBytes;
use crate::connector::{Answer, Exchange, Failure, Fault, Prompt, attempt};
use crate::leg::LegError;
use crate::place::{self, Placed};
use crate::resolve::Bound;
use crate::settle::Trail;
use crate::turns::Turns;

/// Engines that may die on one request before it is given up: it must not walk the fleet.
const MOST_DEATHS: u32 = 2;

/// Attempts of one request, however many its target asks for: each holds the client and its body's bytes.
const MOST_TRIES: usize = 16;

/// Prefill endpoints that may fail a request before a decode endpoint gets all of it, where that is allowed: the client
/// waits, and retries are few.
const FEW_PREFILLS: usize = 2;

/// Sends the request to the best pick that answers, within the route's time for all attempts.
pub(crate) async fn dispatch<'g>(
    gateway: &'g Gateway,
    bound: &Bound,
    placed: &Placed,
    trail: &mut Trail<'_>,
) -> Result<Answer<'g>, RouterError> {
    let mut held = HeldBytes::default();
    if placed.is_split() {
        // Each of the two endpoints gets a body of its own.
        gateway.buffers.cover(&mut held, bound.body.len().saturating_mul(2)).await?;
    }
    let tries = walk_picks(Exchange { gateway, bound, placed }, trail);
    let mut answer = match bound.route.deadline {
        None => tries.await,
        Some(limit) => {
            tokio::time::timeout(limit, tries).await.unwrap_or(Err(ErrorKind::FirstByteTimeout(limit).into()))
        }
    };
    if let Ok(Answer { prompt: Prompt::Pending(late), .. }) = &mut answer {
        // One of the two may still be on its way.
        late.held = held;
    }
    answer
}

async fn walk_picks<'g>(
    exchange: Exchange<'g, '_>,
    trail: &mut Trail<'_>,
) -> Result<Answer<'g>, RouterError> {
    let Exchange { gateway, bound, placed } = exchange;
    let model = bound.request.model.as_str();
    let policy = bound.route.target.retry;
    let most = most_tries(exchange);
    let mut walk = Walk { exchange, held: None, last: ErrorKind::ConnectFailed, deaths: 0, reason: "" };
    gateway.retry_budget.request(gateway.clock.now());
    let mut missing = Missing::default();
    let mut anew: Decision;
    let mut turns = Turns::of(&placed.decision.picks, policy.is_some());
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
            gateway.metrics.retry(model, walk.reason);
        }
        missing.mind_whole(pick, placed, trail);
        let others = number + 1 < most;
        let phase = match attempt(exchange, pick, trail).await {
            Ok(answer) => match walk.take_answer(answer, others, trail) {
                ControlFlow::Break(answer) => return Ok(answer),
                ControlFlow::Continue(phase) => phase,
            },
            Err(failure) => match walk.take_failure(&failure, trail) {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(phase) => phase,
            },
        };
        if missing.note(pick, phase) && others {
            // The other picks count on the same prefill endpoint, and the last try must not need one.
            let last = missing.prefills >= FEW_PREFILLS || number + 2 == most;
            match place::without(exchange, &missing.indices, last) {
                Some(decision) => anew = decision,
                None if policy.is_some() => continue,
                None => break,
            }
            turns = Turns::of(&anew.picks, policy.is_some());
        }
    }
    // An engine's own answer, with its Retry-After, tells the client more than ours.
    walk.held.ok_or_else(|| walk.last.into())
}

/// How often a request may be tried.
fn most_tries(exchange: Exchange<'_, '_>) -> usize {
    let Exchange { gateway, bound, placed } = exchange;
    let limits = &gateway.limits;
    match bound.route.target.retry {
        // Where the target asks for more attempts than there are picks, the first have another turn.
        Some(policy) => (policy.attempts.saturating_add(1) as usize).min(MOST_TRIES),
        // Pairs are made anew where a prefill endpoint fails, and what it falls back to is a try too.
        None if placed.is_split() => match limits.pd_fallback {
            PdFallback::Off => limits.max_attempts,
            PdFallback::Aggregated => limits.max_attempts.max(2),
        },
        None => limits.max_attempts.min(placed.decision.picks.len()),
    }
}

/// What the tries so far have left.
struct Walk<'g, 'r> {
    exchange: Exchange<'g, 'r>,
    /// The last answer that another endpoint might better.
    held: Option<Answer<'g>>,
    last: ErrorKind,
    deaths: u32,
    /// Why the next try is made.
    reason: &'static str,
}

impl<'g> Walk<'g, '_> {
    /// Ends the walk with an answer for the client, or goes on from an endpoint that did not do its `Phase`.
    fn take_answer(
        &mut self,
        answer: Answer<'g>,
        others: bool,
        trail: &mut Trail<'_>,
    ) -> ControlFlow<Answer<'g>, Phase> {
        let Exchange { gateway, bound, .. } = self.exchange;
        let status = answer.header.status.as_u16();
        let (endpoint, phase) = (&answer.running.endpoint, answer.running.phase);
        answered(gateway, bound.request.model.as_str(), endpoint, phase, status, trail);
        if !others || !may_retry(gateway, endpoint, status) {
            return ControlFlow::Break(answer);
        }
        self.reason = "status";
        self.held = Some(answer);
        ControlFlow::Continue(phase)
    }

    fn take_failure(&mut self, failure: &Failure, trail: &mut Trail<'_>) -> ControlFlow<(), Phase> {
        let Exchange { gateway, bound, .. } = self.exchange;
        let model = bound.request.model.as_str();
        self.reason = failed(gateway, model, failure, trail);
        let limit = bound.route.timeout.unwrap_or(gateway.limits.first_byte_timeout);
        self.last = kind_of(&failure.what, limit);
        match failure.what {
            Fault::Leg(LegError::Connect) | Fault::NoTransferParams => {}
            // Decision D8: a slow engine is left for another one only where the target asks for it.
            Fault::Leg(LegError::FirstByte) if bound.route.target.retry.is_some() => {}
            Fault::Leg(LegError::FirstByte) => return ControlFlow::Break(()),
            Fault::Leg(_) => {
                self.deaths += 1;
                if self.deaths >= MOST_DEATHS {
                    gateway.metrics.retry_denied(model, "second_death");
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(failure.phase)
    }
}

/// Candidates of a split target that could not be had.
#[derive(Default)]
struct Missing {
    indices: SmallVec<[usize; 4]>,
    /// How many of them were to prefill.
    prefills: usize,
    whole: bool,
}

impl Missing {
    /// Says once that an endpoint gets all of a request that was to be split.
    fn mind_whole(&mut self, pick: &Pick, placed: &Placed, trail: &mut Trail<'_>) {
        if !self.whole && pick.prefill.is_none() && placed.is_split() {
            self.whole = true;
            trail.fell_back("prefill_failed");
        }
    }

    /// Notes who did not do its `phase`; whether that is a prefill endpoint.
    fn note(&mut self, pick: &Pick, phase: Phase) -> bool {
        let Some(prefill) = &pick.prefill else { return false };
        let failed = phase == Phase::Prefill;
        self.indices.push(if failed { prefill.index } else { pick.index });
        self.prefills += usize::from(failed);
        failed
    }
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

/// An endpoint answered: for the record, the metrics and its health.
pub(crate) fn answered(
    gateway: &Gateway,
    model: &str,
    endpoint: &Endpoint,
    phase: Phase,
    status: u16,
    trail: &mut Trail<'_>,
) {
    trail.attempt_answered(endpoint, phase, status);
    let (result, report) = match status {
        500.. => ("status_5xx", Attempt::Status5xx(status)),
        400.. => ("status_4xx", Attempt::Ok),
        _ => ("ok", Attempt::Ok),
    };
    gateway.metrics.attempt(model, result);
    gateway.state.report_of(endpoint, report);
}

/// An endpoint did not: for the same. Gives the word for it.
pub(crate) fn failed(
    gateway: &Gateway,
    model: &str,
    failure: &Failure,
    trail: &mut Trail<'_>,
) -> &'static str {
    let (result, report) = match &failure.what {
        Fault::Leg(LegError::Connect) => ("connect", Attempt::ConnectFailed),
        Fault::Leg(LegError::FirstByte | LegError::Idle) => ("timeout", Attempt::FirstByteTimeout),
        Fault::Leg(LegError::Died { .. } | LegError::Broken) => ("died", Attempt::DiedAfterSend),
        Fault::Leg(LegError::Garbage) => ("garbage", Attempt::DiedAfterSend),
        // The engine is well, only no part of a pair.
        Fault::NoTransferParams => ("no_transfer_params", Attempt::Ok),
    };
    let meaning = RouterError::from(kind_of(&failure.what, Duration::ZERO));
    trail.attempt_failed(&failure.endpoint, failure.phase, result, &meaning);
    gateway.metrics.attempt(model, result);
    gateway.state.report_of(&failure.endpoint, report);
    result
}

/// What a fault means for the client, `limit` being what an endpoint had to begin its answer.
pub(crate) fn kind_of(fault: &Fault, limit: Duration) -> ErrorKind {
    match fault {
        Fault::Leg(LegError::Connect) => ErrorKind::ConnectFailed,
        Fault::Leg(LegError::FirstByte | LegError::Idle) => ErrorKind::FirstByteTimeout(limit),
        Fault::Leg(LegError::Died { .. } | LegError::Broken) => ErrorKind::UpstreamClosed,
        Fault::Leg(LegError::Garbage) | Fault::NoTransferParams => ErrorKind::BadUpstream,
    }
}
