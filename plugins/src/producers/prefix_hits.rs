//! Producer `prefix_hits`: how much of the prompt each candidate holds.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kvasir_core::{
    BlockIndex, BoxFuture, Candidates, CycleState, DataProducer, InferenceRequest, Needs, OwnerSlot, Plugin,
    PrefixHit, ProduceError,
};

/// Walks the index once for all candidates. Memory only.
#[derive(Clone)]
pub struct PrefixHits {
    index: Arc<dyn BlockIndex>,
}

impl PrefixHits {
    /// The name in metrics.
    pub const NAME: &'static str = "prefix-hits";

    /// Over an index.
    pub fn new(index: Arc<dyn BlockIndex>) -> Self {
        Self { index }
    }
}

impl fmt::Debug for PrefixHits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixHits").finish_non_exhaustive()
    }
}

impl Plugin for PrefixHits {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl DataProducer for PrefixHits {
    fn provides(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn after(&self) -> Needs {
        Needs::BLOCKS
    }

    fn produce<'a>(
        &'a self,
        request: &'a InferenceRequest,
        pool: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            let owners: Vec<OwnerSlot> = pool.all().iter().map(|candidate| candidate.endpoint.slot).collect();
            let mut hits = vec![PrefixHit::default(); owners.len()];
            self.index.walk(&request.model, &cycle.chains, &owners, &mut hits);
            average_unpinned(pool, &mut hits);
            cycle.hits = hits;
            Ok(())
        })
    }
}

/// Where a request cannot be pinned to a rank, the engine chooses one: each rank of such a pod counts with the
/// mean over its ranks (decision D3).
fn average_unpinned(pool: &Candidates, hits: &mut [PrefixHit]) {
    let unpinned = |index: usize| {
        let endpoint = &pool.all().get(index)?.endpoint;
        (!endpoint.pin_rank).then_some((&endpoint.id.namespace, &endpoint.id.pod, endpoint.id.port))
    };
    let has_ranks = |index: usize| {
        pool.all().get(index).is_some_and(|candidate| candidate.endpoint.id.rank > 0)
            && unpinned(index).is_some()
    };
    if !(0..hits.len()).any(has_ranks) {
        return;
    }
    let mut sums: HashMap<_, (u64, [u64; 3])> = HashMap::new();
    for (index, hit) in hits.iter().enumerate() {
        if let Some(pod) = unpinned(index) {
            let (ranks, [tokens, predicted, offloaded]) = sums.entry(pod).or_default();
            *ranks += 1;
            *tokens += u64::from(hit.tokens);
            *predicted += u64::from(hit.predicted_tokens);
            *offloaded += u64::from(hit.offloaded_tokens);
        }
    }
    for (index, hit) in hits.iter_mut().enumerate() {
        if let Some((ranks, sums)) = unpinned(index).and_then(|pod| sums.get(&pod)) {
            // A mean of `u32` values is one.
            let [tokens, predicted, offloaded] = sums.map(|sum| (sum / ranks) as u32);
            *hit = PrefixHit { tokens, predicted_tokens: predicted, offloaded_tokens: offloaded, ..*hit };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Index, endpoint, pool_of, request};
    use kvasir_core::{Candidate, Endpoint, EndpointId, Load};

    async fn tokens_held(pool: &Candidates, held: &[(u32, u32)]) -> Vec<u32> {
        let index = Index { held: held.iter().copied().collect(), ..Index::default() };
        let request = request();
        let mut cycle = CycleState::new(&request);
        PrefixHits::new(Arc::new(index)).produce(&request, pool, &mut cycle).await.unwrap();
        cycle.hits.iter().map(|hit| hit.tokens).collect()
    }

    #[tokio::test]
    async fn hits_are_aligned_with_the_candidates_dropped_ones_included() {
        let mut pool = pool_of([Load::default(); 4]);
        pool.retain(|candidate| candidate.endpoint.slot.0 > 0);
        assert_eq!(tokens_held(&pool, &[(0, 16), (3, 48)]).await, [16, 0, 0, 48]);
    }

    #[tokio::test]
    async fn ranks_that_cannot_be_pinned_count_with_their_mean() {
        let rank = |slot, pod: &str, rank, pin_rank| {
            let id = EndpointId::new("default", pod, 8000, rank);
            let endpoint = Arc::new(Endpoint { id, pin_rank, ..endpoint(slot) });
            Candidate { endpoint, load: Load::default() }
        };
        let pool = Candidates::new(vec![
            rank(0, "free", 0, false),
            rank(1, "free", 1, false),
            rank(2, "pinned", 0, true),
            rank(3, "pinned", 1, true),
            rank(4, "single", 0, false),
        ]);
        let held = tokens_held(&pool, &[(0, 320), (2, 320), (4, 64)]).await;
        assert_eq!(held, [160, 160, 320, 0, 64]);
    }
}
