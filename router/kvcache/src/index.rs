//! The block index: a mirror, in memory, of which owner holds which blocks.
//!
//! Each model has one sharded map from chained block hashes to owners. Each owner has a ledger that knows its
//! blocks by the engine's own hashes, since that is how engines name what they evict. A walk touches the map
//! only; a batch of events locks its owner's ledger, and a shard for one block at a time.
//!
//! Two rules about repetition. A batch whose number is not above the last one applied is not applied: replays
//! and redeliveries change nothing. A block that is stored by two batches with different numbers is held twice:
//! vLLM publishes both copies of a block that two requests computed at once, and removes both.
//!
//! An owner is either followed, by its engine's events, or mirrored, from what another process tells of it; the two
//! do not mix.

mod agreement;
mod directory;
mod groups;
mod holders;
mod journal;
mod ledger;
mod mirror;
mod orphans;
mod owner;
mod pages;
mod predict;
mod progress;
mod recent;
mod registry;
mod saved;
mod stats;
mod table;
mod tier;
mod walk;

pub use owner::DEFAULT_CAPACITY_TOKENS;
pub use predict::Prediction;
pub use progress::{BatchMark, Progress};
pub use registry::RegisterError;
pub use saved::{DamagedState, RestoreError, SavedOwner};
pub use stats::{IndexSize, OwnerStats};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use kvasir_core::{
    BlockChain, BlockIndex, BlockSize, Clock, Completeness, ModelName, OwnerSlot, PrefixHit, SystemClock,
};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::event::Batch;
use directory::{Directory, ModelPeers};
use owner::Owner;
use walk::Walker;

