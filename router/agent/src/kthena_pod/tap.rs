//! One rank's events on their way into its pod's ledger.

use std::sync::Arc;

use kvasir_kvcache::event::Batch;
use kvasir_kvcache::{EventTap, SavedOwner};
use parking_lot::Mutex;

use super::KthenaPod;
use crate::kthena_ledger::SavedLedger;

/// Tries to see index and ledger after the same batch. The index is ahead by one batch at most, for a moment.
const TRIES: usize = 8;

/// Feeds one rank's events to its pod.
#[derive(Debug)]
pub struct RankTap {
    pod: Arc<KthenaPod>,
    /// The rank's number within the pod.
    rank: u32,
    saved: Mutex<Option<SavedLedger>>,
}

impl RankTap {
    /// A tap for the rank with this number in its pod, which may go on from `saved`.
    pub fn new(pod: Arc<KthenaPod>, rank: u32, saved: Option<SavedLedger>) -> Self {
        Self { pod, rank, saved: Mutex::new(saved) }
    }

    /// The rank holds nothing: its engine sleeps, or is another one now. Numbers of batches go on where they were.
    pub fn forget(&self) {
        self.pod.ledger.lock().empty(self.rank);
    }

    /// What the rank holds has been read; its pod is written from here on.
    pub fn open(&self) {
        self.pod.open();
    }

    /// Blocks that the rank can hold; bounds what is kept for the pod.
    pub fn set_capacity(&self, blocks: usize) {
        let mut capacities = self.pod.capacities.lock();
        if capacities.insert(self.rank, blocks) != Some(blocks) {
            let all = capacities.values().fold(0usize, |all, blocks| all.saturating_add(*blocks));
            self.pod.ledger.lock().set_capacity(all);
        }
    }

    /// What the index saves and what the ledger holds, after the same batch. `None` where there is nothing to save, or the
    /// two were never seen together.
    pub fn save_with(&self, save: impl Fn() -> Option<SavedOwner>) -> Option<(SavedOwner, SavedLedger)> {
        for _ in 0..TRIES {
            // While the ledger is locked no batch gets past it.
            let ledger = self.pod.ledger.lock();
            let owner = save()?;
            if ledger.last_seq(self.rank) == Some(owner.last_batch().seq) {
                return ledger.save(self.rank).map(|ledger| (owner, ledger));
            }
            drop(ledger);
            std::thread::yield_now();
        }
        None
    }
}

impl EventTap for RankTap {
    fn applied(&self, batch: &Batch) {
        self.pod.ledger.lock().apply(self.rank, batch);
    }

    fn reset(&self) {
        self.saved.lock().take();
        self.pod.ledger.lock().reset(self.rank);
    }

    fn restored(&self) {
        let saved = self.saved.lock().take();
        let mut ledger = self.pod.ledger.lock();
        match saved {
            Some(saved) => ledger.restore(self.rank, &saved),
            // Blocks from before are not known here, and are not written: nobody could tell when they go.
            None => ledger.reset(self.rank),
        }
    }
}
