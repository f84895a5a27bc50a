//! `prefix-cache`: prefers endpoints that this router has sent the same prompt text to before.
//!
//! The flat prompt is hashed in blocks of bytes, each hash covering what is before it (see
//! [`text_hashes`](crate::producers::text_hashes)). Hashes are remembered for an endpoint when an answer from it
//! was relayed to its end. `score = trunc(matched / blocks x 100)`; 0 for an endpoint without a match, no opinion
//! for a prompt without text. Needs no tokenizer and no engine events.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `blockSizeToHash` | 64 | bytes in a block |
//! | `maxBlocksToMatch` | 128 | blocks looked at; the rest of the prompt is not |
//! | `maxHashCacheSize` | 50000 | hashes remembered for each endpoint |
//! | `topKMatches` | 5 | endpoints that get more than 0; chance decides at the cut |
//!
//! ```yaml
//! scheduler:
//!   pluginConfig:
//!     - name: prefix-cache
//!       args: {blockSizeToHash: 64, maxBlocksToMatch: 128, maxHashCacheSize: 50000, topKMatches: 5}
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: prefix-cache, weight: 1}
//! ```

mod recent;
mod store;

use std::sync::Arc;

use kvasir_core::{
    Candidates, CycleState, Endpoint, EndpointId, InFlightCost, Needs, PlacementObserver, Plugin,
    ScheduleMeter, Scorer, Scores, Usage,
};
use kvasir_settings::resolved::PrefixCacheArgs;
use xxhash_rust::xxh64::xxh64;

use self::store::PrefixStore;

/// The scorer, which is also the observer that teaches it.
pub struct PrefixCache {
    store: PrefixStore,
    top_k: usize,
    meter: Arc<dyn ScheduleMeter>,
}

impl PrefixCache {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "prefix-cache";

    /// With its arguments; match ratios and evictions go to `meter`.
    pub fn new(args: &PrefixCacheArgs, meter: Arc<dyn ScheduleMeter>) -> Self {
        Self { store: PrefixStore::new(args.max_hash_cache_size), top_k: args.top_k_matches, meter }
    }

    /// Hashes remembered now, over all endpoints.
    pub fn entries(&self) -> usize {
        self.store.entries()
    }

    /// Forgets an endpoint that is gone or has lost its cache. Does not count as an eviction.
    pub fn forget(&self, endpoint: &EndpointId) {
        self.store.forget(endpoint);
    }
}

impl std::fmt::Debug for PrefixCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixCache")
            .field("store", &self.store)
            .field("top_k", &self.top_k)
            .finish_non_exhaustive()
    }
}

impl Plugin for PrefixCache {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for PrefixCache {
    fn needs(&self) -> Needs {
        Needs::TEXT_HASHES
    }

    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        let hashes = cycle.text_hashes.as_slice();
        if hashes.is_empty() {
            return;
        }
        let owners = pool.kept().map(|(index, candidate)| (index, &candidate.endpoint.id));
        let mut matched = self.store.longest(hashes, owners);
        // At the cut chance decides; the request's id stands in for it, so that scoring stays repeatable.
        let chance = xxh64(cycle.request_id.as_str().as_bytes(), 0);
        matched.sort_unstable_by_key(|(index, length)| {
            (std::cmp::Reverse(*length), xxh64(&index.to_le_bytes(), chance))
        });
        matched.truncate(self.top_k);

        let share = |length: usize| length as f64 / hashes.len() as f64;
        super::fill(pool, out, |_, _| Some(0.0));
        for (index, length) in &matched {
            if let Some(slot) = out.get_mut(*index) {
                *slot = Some((share(*length) * 100.0).trunc());
            }
        }
        let best = matched.first().map_or(0.0, |(_, length)| share(*length));
        self.meter.match_ratio(&cycle.model, Self::NAME, best);
    }
}

impl PlacementObserver for PrefixCache {
    fn dispatched(&self, _: &CycleState, _: &Endpoint, _: InFlightCost) {}

    fn completed(&self, cycle: &CycleState, endpoint: &Endpoint, _: Option<&Usage>) {
        let evicted = self.store.add(&endpoint.id, &cycle.text_hashes);
        if evicted > 0 {
            self.meter.prefix_evicted(&cycle.model, evicted);
        }
    }

    fn failed(&self, _: &CycleState, _: &Endpoint) {}
}

#[cfg(test)]
mod tests;
