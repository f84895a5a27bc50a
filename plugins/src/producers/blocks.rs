//! Producer `blocks`: the chained hashes of the prompt's full blocks, for every block size in use.

use std::fmt;
use std::sync::Arc;

use kvasir_core::{
    BlockIndex, BoxFuture, CacheScope, Candidates, CycleState, DataProducer, InferenceRequest, Needs, Plugin,
    ProduceError, TokenSlot,
};
use kvasir_kvcache::hash;

/// Hashes once for each distinct block size among the live owners of the model, within the adapter and the cache
/// salt of the request.
#[derive(Clone)]
pub struct Blocks {
    index: Arc<dyn BlockIndex>,
}

impl Blocks {
    /// The name in metrics.
    pub const NAME: &'static str = "blocks";

    /// With the index that knows the block sizes.
    pub fn new(index: Arc<dyn BlockIndex>) -> Self {
        Self { index }
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").finish_non_exhaustive()
    }
}

impl Plugin for Blocks {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl DataProducer for Blocks {
    fn provides(&self) -> Needs {
        Needs::BLOCKS
    }

    fn after(&self) -> Needs {
        Needs::TOKENS
    }

    fn produce<'a>(
        &'a self,
        request: &'a InferenceRequest,
        _: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            let TokenSlot::Ready(tokenized) = &cycle.tokens else {
                return Err(ProduceError { producer: Self::NAME, reason: "no_tokens" });
            };
            let scope = CacheScope { adapter: request.adapter.clone(), salt: request.cache_salt.clone() };
            let sizes = self.index.block_sizes(&request.model);
            cycle.chains =
                sizes.iter().map(|size| hash::chain(&scope, *size, &tokenized.ids, None)).collect();
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Index, pool_of, request};
    use kvasir_core::{TokenSource, Tokenized};
    use std::time::Duration;

    fn tokens(count: u32) -> TokenSlot {
        TokenSlot::Ready(Tokenized {
            ids: (0..count).collect(),
            source: TokenSource::Given,
            took: Duration::ZERO,
            whole: true,
        })
    }

    async fn chains(request: &InferenceRequest, tokens: TokenSlot) -> Result<CycleState, ProduceError> {
        let mut cycle = CycleState::new(request);
        cycle.tokens = tokens;
        let index = Index { sizes: vec![16, 64], ..Index::default() };
        Blocks::new(Arc::new(index)).produce(request, &pool_of([]), &mut cycle).await.map(|()| cycle)
    }

    #[tokio::test]
    async fn full_blocks_are_hashed_for_every_size() {
        let cycle = chains(&request(), tokens(100)).await.unwrap();
        let shape: Vec<_> =
            cycle.chains.iter().map(|chain| (chain.block_size.tokens(), chain.hashes.len())).collect();
        assert_eq!(shape, [(16, 6), (64, 1)]);
        assert_eq!(chains(&request(), TokenSlot::Empty).await.unwrap_err().reason, "no_tokens");
    }

    #[tokio::test]
    async fn adapter_and_salt_are_part_of_the_hash() {
        let plain = request();
        let adapted = InferenceRequest { adapter: Some("red".into()), ..request() };
        let salted = InferenceRequest { cache_salt: Some("s".into()), ..request() };
        let mut firsts = Vec::new();
        for request in [&plain, &adapted, &salted] {
            firsts.push(chains(request, tokens(16)).await.unwrap().chains[0].hashes[0]);
        }
        assert!(firsts[0] != firsts[1] && firsts[0] != firsts[2] && firsts[1] != firsts[2]);
    }
}
