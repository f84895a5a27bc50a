//! Owners whose content another process tells: an agent's view of an engine, entered as it was published.
//!
//! The methods have the names and the meaning of [`MirrorSink`](kvasir_core::MirrorSink), less the question which
//! slot an owner has; [`Index::set_completeness`] is the fourth of them. The caller keeps the order of publication.

use std::sync::atomic::Ordering;

use kvasir_core::{BlockChange, Completeness, OwnerContent, OwnerSlot};

use super::Index;
use crate::follow::Link;

impl Index {
    /// Replaces all that is known of an owner, in place: blocks of both the old and the new content are held
    /// throughout. Predictions go with the blocks that left, and all of them with a new life of the owner. An owner
    /// with a follower is left alone, since its engine knows better.
    ///
    /// Blocks beyond twice the owner's capacity are not taken (and counted as over the limit). False when the content was
    /// not taken: the owner is unknown, or its engine is followed.
    #[must_use = "content that was not taken has to be told again"]
    pub fn load(&self, slot: OwnerSlot, content: OwnerContent) -> bool {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return false };
        let mut state = owner.state.lock();
        if state.gone || owner.follower.lock().link != Link::None {
            return false;
        }
        let before = state.ledger.mirrored();
        if before.is_none() {
            state.ledger.reset();
            (state.first_batch, state.last_batch) = (None, None);
            owner.life.store(self.lives.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        }
        let held = state.ledger.blocks();
        state.ledger.load(&content);
        state.last_event = Some(self.clock.now());
        let emptied = held > 0 && state.ledger.blocks() == 0;
        drop(state);
        if emptied || before.is_some_and(|before| before.life != content.life) {
            owner.drop_predictions();
        }
        self.set_completeness(slot, content.completeness);
        if content.block_size.is_some() && content.block_size != owner.known_size() {
            self.size_changed(owner, content.block_size);
        }
        true
    }

    /// Enters changes of an owner that was loaded before; without that, and after a lapse, they tell nothing. A block
    /// that went takes its prediction along, as an eviction does, and the last one all of them, as a cleared cache
    /// does. False when they were not taken: there is no content that they change.
    #[must_use = "an owner whose changes were not taken has to be loaded"]
    pub fn change(&self, slot: OwnerSlot, changes: &[BlockChange]) -> bool {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return false };
        let mut state = owner.state.lock();
        if state.gone || state.ledger.mirrored().is_none() {
            return false;
        }
        let held = state.ledger.blocks();
        state.ledger.change(changes);
        state.last_event = Some(self.clock.now());
        let emptied = held > 0 && state.ledger.blocks() == 0;
        drop(state);
        if emptied {
            owner.drop_predictions();
        }
        true
    }

    /// The owner holds nothing any more, and is approximate: placements are remembered until it is loaded again.
    /// Repeating it changes nothing, nor does it touch an owner that is not mirrored: false then.
    pub fn lapse(&self, slot: OwnerSlot) -> bool {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return false };
        let mut state = owner.state.lock();
        if state.ledger.mirrored().is_none() {
            return false;
        }
        state.ledger.lapse();
        state.resets += 1;
        owner.life.store(self.lives.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        drop(state);
        owner.drop_predictions();
        self.set_completeness(slot, Completeness::Approximate);
        true
    }
}
