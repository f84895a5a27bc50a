//! Scheduling where one endpoint does both prefill and decode.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    Candidates, Clock, CycleState, DataProducer, Decision, Endpoint, InFlightCost, InferenceRequest, Needs,
    ScheduleError, ScheduleMeter, Usage,
};
use rand::Rng;

use crate::prepare::Plan;
use crate::profile::Profile;

/// Gathers once for each request, decides without waiting, and tells the observers where requests went.
///
/// A pool of one endpoint is treated like any other: what is gathered for it also feeds the observers, the proof
/// of the token counts and the comparison of predicted with actual cached tokens.
#[derive(Clone)]
pub struct Scheduler {
    profile: Profile,
    plan: Plan,
    deadline: Duration,
    meter: Arc<dyn ScheduleMeter>,
    clock: Arc<dyn Clock>,
}

impl Scheduler {
    /// A scheduler that runs those of `producers` that the profile's scorers or `extra_needs` ask for.
    /// `extra_needs` is what observers and records read beyond the scorers. `deadline` bounds all gathering.
    pub fn new(
        profile: Profile,
        producers: Vec<Arc<dyn DataProducer>>,
        deadline: Duration,
        meter: Arc<dyn ScheduleMeter>,
        clock: Arc<dyn Clock>,
        extra_needs: Needs,
    ) -> Self {
        let plan = Plan::new(producers, profile.needs() | extra_needs);
        if !plan.is_complete() {
            tracing::error!(?plan, "some data that scorers need has no producer; they give no opinion");
        }
        if profile.scorers.is_empty() {
            tracing::warn!(
                "no scorer is enabled: every kept endpoint is as good as the next, chance decides"
            );
        }
        Self { profile, plan, deadline, meter, clock }
    }

    /// Whether gathering asks for the prompt's tokens.
    pub fn uses_tokens(&self) -> bool {
        self.plan.provides().contains(Needs::TOKENS)
    }

    /// The parts of a run.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Everything the decision reads, within the deadline. What could not be had is absent, never an error.
    ///
    /// The prefix hits are aligned with `pool`: decide with the same pool.
    pub async fn gather(&self, request: &InferenceRequest, pool: &Candidates) -> CycleState {
        let started = self.clock.now();
        let mut cycle = CycleState::new(request);
        self.plan.run(request, pool, &mut cycle, self.deadline, &*self.meter).await;
        cycle.gathered_in = self.clock.now().saturating_duration_since(started);
        cycle
    }

    /// The ranked picks. Pure; leaves in `pool` what the filters kept.
    ///
    /// # Errors
    /// As [`Profile::run`].
    pub fn decide(
        &self,
        cycle: &CycleState,
        pool: &mut Candidates,
        rng: &mut dyn Rng,
    ) -> Result<Decision, ScheduleError> {
        self.profile.run(cycle, pool, rng, &*self.meter, &*self.clock)
    }

    /// An attempt is about to be sent to `endpoint`.
    pub fn dispatched(&self, cycle: &CycleState, endpoint: &Endpoint, cost: InFlightCost) {
        for observer in &self.profile.observers {
            observer.dispatched(cycle, endpoint, cost);
        }
    }

    /// The first byte of the attempt's answer is here, `took` after it was dispatched at this `cost`.
    pub fn first_byte(&self, cycle: &CycleState, endpoint: &Endpoint, cost: InFlightCost, took: Duration) {
        for observer in &self.profile.observers {
            observer.first_byte(cycle, endpoint, cost, took);
        }
    }

    /// The attempt's answer was relayed to its end.
    pub fn completed(&self, cycle: &CycleState, endpoint: &Endpoint, usage: Option<&Usage>) {
        for observer in &self.profile.observers {
            observer.completed(cycle, endpoint, usage);
        }
    }

    /// The attempt failed or was cancelled.
    pub fn failed(&self, cycle: &CycleState, endpoint: &Endpoint) {
        for observer in &self.profile.observers {
            observer.failed(cycle, endpoint);
        }
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("profile", &self.profile)
            .field("plan", &self.plan)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