/// Who holds which blocks. Shared; every method takes `&self`.
pub struct Index {
    clock: Arc<dyn Clock>,
    started: Instant,
    directory: ArcSwap<Directory>,
    /// Held while the directory is changed.
    changing: Mutex<()>,
    lives: AtomicU64,
    /// Milliseconds since `started` at which the first prediction ends.
    next_expiry: AtomicU64,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("size", &self.size()).finish_non_exhaustive()
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl Index {
    /// An empty index. The clock times predictions and ages.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Self {
            clock,
            started,
            directory: ArcSwap::default(),
            changing: Mutex::new(()),
            lives: AtomicU64::new(0),
            next_expiry: AtomicU64::new(u64::MAX),
        }
    }

    /// Applies one batch of an owner's events, in order. False when the owner is unknown or mirrored, or the batch
    /// was applied before.
    pub fn apply(&self, slot: OwnerSlot, batch: &Batch) -> bool {
        self.apply_digested(slot, batch, None)
    }

    /// The same, with the digest of the batch's payload.
    pub(crate) fn apply_digested(&self, slot: OwnerSlot, batch: &Batch, digest: Option<u64>) -> bool {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return false };
        let peers = ModelPeers { directory: &directory, model: &owner.model };
        let mut state = owner.state.lock();
        if state.gone || state.ledger.mirrored().is_some() {
            return false;
        }
        state.decode_failures += u64::from(batch.malformed);
        state.unknown_events += u64::from(batch.unknown);
        if state.last_batch.is_some_and(|last| batch.seq <= last.seq) {
            state.repeated_batches += 1;
            return false;
        }
        let mark = BatchMark { seq: batch.seq, ts: batch.ts, digest };
        state.first_batch.get_or_insert(mark);
        state.last_batch = Some(mark);
        state.last_event = Some(self.clock.now());
        state.ledger.is_partial = owner.completeness() != Completeness::Exact;
        state.ledger.apply(&batch.events, &peers);
        // An unread event may have been a removal: what is held is no longer known for sure.
        let lost = std::mem::take(&mut state.ledger.lost_track) || batch.malformed > 0;
        let learned = state.ledger.unit();
        let cleared = batch.events.iter().any(|event| matches!(event, kvasir_core::KvEvent::AllCleared));
        // Under the lock, so that nobody reads what is left as if it were all.
        if lost && owner.completeness() == Completeness::Exact {
            owner.set_completeness(Completeness::Partial);
        }
        drop(state);
        if cleared {
            owner.drop_predictions();
        }
        if learned.is_some() && learned != owner.known_size() {
            self.size_changed(owner, learned);
        }
        true
    }

    /// Counts a batch that could not be read at all. The owner is exact no longer.
    pub fn undecodable(&self, slot: OwnerSlot) {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return };
        owner.state.lock().decode_failures += 1;
        if owner.completeness() == Completeness::Exact {
            owner.set_completeness(Completeness::Partial);
        }
    }

    /// Forgets everything an owner holds, predictions included: its engine restarted, went to sleep, or its history
    /// is lost. Numbers of batches start anew. A follower keeps its own count and goes on, and so does whoever tells the
    /// content of a mirrored owner.
    pub fn reset(&self, slot: OwnerSlot) {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return };
        let mut state = owner.state.lock();
        state.ledger.reset();
        (state.first_batch, state.last_batch) = (None, None);
        state.resets += 1;
        let told = state.told.map(|(_, size)| size);
        // Under the lock, so that content and changes are never told of another life than their own.
        owner.life.store(self.lives.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        drop(state);
        owner.drop_predictions();
        // An engine keeps its block size over most restarts; the first store corrects it.
        if owner.known_size().is_none() && told.is_some() {
            self.size_changed(owner, told);
        }
    }

    /// Sets how far an owner's content is known. Placements made while there were no events are dropped when
    /// events begin to tell.
    pub fn set_completeness(&self, slot: OwnerSlot, completeness: Completeness) {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return };
        let before = owner.set_completeness(completeness);
        if (before == Completeness::Approximate) != (completeness == Completeness::Approximate) {
            owner.drop_predictions();
        }
    }

    fn size_changed(&self, owner: &Arc<Owner>, size: Option<BlockSize>) {
        let before = owner.size();
        owner.set_size(size);
        if owner.size() != before {
            owner.drop_predictions();
            let _changing = self.changing.lock();
            self.directory.load().count_sizes(&owner.model);
        }
    }

    fn now_ms(&self) -> u64 {
        let elapsed = self.clock.now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

impl BlockIndex for Index {
    fn block_sizes(&self, model: &ModelName) -> SmallVec<[BlockSize; 4]> {
        match self.directory.load().models.get(model) {
            Some(model) => model.sizes.read().clone(),
            None => smallvec![BlockSize::DEFAULT],
        }
    }

    fn walk(&self, model: &ModelName, chains: &[BlockChain], owners: &[OwnerSlot], hits: &mut [PrefixHit]) {
        self.expire_predictions();
        let directory = self.directory.load();
        let known = directory.models.get(model);
        let mut groups: SmallVec<[(usize, SmallVec<[Walker; 16]>); 2]> = SmallVec::new();
        for (place, (slot, hit)) in owners.iter().zip(hits.iter_mut()).enumerate() {
            *hit = PrefixHit::default();
            let Some(owner) = directory.owner(*slot) else { continue };
            if !known.is_some_and(|known| Arc::ptr_eq(known, &owner.model)) {
                continue;
            }
            let completeness = owner.completeness();
            hit.completeness = Some(completeness);
            let size = owner.size();
            let Some(chain) = chains.iter().position(|chain| chain.block_size == size) else { continue };
            let walker = Walker::new(slot.0, place, completeness);
            match groups.iter_mut().find(|(number, _)| *number == chain) {
                Some((_, walkers)) => walkers.push(walker),
                None => groups.push((chain, smallvec![walker])),
            }
        }
        let Some(known) = known else { return };
        for (number, walkers) in &mut groups {
            let Some(chain) = chains.get(*number) else { continue };
            walkers.sort_unstable_by_key(|walker| walker.slot);
            walk::walk(&known.map, chain, walkers);
            for walker in walkers.iter() {
                if let Some(hit) = hits.get_mut(walker.place) {
                    *hit = walker.hit(chain.block_size.tokens());
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
