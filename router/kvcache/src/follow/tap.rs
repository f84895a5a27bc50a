//! Whoever else wants an owner's events, in the order and under the repairs of the index.

use crate::event::Batch;

/// Sees what a follower does to the index, right after it was done there. Called by the follower's own task, one call
/// at a time, in the order of the engine's history: must not wait.
pub trait EventTap: Send + Sync {
    /// A batch was applied. Each batch of a life comes once, without holes between two [`reset`](Self::reset)s; a batch
    /// that cannot be decoded at all does not come.
    fn applied(&self, batch: &Batch);

    /// Everything from before is void: the engine restarted, or its history was lost.
    fn reset(&self);

    /// The owner goes on from a saved state: what was applied before the next batch is not told.
    fn restored(&self) {}
}
