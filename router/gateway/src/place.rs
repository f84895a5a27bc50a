//! Who takes it: freeze the candidates, gather, decide.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    Candidates, CycleState, Decision, ErrorKind, InferenceRequest, Phase, Pick, Prompt, RequestKind, Role,
    RouterError, ScheduleError, TokenSlot,
};
use kvasir_scheduler::Scheduler;
use kvasir_settings::resolved::PdFallback;
use kvasir_state::Resolved;

use crate::Gateway;
use crate::connector::Exchange;
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
    /// Why a decode endpoint gets all of a request that was to be split.
    pub fallback: Option<&'static str>,
    /// Gathering.
    pub gather: Duration,
    /// Deciding.
    pub decide: Duration,
}

impl Placed {
    /// Whether prompt and answer are for two endpoints.
    pub(crate) fn is_split(&self) -> bool {
        self.decision.picks.first().is_some_and(|pick| pick.prefill.is_some())
    }
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
    let (decision, fallback) =
        decide(gateway, &scheduler, &cycle, &mut pool, request, route).map_err(refusal)?;
    let decided = gateway.clock.now();
    let gather = gathered.duration_since(begun);
    let decide = decided.duration_since(gathered);
    gateway.metrics.decided(request.model.as_str(), gather, decide);
    Ok(Placed { scheduler, cycle: Arc::new(cycle), pool, decision, fallback, gather, decide })
}

/// What a client is told where nobody can be chosen.
fn refusal(error: ScheduleError) -> ErrorKind {
    let reason = match error {
        ScheduleError::NoCandidates => "no candidate is left",
        ScheduleError::AllFiltered(filter) => {
            return ErrorKind::Overloaded { filter, retry_after: RETRY_AFTER };
        }
        ScheduleError::NoDecode => "the model has no decode endpoint in service",
        ScheduleError::NoPair => "the model has no pair of a prefill and a decode endpoint in service",
    };
    ErrorKind::NoEndpoint { reason, retry_after: RETRY_AFTER }
}

/// The ranked picks: pairs where the target keeps prefill and decode apart and there is something to decode.
fn decide(
    gateway: &Gateway,
    scheduler: &Scheduler,
    cycle: &CycleState,
    pool: &mut Candidates,
    request: &InferenceRequest,
    route: &Resolved,
) -> Result<(Decision, Option<&'static str>), ScheduleError> {
    let rng = &mut rand::rng();
    let Some(split) = &route.target.disaggregation else {
        return scheduler.decide(cycle, pool, rng).map(|decision| (decision, None));
    };
    if !generates(request.kind) {
        return decide_whole(scheduler, cycle, pool, &[]).map(|decision| (decision, None));
    }
    if split.connector.hands_over_params() && has_several_prompts(request) {
        return decide_whole(scheduler, cycle, pool, &[]).map(|decision| (decision, Some("several_prompts")));
    }
    match scheduler.decide_pairs(cycle, pool, split.group_key.as_deref(), rng) {
        Ok(decision) => Ok((decision, None)),
        Err(ScheduleError::NoDecode) => Err(ScheduleError::NoDecode),
        Err(_) if gateway.limits.pd_fallback == PdFallback::Aggregated => {
            decide_whole(scheduler, cycle, pool, &[]).map(|decision| (decision, Some("no_pair")))
        }
        Err(error) => Err(error),
    }
}

/// Another decision on what was gathered, for a request whose prompt was not computed: without the candidates `missing`,
/// and where that leaves no pair, or the try is to be the `last`, without prefill apart, if that is allowed.
pub(crate) fn without(exchange: Exchange<'_, '_>, missing: &[usize], last: bool) -> Option<Decision> {
    let Exchange { gateway, bound, placed } = exchange;
    let split = bound.route.target.disaggregation.as_ref()?;
    let falls_back = gateway.limits.pd_fallback == PdFallback::Aggregated;
    let (scheduler, cycle) = (&placed.scheduler, &placed.cycle);
    let mut pool = placed.pool.clone();
    if !(last && falls_back) {
        let mut index = 0..;
        pool.begin_phase(Phase::Whole, |_| index.next().is_some_and(|index| !missing.contains(&index)));
        let pairs = scheduler.decide_pairs(cycle, &mut pool, split.group_key.as_deref(), &mut rand::rng());
        if let Ok(decision) = pairs {
            return Some(decision);
        }
    }
    falls_back.then(|| decide_whole(scheduler, cycle, &mut pool, missing).ok()).flatten()
}

/// Ranks the decode endpoints, those `missing` apart, for a request that one of them gets whole.
fn decide_whole(
    scheduler: &Scheduler,
    cycle: &CycleState,
    pool: &mut Candidates,
    missing: &[usize],
) -> Result<Decision, ScheduleError> {
    let mut index = 0..;
    pool.begin_phase(Phase::Whole, |candidate| {
        let is_missing = index.next().is_some_and(|index| missing.contains(&index));
        candidate.endpoint.role == Role::Decode && !is_missing
    });
    scheduler.decide(cycle, pool, &mut rand::rng()).map_err(|error| match error {
        ScheduleError::NoCandidates => ScheduleError::NoDecode,
        other => other,
    })
}

/// Whether a request has an answer that is generated after its prompt, by an API whose bodies we know.
fn generates(kind: RequestKind) -> bool {
    matches!(
        kind,
        RequestKind::Chat | RequestKind::Completions | RequestKind::Responses | RequestKind::Messages
    )
}

/// Whether one call brings several prompts. vLLM's answer to it has the parameters of the first prompt's cache alone, and a
/// decode engine would fetch that one for all of them.
fn has_several_prompts(request: &InferenceRequest) -> bool {
    match &request.prompt {
        Prompt::Text(span) => request.body.get(span.clone()).is_some_and(kvasir_wire::are_several_prompts),
        _ => false,
    }
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
        fallback: None,
        gather: Duration::ZERO,
        decide: Duration::ZERO,
    })
}
