//! Producer `store-hits`: how much of the prompt each candidate holds, by a store that is asked for each request.
//!
//! The store knows pods and content: the prompt is cut into blocks of `blockSizeToHash` tokens, each named by kthena's
//! hash of its tokens, and a pod holds as many of the leading ones as it is entered for without a hole. Its ranks hold
//! what the pod holds. A partial last block is never looked up.
//!
//! Where the settings leave it open, the store is asked only about candidates whose content the index does not know:
//! while agents take the place of sidecars pod by pod, each pod counts with what is known of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kvasir_core::{
    BlockLookup, BlockQuery, BoxFuture, Candidate, Candidates, Completeness, CycleState, DataProducer,
    InferenceRequest, Needs, Plugin, PrefixHit, ProduceError, QueryOwner, TokenSlot,
};
use kvasir_kvcache::kthena_block_hash;
use kvasir_settings::CoordinationMode;
use kvasir_settings::resolved::KvCacheAwareArgs;

use super::prefix_hits::PrefixHits;
use crate::hit_source::{HitPolicy, HitSource, Window, is_known};
use crate::registry::StoreLookup;

/// Asks the store where the source says so, and the index else.
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

    /// What the store has of the prompt for each of `candidates`, in tokens, in their order.
    async fn ask<'a>(
        &self,
        request: &InferenceRequest,
        candidates: impl Iterator<Item = &'a Candidate> + Clone,
        cycle: &CycleState,
    ) -> Result<Vec<u32>, ProduceError> {
        let hashes = self.hashes(cycle)?;
        let engines =
            candidates.clone().filter_map(|candidate| candidate.load.sample.map(|sample| sample.block_size));
        let other = engines.into_iter().find(|size| *size > 0 && *size != self.block_tokens);
        self.source.note_size(&request.model, self.block_tokens, other);
        let pods = Pods::of(candidates);
        let held = if hashes.is_empty() {
            Vec::new()
        } else {
            let query = BlockQuery { models: &names(request), hashes: &hashes, owners: &pods.owners };
            let answer = self.lookup.leading_blocks(query).await;
            answer.map_err(|error| ProduceError { producer: Self::NAME, reason: error.as_str() })?
        };
        let most = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        let tokens = |pod: &usize| {
            held.get(*pod).map_or(0, |held| (*held).min(most).saturating_mul(self.block_tokens))
        };
        Ok(pods.of_candidate.iter().map(tokens).collect())
    }

    /// Everybody by the store.
    async fn ask_for_all(
        &self,
        request: &InferenceRequest,
        pool: &Candidates,
        cycle: &CycleState,
    ) -> Result<Vec<PrefixHit>, ProduceError> {
        if !is_askable(request) {
            return Ok(vec![PrefixHit::default(); pool.len()]);
        }
        let hit = |tokens| PrefixHit {
            tokens,
            block_tokens: self.block_tokens,
            completeness: Some(Completeness::Partial),
            ..PrefixHit::default()
        };
        Ok(self.ask(request, pool.all().iter(), cycle).await?.into_iter().map(hit).collect())
    }

    /// Those by the store whose content the index does not know. Of one that the store has nothing of, what was placed
    /// there still counts: perhaps nobody enters its blocks. A store that fails leaves what the index says; lookups
    /// count their failures themselves.
    ///
    /// How far an owner is known stays the index's word, and tells whoever scores which hits are of the store's window.
    async fn ask_for_unknown(&self, request: &InferenceRequest, pool: &Candidates, cycle: &mut CycleState) {
        let unknown: Vec<usize> =
            (0..pool.len()).filter(|index| cycle.hits.get(*index).is_none_or(|hit| !is_known(hit))).collect();
        if unknown.is_empty() || !is_askable(request) {
            return;
        }
        let candidates = unknown.iter().filter_map(|index| pool.all().get(*index));
        let Ok(held) = self.ask(request, candidates, cycle).await else { return };
        for (index, tokens) in unknown.iter().zip(held).filter(|(_, tokens)| *tokens > 0) {
            if let Some(hit) = cycle.hits.get_mut(*index) {
                let completeness = hit.completeness.or(Some(Completeness::Approximate));
                *hit = PrefixHit {
                    tokens,
                    block_tokens: self.block_tokens,
                    completeness,
                    ..PrefixHit::default()
                };
            }
        }
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
        if !self.source.asks_store() {
            return self.index.produce(request, pool, cycle);
        }
        Box::pin(async move {
            if self.source.policy() == HitPolicy::Query {
                cycle.hits = self.ask_for_all(request, pool, cycle).await?;
            } else {
                self.index.produce(request, pool, cycle).await?;
                self.ask_for_unknown(request, pool, cycle).await;
            }
            Ok(())
        })
    }
}

/// Whether the store can say anything of a request: content names say nothing of salts, so what was computed under one
/// cannot be told from what was not; and where the engine skips its cache, nobody asks.
fn is_askable(request: &InferenceRequest) -> bool {
    request.cache_salt.is_none() && !request.skips_cache
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
    fn of(candidates: impl Iterator<Item = &'a Candidate>) -> Self {
        let mut owners: Vec<QueryOwner<'a>> = Vec::with_capacity(candidates.size_hint().0);
        let mut places: HashMap<(&str, &str), usize> = HashMap::with_capacity(owners.capacity());
        let of_candidate = candidates
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
