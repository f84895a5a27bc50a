//! One owner: its ledger, its predictions, and the few numbers that a walk reads without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use kvasir_core::{BlockSize, Completeness, ModelName, OwnerSlot};
use parking_lot::Mutex;

use super::BatchMark;
use super::agreement::Life;
use super::holders::{BlockMap, Hold};
use super::ledger::Ledger;
use super::recent::Recent;

/// KV capacity assumed for an owner that has not told its own, in tokens: what an 8B model leaves on a card with
/// 40 GB. Too high costs a few misplaced requests, too low forgets what the engine still has.
pub const DEFAULT_CAPACITY_TOKENS: usize = 131_072;

/// One model: its blocks, and the block sizes of its owners.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) name: ModelName,
    pub(super) map: Arc<BlockMap>,
    /// Distinct sizes, the most common first; never empty.
    pub(super) sizes: parking_lot::RwLock<smallvec::SmallVec<[BlockSize; 4]>>,
}

/// What changes with each batch.
#[derive(Debug)]
pub(super) struct State {
    pub(super) ledger: Ledger,
    /// The first batch since everything was last forgotten.
    pub(super) first_batch: Option<BatchMark>,
    pub(super) last_batch: Option<BatchMark>,
    pub(super) last_event: Option<Instant>,
    /// Blocks and size that the engine told by other means than events.
    pub(super) told: Option<(usize, BlockSize)>,
    pub(super) resets: u64,
    pub(super) decode_failures: u64,
    pub(super) unknown_events: u64,
    pub(super) repeated_batches: u64,
    pub(super) rank_mismatches: u64,
    pub(super) gaps: u64,
    pub(super) repairs: u64,
    /// Set when the owner was forgotten: whoever still has it must not enter anything.
    pub(super) gone: bool,
}

impl State {
    /// Tokens in a block, from events or else from what the engine told by other means.
    pub(super) fn block_size(&self) -> Option<BlockSize> {
        self.ledger.unit().or(self.told.map(|(_, size)| size))
    }
}

/// Placements of ours that no event has confirmed.
#[derive(Debug, Default)]
pub(super) struct Predictions {
    pub(super) recent: Recent,
    /// Uses so far, for owners without events.
    pub(super) uses: u64,
    /// As in [`State::gone`].
    pub(super) gone: bool,
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) slot: OwnerSlot,
    pub(super) model: Arc<Model>,
    pub(super) source: String,
    pub(super) life: AtomicU64,
    pub(super) state: Mutex<State>,
    pub(super) predictions: Mutex<Predictions>,
    pub(super) follower: Mutex<crate::follow::FollowerStatus>,
    completeness: AtomicU8,
    /// The size its blocks are looked up with; 0 until it is known.
    size: AtomicU32,
    capacity: AtomicU64,
}

impl Owner {
    pub(super) fn new(slot: OwnerSlot, model: Arc<Model>, source: String, life: Life) -> Self {
        let ledger = Ledger::new(slot.0, Arc::clone(&model.map));
        Self {
            slot,
            model,
            source,
            life: AtomicU64::new(life.0),
            state: Mutex::new(State {
                ledger,
                first_batch: None,
                last_batch: None,
                last_event: None,
                told: None,
                resets: 0,
                decode_failures: 0,
                unknown_events: 0,
                repeated_batches: 0,
                rank_mismatches: 0,
                gaps: 0,
                repairs: 0,
                gone: false,
            }),
            predictions: Mutex::default(),
            follower: Mutex::default(),
            completeness: AtomicU8::new(2),
            size: AtomicU32::new(0),
            capacity: AtomicU64::new(0),
        }
    }

    pub(super) fn completeness(&self) -> Completeness {
        match self.completeness.load(Ordering::Acquire) {
            0 => Completeness::Exact,
            1 => Completeness::Partial,
            _ => Completeness::Approximate,
        }
    }

    /// Sets it and gives what it was.
    pub(super) fn set_completeness(&self, completeness: Completeness) -> Completeness {
        let before = self.completeness();
        let value = match completeness {
            Completeness::Exact => 0,
            Completeness::Partial => 1,
            Completeness::Approximate => 2,
        };
        self.completeness.store(value, Ordering::Release);
        before
    }

    /// The size its blocks are looked up with, if it is known.
    pub(super) fn known_size(&self) -> Option<BlockSize> {
        BlockSize::new(self.size.load(Ordering::Acquire))
    }

    /// The same, with vLLM's default until it is known.
    pub(super) fn size(&self) -> BlockSize {
        self.known_size().unwrap_or(BlockSize::DEFAULT)
    }

    pub(super) fn set_size(&self, size: Option<BlockSize>) {
        self.size.store(size.map_or(0, u32::from), Ordering::Release);
    }

    /// KV capacity in blocks of its own size.
    pub(super) fn capacity(&self) -> usize {
        let tokens = match self.capacity.load(Ordering::Acquire) {
            0 => DEFAULT_CAPACITY_TOKENS,
            tokens => usize::try_from(tokens).unwrap_or(usize::MAX),
        };
        (tokens / self.size().tokens()).max(1)
    }

    pub(super) fn set_capacity_tokens(&self, tokens: usize) {
        self.capacity.store(tokens as u64, Ordering::Release);
    }

    pub(super) fn life(&self) -> Life {
        Life(self.life.load(Ordering::Acquire))
    }

    /// Drops every prediction.
    pub(super) fn drop_predictions(&self) {
        for block in self.predictions.lock().recent.drain() {
            self.model.map.take(block, self.slot.0, Hold::PREDICTED);
        }
    }
}
