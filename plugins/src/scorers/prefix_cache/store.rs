//! Which prompt hashes each endpoint has seen, bounded per endpoint and in the number of endpoints.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvasir_core::EndpointId;
use parking_lot::{Mutex, RwLock};

use super::recent::Recent;

/// Endpoints remembered at once. Owners say when an endpoint is gone; this bound holds if they do not.
const MAX_ENDPOINTS: usize = 4096;

/// Hashes by endpoint.
///
/// Chains enter last hash first, so within one endpoint an earlier hash of a chain is always at least as recent as
/// a later one and leaves after it. What an endpoint holds of a chain is therefore a prefix of it, which
/// [`longest`](Self::longest) finds by bisection.
#[derive(Debug)]
pub struct PrefixStore {
    capacity: usize,
    seen: RwLock<HashMap<EndpointId, Arc<Seen>>>,
    /// Counts additions, to know which endpoint was quiet for longest.
    turn: AtomicU64,
}

/// One endpoint's hashes.
#[derive(Debug)]
struct Seen {
    recent: Mutex<Recent>,
    last_turn: AtomicU64,
}

impl PrefixStore {
    /// Room for `capacity` hashes of each endpoint.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, seen: RwLock::new(HashMap::new()), turn: AtomicU64::new(0) }
    }

    /// How many leading hashes each owner holds; owners that hold none are left out.
    pub fn longest<'a>(
        &self,
        hashes: &[u64],
        owners: impl Iterator<Item = (usize, &'a EndpointId)>,
    ) -> Vec<(usize, usize)> {
        let seen = self.seen.read();
        owners
            .filter_map(|(index, id)| {
                let recent = seen.get(id)?.recent.lock();
                let length = hashes.partition_point(|hash| recent.contains(*hash));
                (length > 0).then_some((index, length))
            })
            .collect()
    }

    /// Remembers a chain for `endpoint` and says how many hashes had to leave for it.
    pub fn add(&self, endpoint: &EndpointId, chain: &[u64]) -> u64 {
        if chain.is_empty() {
            return 0;
        }
        let seen = self.seen_by(endpoint);
        seen.last_turn.store(self.turn.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut recent = seen.recent.lock();
        chain.iter().rev().map(|hash| u64::from(recent.touch(*hash))).sum()
    }

    /// Forgets everything about `endpoint`.
    pub fn forget(&self, endpoint: &EndpointId) {
        self.seen.write().remove(endpoint);
    }

    /// Hashes remembered in all.
    pub fn entries(&self) -> usize {
        self.seen.read().values().map(|seen| seen.recent.lock().len()).sum()
    }

    fn seen_by(&self, endpoint: &EndpointId) -> Arc<Seen> {
        if let Some(seen) = self.seen.read().get(endpoint) {
            return Arc::clone(seen);
        }
        let mut all = self.seen.write();
        if all.len() >= MAX_ENDPOINTS && !all.contains_key(endpoint) {
            let quiet = all.iter().min_by_key(|(_, seen)| seen.last_turn.load(Ordering::Relaxed));
            if let Some(quiet) = quiet.map(|(id, _)| id.clone()) {
                all.remove(&quiet);
            }
        }
        let new = || Seen { recent: Mutex::new(Recent::new(self.capacity)), last_turn: AtomicU64::new(0) };
        Arc::clone(all.entry(endpoint.clone()).or_insert_with(|| Arc::new(new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    fn id(index: usize) -> EndpointId {
        EndpointId::new("default", format!("pod-{index}"), 8000, 0)
    }

    fn length(store: &PrefixStore, hashes: &[u64], endpoint: usize) -> usize {
        let id = id(endpoint);
        store.longest(hashes, std::iter::once((0, &id))).first().map_or(0, |(_, length)| *length)
    }

    #[test]
    fn the_beginning_of_a_chain_survives() {
        let store = PrefixStore::new(2);
        assert_eq!(store.add(&id(0), &[1, 2, 3]), 1);
        assert_eq!(length(&store, &[1, 2, 3], 0), 2);
        assert_eq!(length(&store, &[1, 2, 3], 1), 0);
        assert_eq!(store.entries(), 2);
        assert_eq!(store.add(&id(0), &[]), 0);
        store.forget(&id(0));
        assert_eq!((store.entries(), length(&store, &[1, 2, 3], 0)), (0, 0));
    }

    #[test]
    fn a_million_unique_prompts_stay_within_the_bound() {
        let store = PrefixStore::new(1000);
        let mut evicted = 0;
        for prompt in 0..250_000_u64 {
            evicted += store.add(&id(0), &[1, prompt * 4 + 2, prompt * 4 + 3, prompt * 4 + 4]);
        }
        assert_eq!(store.entries(), 1000);
        assert_eq!(evicted, 250_000 * 3 + 1 - 1000);
        assert_eq!(length(&store, &[1], 0), 1, "what every prompt begins with stays");
    }

    #[test]
    fn endpoints_that_nobody_forgets_are_bounded_too() {
        let store = PrefixStore::new(4);
        store.add(&id(0), &[1]);
        for index in 1..MAX_ENDPOINTS {
            store.add(&id(index), &[1]);
        }
        store.add(&id(0), &[1]);
        store.add(&id(MAX_ENDPOINTS), &[1]);
        assert_eq!(store.entries(), MAX_ENDPOINTS);
        assert_eq!(length(&store, &[1], 0), 1, "used again, so it is not the quietest");
        assert_eq!(length(&store, &[1], 1), 0);
    }

    proptest! {
        /// Chains of a tree: a hash tells its own prefix, as real ones do.
        #[test]
        fn bisection_finds_what_a_walk_finds(
            capacity in 1_usize..12,
            chains in proptest::collection::vec(proptest::collection::vec(1_u64..3, 1..8), 1..40),
        ) {
            let store = PrefixStore::new(capacity);
            let hashes = |chain: &[u64]| -> Vec<u64> {
                chain.iter().scan(0_u64, |before, step| { *before = *before * 3 + step; Some(*before) }).collect()
            };
            for chain in &chains {
                store.add(&id(0), &hashes(chain));
                for other in &chains {
                    let other = hashes(other);
                    let seen = store.seen_by(&id(0));
                    let recent = seen.recent.lock();
                    let walked = other.iter().take_while(|hash| recent.contains(**hash)).count();
                    let held = other.iter().filter(|hash| recent.contains(**hash)).count();
                    drop(recent);
                    prop_assert_eq!(walked, held);
                    prop_assert_eq!(length(&store, &other, 0), walked);
                }
            }
        }
    }
}
