//! A router's side of the mirror: an index, and a look at the clock when a block that is waited for becomes visible in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kvasir_coordination::PublishedOwner;
use kvasir_core::{
    BlockChange, BlockHash, Completeness, EndpointId, MirrorSink, ModelName, OwnerContent, OwnerJournal as _,
    OwnerSlot,
};
use kvasir_kvcache::Index;
use parking_lot::Mutex;

use crate::figures::Spread;
use crate::resident::BLOCK;

/// An index that is filled by a mirror alone.
pub struct Reader {
    /// What a router looks prompts up in.
    pub index: Index,
    slots: HashMap<EndpointId, OwnerSlot>,
    model: ModelName,
    waiting: AtomicUsize,
    awaited: Mutex<HashMap<(OwnerSlot, BlockHash), Instant>>,
    lags: Mutex<Spread>,
}

impl Reader {
    /// Knows these owners and nothing of what they hold; each may hold so many blocks.
    ///
    /// # Errors
    /// The index takes no such owner.
    pub fn new(owners: &[PublishedOwner], capacity: usize) -> anyhow::Result<Self> {
        let index = Index::default();
        for owner in owners {
            index.register(owner.slot, &owner.model, "Redis")?;
            index.set_capacity(owner.slot, capacity, BLOCK);
        }
        Ok(Self {
            index,
            slots: owners.iter().map(|owner| (owner.id.clone(), owner.slot)).collect(),
            model: super::model(),
            waiting: AtomicUsize::new(0),
            awaited: Mutex::default(),
            lags: Mutex::new(Spread::new()?),
        })
    }

    /// From now on this block is waited for.
    pub fn expect(&self, slot: OwnerSlot, block: BlockHash) {
        self.awaited.lock().insert((slot, block), Instant::now());
        self.waiting.fetch_add(1, Ordering::Release);
    }

    /// Blocks that are waited for.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// From [`expect`](Self::expect) until the block was in the index, for all that came.
    pub fn lags(&self) -> Spread {
        self.lags.lock().clone()
    }

    /// Whether both indexes hold the same of every owner.
    pub fn equals(&self, other: &Index) -> bool {
        let sorted = |index: &Index, slot: OwnerSlot| {
            index.content(slot).map(|mut content| {
                content.gpu.sort_unstable();
                content.gpu
            })
        };
        self.slots.values().all(|slot| sorted(&self.index, *slot) == sorted(other, *slot))
    }

    /// Blocks are visible in the index from now on.
    fn came(&self, slot: OwnerSlot, blocks: impl Iterator<Item = BlockHash>) {
        if self.waiting() == 0 {
            return;
        }
        let now = Instant::now();
        let mut awaited = self.awaited.lock();
        let times = blocks.filter_map(|block| awaited.remove(&(slot, block))).collect::<Vec<_>>();
        drop(awaited);
        self.waiting.fetch_sub(times.len(), Ordering::Release);
        let mut lags = self.lags.lock();
        times.iter().for_each(|expected| lags.record(now.saturating_duration_since(*expected)));
    }
}

impl MirrorSink for Reader {
    fn slot(&self, owner: &EndpointId, model: &ModelName) -> Option<OwnerSlot> {
        self.slots.get(owner).copied().filter(|_| *model == self.model)
    }

    fn load(&self, slot: OwnerSlot, content: OwnerContent) -> bool {
        let blocks = if self.waiting() > 0 { content.gpu.clone() } else { Vec::new() };
        let taken = self.index.load(slot, content);
        self.came(slot, blocks.into_iter());
        taken
    }

    fn change(&self, slot: OwnerSlot, changes: &[BlockChange]) -> bool {
        let taken = self.index.change(slot, changes);
        self.came(slot, changes.iter().filter(|change| change.held).map(|change| change.block));
        taken
    }

    fn set_completeness(&self, slot: OwnerSlot, completeness: Completeness) {
        self.index.set_completeness(slot, completeness);
    }

    fn lapse(&self, slot: OwnerSlot) {
        self.index.lapse(slot);
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("index", &self.index)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
