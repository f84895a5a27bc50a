//! `prefill-cost`: prefers the endpoint where the answer begins soonest for the least new work. The default.
//!
//! The cost of an endpoint is counted in prompt tokens that its engine would prefill in the time a request waits
//! there:
//!
//! ```text
//! cost = 1.5 x uncached           this prompt, minus what the endpoint holds and may reuse
//!      + queued                   uncached tokens of requests there that wait for their first byte
//!      + foreign waiting x typical + foreign running x 32
//!      + decoding x 32            requests there that generate
//!      + 4 x KV shortage          tokens that do not fit into the engine's free KV cache
//! score = 100 x (1 - cost / worst cost)
//! ```
//!
//! Queued and decoding are the requests of this router and of its live peers; foreign ones are those that neither sent.
//! Its own work weighs more than what is queued, because the others pay for it too: a burst of siblings stays
//! together behind the one prefill they share, and spills once the queue costs more than prefilling again.
//! Endpoints within 64 tokens of the cheapest count as equal; the one with fewer requests wins, and among equals
//! chance. So short prompts, and those that share a first block only, spread by load.
//! Without tokens nothing is known to be held, and the estimated length is compared with the load alone.
//!
//! No parameters.
//!
//! ```yaml
//! scheduler:
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: prefill-cost, weight: 1}
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use kvasir_core::{
    Candidates, CycleState, Endpoint, EngineSample, InFlightCost, Load, Needs, PlacementObserver, Plugin,
    Scorer, Scores, Usage,
};

/// What this request's own uncached tokens weigh against queued ones. At 1 a second copy of a 4k prompt is sent
/// elsewhere as soon as the first one is being prefilled (fault RTE-04); far above 1 one endpoint keeps a hot
/// prefix for too long (RTE-01). `tests/placement` is insensitive between 1.25 and 2.
const OWN_WORK_WEIGHT: f64 = 1.5;

/// What one generating request costs a newcomer, in prompt tokens: it takes a place in each engine step and makes
/// it longer, but hardly delays a prefill.
const DECODE_TOKENS: f64 = 32.0;

/// What one token costs for which there is no free KV memory: it comes free as others finish generating, which is
/// slower than prefilling.
const KV_SHORTAGE_WEIGHT: f64 = 4.0;

/// From here on an engine of unknown KV capacity is taken to run short; below it admits without waiting.
const KV_USAGE_HIGH: f64 = 0.9;

/// Differences up to this are not worth concentrating load for: about one engine step.
const NEAR_TIE_TOKENS: f64 = 64.0;

/// Uncached tokens of a request that another router sent, until our own requests have told what is typical.
const TYPICAL_TOKENS: f64 = 512.0;

/// Share of each new request in the typical one: it follows about the last hundred.
const TYPICAL_STEP: f64 = 1.0 / 64.0;

/// The scorer, which is also the observer that learns the size of a typical request, over all models.
#[derive(Debug)]
pub struct PrefillCost {
    /// Bits of an `f64`, tokens.
    typical: AtomicU64,
}

impl PrefillCost {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "prefill-cost";

    /// Knows no requests yet.
    pub fn new() -> Self {
        Self { typical: AtomicU64::new(TYPICAL_TOKENS.to_bits()) }
    }

    fn typical_tokens(&self) -> f64 {
        f64::from_bits(self.typical.load(Ordering::Relaxed))
    }
}

impl Default for PrefillCost {
    fn default() -> Self {
        Self::new()
    }
}

impl Plugin for PrefillCost {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for PrefillCost {
    fn needs(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        let typical = self.typical_tokens();
        super::fill(pool, out, |index, candidate| {
            Some(cost(cycle.prompt_tokens, cycle.reusable_tokens(index), &candidate.load, typical))
        });
        let best = out.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        for (candidate, slot) in pool.all().iter().zip(out.iter_mut()) {
            if let Some(cost) = slot.as_mut().filter(|cost| **cost <= best + NEAR_TIE_TOKENS) {
                *cost = best + NEAR_TIE_TOKENS * crowding(&candidate.load);
            }
        }
        let worst = out.iter().flatten().copied().fold(0.0, f64::max);
        for cost in out.iter_mut().flatten() {
            *cost = if worst > 0.0 { 100.0 * (1.0 - *cost / worst) } else { 100.0 };
        }
    }
}

impl PlacementObserver for PrefillCost {
    fn dispatched(&self, _: &CycleState, _: &Endpoint, cost: InFlightCost) {
        // Of two at the same moment one may be lost: an average can bear that.
        let before = self.typical_tokens();
        let after = before + (f64::from(cost.prefill_tokens) - before) * TYPICAL_STEP;
        self.typical.store(after.to_bits(), Ordering::Relaxed);
    }

    fn completed(&self, _: &CycleState, _: &Endpoint, _: Option<&Usage>) {}

    fn failed(&self, _: &CycleState, _: &Endpoint) {}
}

/// The cost of one endpoint, tokens.
fn cost(prompt_tokens: u32, reusable: u32, load: &Load, typical: f64) -> f64 {
    let uncached = f64::from(prompt_tokens.saturating_sub(reusable));
    let queued = load.prefill_tokens as f64;
    let foreign = load.foreign();
    // Who of the waiting ones is ours cannot be told; while others are there, those are taken to wait.
    let foreign_waiting = load.sample.map_or(0, |sample| sample.waiting).min(foreign);
    let generating = f64::from(load.decoding) + f64::from(foreign - foreign_waiting);
    let shortage =
        load.sample.map_or(0.0, |sample| kv_shortage(f64::from(prompt_tokens) + queued, &sample, typical));
    OWN_WORK_WEIGHT * uncached
        + queued
        + f64::from(foreign_waiting) * typical
        + generating * DECODE_TOKENS
        + shortage * KV_SHORTAGE_WEIGHT
}

/// Tokens of `wanted` for which the engine has no free KV memory. Cached blocks that nobody uses are free memory,
/// but using them takes them, so the whole prompt counts.
fn kv_shortage(wanted: f64, sample: &EngineSample, typical: f64) -> f64 {
    let capacity = f64::from(sample.kv_blocks) * f64::from(sample.block_size);
    if capacity > 0.0 {
        (wanted - capacity * (1.0 - sample.kv_usage)).max(0.0)
    } else {
        typical * ((sample.kv_usage - KV_USAGE_HIGH) / (1.0 - KV_USAGE_HIGH)).max(0.0)
    }
}

/// Grows with the number of requests there, from 0 towards 1.
fn crowding(load: &Load) -> f64 {
    let requests = f64::from(load.in_flight) + f64::from(load.foreign());
    requests / (1.0 + requests)
}

#[cfg(test)]
mod tests;
