//! Producer `store-hits`: how much of the prompt each candidate holds, by a store that is asked for each request.
//!
//! The store knows pods and content: the prompt is cut into blocks of `blockSizeToHash` tokens, each named by kthena's
//! hash of its tokens, and a pod holds as many of the leading ones as it is entered for without a hole. Its ranks hold
//! what the pod holds. A partial last block is never looked up.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kvasir_core::{
    BlockLookup, BlockQuery, BoxFuture, Candidates, Completeness, CycleState, DataProducer, InferenceRequest,
    Needs, Plugin, PrefixHit, ProduceError, QueryOwner, TokenSlot,
};
use kvasir_kvcache::kthena_block_hash;
use kvasir_settings::CoordinationMode;
use kvasir_settings::resolved::KvCacheAwareArgs;

use super::prefix_hits::PrefixHits;
use crate::hit_source::{HitSource, Window};
use crate::registry::StoreLookup;

/// Asks the store while the source says so, and the index else.
#[derive(Clone)]
pub struct StoreHits {
    index: PrefixHits,
    lookup: Arc<dyn BlockLookup>,
    source: Arc<HitSource>,
    window: Window,
    block_tokens: u32,
}

impl StoreHits {
    /// The name in metrics.
    pub const NAME: &'static str = "store-hits";

    /// Over an index and a store, with the arguments that say how prompts are cut.
    pub fn new(index: PrefixHits, store: StoreLookup, args: &KvCacheAwareArgs) -> Self {
        Self {
            index,
            lookup: store.lookup,
            source: store.source,
            window: Window::of(args),
            block_tokens: args.block_size_to_hash.max(1),
        }
    }

    /// The hashes of the blocks that are looked up.
    fn hashes(&self, cycle: &CycleState) -> Result<Vec<u64>, ProduceError> {
        let TokenSlot::Ready(tokens) = &cycle.tokens else {
            return Err(ProduceError { producer: Self::NAME, reason: "no_tokens" });
        };
        let blocks = tokens.ids.chunks_exact(self.block_tokens as usize);
        Ok(blocks.take(self.window.blocks(CoordinationMode::Query)).map(kthena_block_hash).collect())
    }

    async fn ask(
        &self,
        request: &InferenceRequest,
        pool: &Candidates,
        cycle: &CycleState,
    ) -> Result<Vec<PrefixHit>, ProduceError> {
        // Content names say nothing of salts, so what was computed under one cannot be told from what was not; and
        // where the engine skips its cache, nobody asks.
        if request.cache_salt.is_some() || request.skips_cache {
            return Ok(vec![PrefixHit::default(); pool.len()]);
        }
        let hashes = self.hashes(cycle)?;
        let pods = Pods::of(pool);
        let held = if hashes.is_empty() {
            Vec::new()
        } else {
            let query = BlockQuery { models: &names(request), hashes: &hashes, owners: &pods.owners };
            let answer = self.lookup.leading_blocks(query).await;
            answer.map_err(|error| ProduceError { producer: Self::NAME, reason: error.as_str() })?
        };
        let most = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        let hit = |pod: &usize| PrefixHit {
            tokens: held.get(*pod).map_or(0, |held| (*held).min(most).saturating_mul(self.block_tokens)),
            predicted_tokens: 0,
            block_tokens: self.block_tokens,
            completeness: Some(Completeness::Partial),
        };
        Ok(pods.of_candidate.iter().map(hit).collect())
    }
}

impl fmt::Debug for StoreHits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHits")
            .field("source", &self.source)
            .field("window", &self.window)
            .field("block_tokens", &self.block_tokens)
            .finish_non_exhaustive()
    }
}

impl Plugin for StoreHits {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl DataProducer for StoreHits {
    fn provides(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn after(&self) -> Needs {
        Needs::TOKENS | self.index.after()
    }

    fn produce<'a>(
        &'a self,
        request: &'a InferenceRequest,
        pool: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        if self.source.mode() == CoordinationMode::Mirror {
            return self.index.produce(request, pool, cycle);
        }
        Box::pin(async move {
            cycle.hits = self.ask(request, pool, cycle).await?;
            Ok(())
        })
    }
}

/// The names under which the blocks may be filed: the engine's, or the adapter's where one is asked for, and the
/// client's where that is another.
fn names(request: &InferenceRequest) -> Vec<&str> {
    let name = request.adapter.as_ref().map_or(request.model.as_str(), |adapter| adapter.as_str());
    let mut names = vec![name];
    if *request.requested_model != *name {
        names.push(&request.requested_model);
    }
    names
}

/// The candidates' pods, each once.
struct Pods<'a> {
    owners: Vec<QueryOwner<'a>>,
    /// For each candidate, which of `owners` it belongs to.
    of_candidate: Vec<usize>,
}

impl<'a> Pods<'a> {
    fn of(pool: &'a Candidates) -> Self {
        let mut owners: Vec<QueryOwner<'a>> = Vec::with_capacity(pool.len());
        let mut places: HashMap<(&str, &str), usize> = HashMap::with_capacity(pool.len());
        let of_candidate = pool
            .all()
            .iter()
            .map(|candidate| {
                let id = &candidate.endpoint.id;
                *places.entry((&id.namespace, &id.pod)).or_insert_with(|| {
                    let started_at = candidate.endpoint.started_at;
                    owners.push(QueryOwner { pod: &id.pod, namespace: &id.namespace, started_at });
                    owners.len() - 1
                })
            })
            .collect();
        Self { owners, of_candidate }
    }
}

#[cfg(test)]
mod tests;
