//! The index as its callers see it: events in, prefix hits out.

mod anchoring;
mod captures;
mod mirror;
mod model;
mod rules;
mod saved;
mod script;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{
    AdapterName, BlockIndex, BlockSize, CacheScope, Clock, Completeness, EngineHash, KvEvent, Medium,
    ModelName, OwnerContent, OwnerSlot, PrefixHit, Stored,
};
use parking_lot::Mutex;

use super::*;
use crate::event::Batch;
use crate::hash::chain;

/// A clock that moves when it is told to.
#[derive(Debug)]
pub(crate) struct TestClock(Mutex<Instant>);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Instant::now())))
    }

    pub(crate) fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        *self.0.lock()
    }
}

pub(crate) fn model() -> ModelName {
    ModelName::from("m")
}

/// An index with exact owners 0 to `owners - 1` of model `m`.
pub(crate) fn index(owners: u32) -> Index {
    let index = Index::default();
    for slot in 0..owners {
        index.register(OwnerSlot(slot), &model(), "test").unwrap();
        index.set_completeness(OwnerSlot(slot), Completeness::Exact);
    }
    index
}

pub(crate) fn int(bits: u64) -> EngineHash {
    EngineHash::Int { bits, negative: false }
}

/// A store of `tokens` in blocks of `size`, with one engine hash for each block.
pub(crate) fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32], size: u32) -> Stored {
    Stored {
        hashes: hashes.iter().copied().map(int).collect(),
        parent: parent.map(int),
        token_ids: tokens.to_vec(),
        block_size: size,
        ..Stored::default()
    }
}

pub(crate) fn removed(hashes: &[u64]) -> KvEvent {
    KvEvent::Removed { hashes: hashes.iter().copied().map(int).collect(), group: 0, medium: Medium::Gpu }
}

/// Applies events as the owner's next batch.
pub(crate) fn apply(index: &Index, slot: u32, events: Vec<KvEvent>) -> bool {
    let last = stats(index, slot).last_seq;
    let seq = last.map_or(0, |last| last + 1);
    index.apply(OwnerSlot(slot), &Batch { seq, events, ..Batch::default() })
}

pub(crate) fn store(
    index: &Index,
    slot: u32,
    hashes: &[u64],
    parent: Option<u64>,
    tokens: &[u32],
    size: u32,
) {
    assert!(apply(index, slot, vec![KvEvent::Stored(stored(hashes, parent, tokens, size))]));
}

pub(crate) fn stats(index: &Index, slot: u32) -> OwnerStats {
    index.stats().into_iter().find(|stats| stats.slot == OwnerSlot(slot)).unwrap()
}

/// Hits of owners 0 to `owners - 1` for a prompt in a scope.
pub(crate) fn hits(index: &Index, scope: &CacheScope, tokens: &[u32], owners: u32) -> Vec<PrefixHit> {
    let sizes = index.block_sizes(&model());
    let chains: Vec<_> = sizes.iter().map(|size| chain(scope, *size, tokens, None)).collect();
    let slots: Vec<_> = (0..owners).map(OwnerSlot).collect();
    let mut hits = vec![PrefixHit::default(); slots.len()];
    index.walk(&model(), &chains, &slots, &mut hits);
    hits
}

/// The same, plain scope, tokens only.
pub(crate) fn tokens_held(index: &Index, tokens: &[u32], owners: u32) -> Vec<u32> {
    hits(index, &CacheScope::default(), tokens, owners).iter().map(|hit| hit.tokens).collect()
}

/// Tokens behind the held ones of which some are on slower tiers only.
pub(crate) fn tokens_offloaded(index: &Index, tokens: &[u32], owners: u32) -> Vec<u32> {
    hits(index, &CacheScope::default(), tokens, owners).iter().map(|hit| hit.offloaded_tokens).collect()
}

pub(crate) fn range(from: u32, to: u32) -> Vec<u32> {
    (from..=to).collect()
}

fn with_adapter(name: &str) -> CacheScope {
    CacheScope { adapter: Some(AdapterName::from(name)), salt: None }
}
