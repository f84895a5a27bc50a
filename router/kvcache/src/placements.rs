//! Learning from our own placements what engines are about to hold (decision D4, sources d and e).
//!
//! An owner without events gets the prompt's blocks at dispatch and keeps them by last use, up to the engine's
//! KV capacity. When the engine reports how much it reused, what it had lost is dropped before the prompt is
//! entered again. An owner with events gets them for a short while only: real events confirm them, or they end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvasir_core::{CycleState, Endpoint, InFlightCost, OwnerSlot, PlacementObserver, Plugin, Usage};
use parking_lot::Mutex;

use crate::index::{Index, Prediction};

/// How long a prediction lasts for an owner with events: the prefill of a long prompt plus the 2.6 ms an event
/// takes. Longer would keep claims on a pod whose engine refused the request.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(2);

/// Attempts remembered at once. Above it new ones are entered but cannot be corrected or taken back.
const MOST_ATTEMPTS: usize = 65_536;

/// Enters requests at the owners they are sent to. Blocks need [`CycleState::chains`]; without them it does
/// nothing.
pub struct Placements {
    index: Arc<Index>,
    lifetime: Duration,
    running: Mutex<HashMap<(u64, OwnerSlot), Prediction>>,
    lost_blocks: AtomicU64,
    unremembered: AtomicU64,
}

impl std::fmt::Debug for Placements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placements").field("running", &self.running.lock().len()).finish_non_exhaustive()
    }
}

impl Placements {
    /// Enters into `index`; predictions for owners with events last `lifetime` ([`DEFAULT_LIFETIME`]).
    pub fn new(index: Arc<Index>, lifetime: Duration) -> Self {
        Self {
            index,
            lifetime,
            running: Mutex::default(),
            lost_blocks: AtomicU64::new(0),
            unremembered: AtomicU64::new(0),
        }
    }

    /// Blocks that an owner without events was taken to hold and did not reuse.
    pub fn lost_blocks(&self) -> u64 {
        self.lost_blocks.load(Ordering::Relaxed)
    }

    /// Attempts that were not remembered because too many ran at once.
    pub fn unremembered(&self) -> u64 {
        self.unremembered.load(Ordering::Relaxed)
    }

    /// Attempts that run.
    pub fn running(&self) -> usize {
        self.running.lock().len()
    }

    fn finish(&self, cycle: &CycleState, endpoint: &Endpoint) -> Option<Prediction> {
        self.running.lock().remove(&(cycle.number, endpoint.slot))
    }
}

impl Plugin for Placements {
    fn name(&self) -> &'static str {
        "placements"
    }
}

impl PlacementObserver for Placements {
    fn dispatched(&self, cycle: &CycleState, endpoint: &Endpoint, cost: InFlightCost) {
        let walked = cost.confirmed_tokens;
        let Some(prediction) = self.index.predict(endpoint.slot, &cycle.chains, self.lifetime, walked) else {
            return;
        };
        let mut running = self.running.lock();
        if running.len() < MOST_ATTEMPTS {
            running.insert((cycle.number, endpoint.slot), prediction);
        } else {
            self.unremembered.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn completed(&self, cycle: &CycleState, endpoint: &Endpoint, usage: Option<&Usage>) {
        let Some(prediction) = self.finish(cycle, endpoint) else { return };
        if prediction.short_lived {
            return;
        }
        let cached = usage.and_then(|usage| usage.cached_tokens);
        if let Some(cached) = cached.filter(|_| !cycle.skips_cache) {
            // An engine computes at least the last token, so a wholly cached prompt reuses one block less.
            let block = prediction.block_size.tokens();
            let most = (cycle.prompt_tokens.saturating_sub(1) as usize) / block;
            let held = prediction.held_at_most(most);
            let cached = usize::try_from(cached).unwrap_or(usize::MAX);
            let lost = self.index.correct(endpoint.slot, &cycle.chains, held, cached);
            self.lost_blocks.fetch_add(lost as u64, Ordering::Relaxed);
        }
        // The engine frees a request's blocks when it ends, so this is their last use; and whatever it had lost,
        // it has computed now.
        self.index.renew(endpoint.slot, &cycle.chains, prediction, self.lifetime);
    }

    fn failed(&self, cycle: &CycleState, endpoint: &Endpoint) {
        if let Some(prediction) = self.finish(cycle, endpoint) {
            self.index.take_back(endpoint.slot, &cycle.chains, prediction);
        }
    }
}

#[cfg(test)]
mod tests;
