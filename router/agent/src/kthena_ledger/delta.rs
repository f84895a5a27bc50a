//! What the ledger tells: blocks gained and lost, names, and what it noticed.

use std::sync::Arc;

use kvasir_core::EngineHash;

/// A block as kthena's layout names it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KthenaBlock {
    /// The adapter it was computed with; `None` for the model itself.
    pub adapter: Option<Arc<str>>,
    /// Content hash of its tokens.
    pub hash: u64,
}

/// What changed since it was last asked: differences of sets, so that applying them twice is the same as once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KthenaDelta {
    /// Blocks that the pod owns now and did not before.
    pub gained: Vec<KthenaBlock>,
    /// Blocks that it owned before and does not now.
    pub lost: Vec<KthenaBlock>,
    /// Names of the engine's blocks with the content hash that they stand for now.
    pub named: Vec<(EngineHash, u64)>,
    /// Names of the engine's blocks that stand for nothing any more.
    pub unnamed: Vec<EngineHash>,
}

impl KthenaDelta {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty() && self.named.is_empty() && self.unnamed.is_empty()
    }
}

/// What was noticed since the ledger was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KthenaNoticed {
    /// Removals of blocks that were not known (fault case STL-05): stored before the agent followed. What an earlier
    /// agent wrote of them was taken for stale and removed when this one began to write.
    pub unknown_removals: u64,
    /// Stores whose tokens and hashes do not fit each other.
    pub malformed: u64,
    /// Stores and removals of groups that hold no whole prefixes.
    pub other_groups: u64,
    /// Stored blocks whose tokens alone do not say who may reuse them: salts, multimodal items.
    pub not_by_tokens: u64,
    /// Stores on other tiers.
    pub other_tiers: u64,
    /// Blocks dropped, or not taken, because a bound was reached.
    pub over_limit: u64,
}
