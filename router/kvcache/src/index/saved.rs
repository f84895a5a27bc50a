//! An owner's content with the engine's hashes, so that a process that starts anew can go on where another one was.

pub(super) mod bytes;
mod parse;

pub use parse::DamagedState;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvasir_core::{Completeness, ModelName, OwnerSlot};

use bytes::LONGEST_NAME;

use super::groups::Groups;
use super::pages::SavedPage;
use super::tier::SavedTier;
use super::{BatchMark, Index};

/// What an owner's ledger held after its last batch: enough to apply the next one as if nothing had happened.
///
/// It is right for one life of one engine only, and for the moment after [`last_batch`](Self::last_batch) only.
/// [`follow_with`](crate::follow_with) takes it in when the engine still offers that very batch, and drops it
/// otherwise; whoever calls [`Index::restore`] must know as much.
///
/// It holds chained hashes and the engine's hashes, 16 bytes a block, and no salts. Engines with pages smaller than a
/// block (SGLang) have tails: the token ids of pages that end no block. [`without_tails`](Self::without_tails) takes
/// them out, for a store that others read. Blocks that wait for an unknown parent are never saved.
#[derive(Clone, PartialEq)]
pub struct SavedOwner {
    pub(super) model: ModelName,
    pub(super) completeness: Completeness,
    pub(super) first: BatchMark,
    pub(super) last: BatchMark,
    pub(super) content: SavedLedger,
}

/// The part of a ledger that events depend on.
#[derive(Clone, PartialEq, Default)]
pub(super) struct SavedLedger {
    /// Tokens in one of the engine's blocks; 0 while it has not told.
    pub(super) page: u32,
    pub(super) groups: Groups,
    pub(super) gpu: SavedTier,
    pub(super) other_tiers: Vec<(Arc<str>, SavedTier)>,
    pub(super) pages: Vec<SavedPage>,
}

/// Why a saved state is not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// The owner is not in the index.
    #[error("the owner is not known")]
    UnknownOwner,
    /// The state is of an owner that serves another model.
    #[error("the saved state is of another model")]
    OtherModel,
}

impl fmt::Debug for SavedOwner {
    /// In numbers: tails hold token ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedOwner")
            .field("model", &self.model)
            .field("completeness", &self.completeness)
            .field("last", &self.last)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}

impl SavedOwner {
    /// The model it serves.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// How far the content was known.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// The first batch of the life it is of, as in [`Progress`](super::Progress).
    pub fn first_batch(&self) -> BatchMark {
        self.first
    }

    /// The last batch that is in it.
    pub fn last_batch(&self) -> BatchMark {
        self.last
    }

    /// Blocks in GPU memory, by the engine's hashes.
    pub fn blocks(&self) -> usize {
        self.content.gpu.blocks.len()
    }

    /// The same without token ids. Where there were any, what follows them cannot be placed, so the content counts as
    /// partial.
    #[must_use]
    pub fn without_tails(mut self) -> Self {
        if !self.content.pages.is_empty() {
            self.content.pages = Vec::new();
            self.completeness = Completeness::Partial;
        }
        self
    }
}

impl Index {
    /// What an owner's events have built up, to be taken in by [`restore`](Self::restore). `None` for an owner that is
    /// unknown or mirrored, or of which no batch was followed. Copies 16 bytes a block under the owner's lock: about
    /// 10 ms for a million blocks.
    pub fn save(&self, slot: OwnerSlot) -> Option<SavedOwner> {
        let directory = self.directory.load();
        let owner = directory.owner(slot)?;
        let state = owner.state.lock();
        let last = state.last_batch.filter(|last| last.digest.is_some())?;
        if owner.model.name.as_str().len() > LONGEST_NAME || owner.completeness() == Completeness::Approximate
        {
            return None;
        }
        Some(SavedOwner {
            model: owner.model.name.clone(),
            completeness: owner.completeness(),
            first: state.first_batch?,
            last,
            content: state.ledger.save(),
        })
    }

    /// Replaces an owner's content by a saved one, as if the batches up to its last one had just been applied. A new
    /// life begins.
    ///
    /// # Errors
    /// The owner is unknown, or serves another model.
    pub fn restore(&self, slot: OwnerSlot, saved: &SavedOwner) -> Result<(), RestoreError> {
        let directory = self.directory.load();
        let owner = directory.owner(slot).ok_or(RestoreError::UnknownOwner)?;
        if owner.model.name != saved.model {
            return Err(RestoreError::OtherModel);
        }
        let mut state = owner.state.lock();
        if state.gone {
            return Err(RestoreError::UnknownOwner);
        }
        state.ledger.reset();
        owner.life.store(self.lives.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        state.ledger.restore(&saved.content);
        state.first_batch = Some(saved.first);
        state.last_batch = Some(saved.last);
        state.last_event = Some(self.clock.now());
        let size = state.ledger.unit();
        drop(state);
        owner.drop_predictions();
        self.set_completeness(slot, saved.completeness);
        if size.is_some() && size != owner.known_size() {
            self.size_changed(owner, size);
        }
        Ok(())
    }

    /// Whether a saved state fits an owner.
    pub(crate) fn fits(&self, slot: OwnerSlot, saved: &SavedOwner) -> Result<(), RestoreError> {
        match self.directory.load().owner(slot) {
            None => Err(RestoreError::UnknownOwner),
            Some(owner) if owner.model.name != saved.model => Err(RestoreError::OtherModel),
            Some(_) => Ok(()),
        }
    }
}
