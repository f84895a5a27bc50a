//! How far an owner's events were applied, and which life of the engine they are of.

use kvasir_core::OwnerSlot;
use serde::Serialize;

use super::Index;

/// One batch, so that it is known again.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BatchMark {
    /// Its number.
    pub seq: u64,
    /// When the engine made it, seconds since 1970 by the engine's clock.
    pub ts: f64,
    /// Digest of its payload; `None` where it came without one.
    pub digest: Option<u64>,
}

/// How far one owner's events were applied.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Progress {
    /// Lives of the engine that its follower saw, and losses of history, after the first.
    pub epoch: u64,
    /// The first batch applied since everything was last forgotten. With number 0 it is the first one of the engine's
    /// life, and names that life better than anything else that events tell: it holds the engine's time stamp. With
    /// another number it depends on when the events were first followed.
    pub first_batch: Option<BatchMark>,
    /// The last batch applied.
    pub last_batch: Option<BatchMark>,
}

impl Index {
    /// How far an owner's events were applied; `None` for an unknown owner.
    pub fn progress(&self, slot: OwnerSlot) -> Option<Progress> {
        let directory = self.directory.load();
        let owner = directory.owner(slot)?;
        let (first_batch, last_batch) = {
            let state = owner.state.lock();
            (state.first_batch, state.last_batch)
        };
        Some(Progress { epoch: owner.follower.lock().epoch, first_batch, last_batch })
    }
}
