//! Who takes it: freeze the candidates, gather, decide.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    Candidates, CycleState, Decision, ErrorKind, InferenceRequest, Pick, RouterError, ScheduleError,
    TokenSlot,
};
use kvasir_scheduler::Scheduler;
use kvasir_state::Resolved;

use crate::Gateway;
use crate::resolve::Bound;
use crate::settle::Trail;

/// When a client may come back to a model that has no endpoint now: one active probe later.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The decision with what it rests on.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Who decided, and is told how it ends.
    pub scheduler: Arc<Scheduler>,
    /// What was gathered.
    pub cycle: Arc<CycleState>,
    /// The candidates as they were frozen.
    pub pool: Candidates,
    /// Ranked picks and scores.
    pub decision: Decision,
    /// Gathering.
    pub gather: Duration,
    /// Deciding.
    pub decide: Duration,
}

/// Places a bound request.
pub(crate) async fn place(
    gateway: &Gateway,
    bound: &Bound,
    trail: &mut Trail<'_>,
) -> Result<Placed, RouterError> {
    let placed = match &bound.pinned {
        Some(holder) => pinned(gateway, &bound.request, holder)?,
        None => choose(gateway, &bound.request, &bound.route).await?,
    };
    trail.placed(&placed);
    Ok(placed)
}

/// Gathers and decides; also the dry run of explain.
pub(crate) async fn choose(
    gateway: &Gateway,
    request: &InferenceRequest,
    route: &Resolved,
) -> Result<Placed, RouterError> {
    let mut pool = gateway.state.candidates(route);
    if pool.is_empty() {
        return Err(ErrorKind::NoEndpoint {
            reason: "the model has no endpoint in service",
            retry_after: RETRY_AFTER,
        }
        .into());
    }
    let scheduler = gateway.scheduling.scheduler();
    let begun = gateway.clock.now();
    let cycle = scheduler.gather(request, &pool).await;
    let gathered = gateway.clock.now();
    match &cycle.tokens {
        TokenSlot::Ready(tokens) => {
            gateway.metrics.tokenized(request.model.as_str(), tokens.source.as_str(), tokens.took)
        }
        TokenSlot::Failed(error) => gateway.metrics.untokenized(request.model.as_str(), error.label()),
        TokenSlot::Empty => {}
    }
    let decision = scheduler.decide(&cycle, &mut pool, &mut rand::rng()).map_err(|error| match error {
        ScheduleError::NoCandidates => {
            ErrorKind::NoEndpoint { reason: "no candidate is left", retry_after: RETRY_AFTER }
        }
        ScheduleError::AllFiltered(filter) => ErrorKind::Overloaded { filter, retry_after: RETRY_AFTER },
        ScheduleError::NoDecode => ErrorKind::NoEndpoint {
            reason: "the model has no decode endpoint in service",
            retry_after: RETRY_AFTER,
        },
        ScheduleError::NoPair => ErrorKind::NoEndpoint {
            reason: "the model has no pair of a prefill and a decode endpoint in service",
            retry_after: RETRY_AFTER,
        },
    })?;
    let decided = gateway.clock.now();
    let gather = gathered.duration_since(begun);
    let decide = decided.duration_since(gathered);
    gateway.metrics.decided(request.model.as_str(), gather, decide);
    Ok(Placed { scheduler, cycle: Arc::new(cycle), pool, decision, gather, decide })
}

/// A decision with one possible outcome.
fn pinned(
    gateway: &Gateway,
    request: &InferenceRequest,
    holder: &kvasir_core::EndpointId,
) -> Result<Placed, RouterError> {
    let endpoint = gateway
        .state
        .endpoint(holder)
        .ok_or_else(|| ErrorKind::UnknownResponse("held by an endpoint that is gone".into()))?;
    let load = gateway.state.load(holder);
    let pool = Candidates::new(vec![kvasir_core::Candidate { endpoint: Arc::clone(&endpoint), load }]);
    let decision = Decision {
        picks: vec![Pick { index: 0, endpoint, prefill: None, total: 0.0 }],
        ..Decision::default()
    };
    Ok(Placed {
        scheduler: gateway.scheduling.scheduler(),
        cycle: Arc::new(CycleState::new(request)),
        pool,
        decision,
        gather: Duration::ZERO,
        decide: Duration::ZERO,
    })
}
