//! One running attempt at one endpoint.

use std::sync::Arc;
use std::time::Instant;

use kvasir_core::{CycleState, Endpoint, InFlightCost, Phase, Usage};
use kvasir_scheduler::Scheduler;
use kvasir_state::InFlight;

use crate::Gateway;
use crate::place::Placed;

/// Counts at its endpoint from the beginning, and is told to the observers once its request goes out. Dropping it after
/// that without [`Running::completed`] tells them that it failed.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where it runs.
    pub endpoint: Arc<Endpoint>,
    /// What the endpoint does.
    pub phase: Phase,
    /// Cached tokens expected where the prompt is computed.
    pub predicted: u32,
    scheduler: Arc<Scheduler>,
    cycle: Arc<CycleState>,
    cost: InFlightCost,
    in_flight: InFlight,
    /// When its request went out.
    sent: Option<Instant>,
    settled: bool,
}

impl Running {
    /// Takes its place at candidate `index`. An endpoint that only decodes has nothing to prefill, and counts as decoding
    /// from the beginning: its share of memory and time is spoken for while the prompt is still computed elsewhere.
    pub(crate) fn begin(
        gateway: &Gateway,
        placed: &Placed,
        index: usize,
        endpoint: &Arc<Endpoint>,
        phase: Phase,
    ) -> Self {
        let predicted = placed.cycle.reusable_tokens(index);
        let cost = cost_of(&placed.cycle, index, predicted, phase);
        let mut in_flight = gateway.state.begin(endpoint, cost);
        if phase == Phase::Decode {
            in_flight.first_byte();
        }
        Self {
            endpoint: Arc::clone(endpoint),
            phase,
            predicted,
            scheduler: Arc::clone(&placed.scheduler),
            cycle: Arc::clone(&placed.cycle),
            cost,
            in_flight,
            sent: None,
            settled: false,
        }
    }

    /// Its request goes out now.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
        self.scheduler.dispatched(&self.cycle, &self.endpoint, self.cost);
    }

    /// The endpoint is past the prefill. Observers learn from good answers only: a refusal comes early.
    pub(crate) fn first_byte(&mut self, now: Instant, good: bool) {
        self.in_flight.first_byte();
        if let Some(sent) = self.sent.filter(|_| good) {
            let took = now.saturating_duration_since(sent);
            self.scheduler.first_byte(&self.cycle, &self.endpoint, self.cost, took);
        }
    }

    /// The answer was relayed to its end.
    pub(crate) fn completed(mut self, usage: Option<&Usage>) {
        self.settled = true;
        self.scheduler.completed(&self.cycle, &self.endpoint, usage);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.sent.is_some() && !self.settled {
            self.scheduler.failed(&self.cycle, &self.endpoint);
        }
    }
}

/// What the request costs candidate `index`, of which `reusable` prompt tokens are there already.
fn cost_of(cycle: &CycleState, index: usize, reusable: u32, phase: Phase) -> InFlightCost {
    let hit = cycle.hits.get(index).copied().unwrap_or_default();
    let prefill_tokens = match phase {
        Phase::Decode => 0,
        Phase::Whole | Phase::Prefill => cycle.prompt_tokens.saturating_sub(reusable),
    };
    InFlightCost { prefill_tokens, confirmed_tokens: hit.tokens.saturating_sub(hit.predicted_tokens) }
}
