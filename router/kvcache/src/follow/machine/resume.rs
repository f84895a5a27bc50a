//! Going on from a saved state, once the engine has proved that it is the same and lost nothing.

use std::time::Instant;

use kvasir_core::Completeness;

use super::{Action, Follower, Options};
use crate::event::Received;

/// The last batch of a saved state, and how far the state was known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumePoint {
    /// Number of the batch.
    pub seq: u64,
    /// Digest of its payload.
    pub digest: u64,
    /// How far the content was known.
    pub completeness: Completeness,
}

impl Follower {
    /// A follower that has not connected yet and knows of a saved state. Without a replay socket nothing can prove the
    /// state, and it is not used.
    pub fn resuming(options: Options, now: Instant, point: ResumePoint) -> Self {
        let resume = Some(point).filter(|_| options.has_replay);
        Self { resume, ..Self::new(options, now) }
    }

    /// The first batch of the replay that was to begin with the last one of the saved state.
    pub(super) fn prove(&mut self, batch: Received) {
        let Some(point) = self.resume else { return };
        if batch.seq == point.seq && batch.digest == point.digest {
            self.resume = None;
            self.history.push(&batch);
            self.out.push(Action::Restore);
            // Reading a partial history anew would only lose what the state knows.
            self.out_of_reach = point.completeness != Completeness::Exact;
            self.set(point.completeness);
            return;
        }
        self.drop_saved();
        if batch.seq > point.seq {
            // Batches between the state and what the engine still has are lost.
            self.clear();
            self.set(Completeness::Partial);
            self.begin_at(batch);
        } else {
            self.restart();
        }
    }

    pub(super) fn drop_saved(&mut self) {
        if self.resume.take().is_some() {
            self.out.push(Action::DropSaved);
        }
    }
}
