//! What the index knows about its owners, for metrics, start-up lines and explain.

use std::time::Duration;

use kvasir_core::{BlockSize, Completeness, ModelName, OwnerSlot};
use serde::Serialize;

use crate::follow::FollowerStatus;

/// One owner in numbers. Counters run since the owner was registered.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerStats {
    /// Its number.
    pub slot: OwnerSlot,
    /// The model it serves.
    pub model: ModelName,
    /// How far its content is known.
    pub completeness: Completeness,
    /// Blocks it holds in GPU memory by its events.
    pub blocks: usize,
    /// Blocks on other tiers; they earn no credit.
    pub other_tier_blocks: usize,
    /// Pages smaller than a block that end none.
    pub pages: usize,
    /// Blocks that rest on our placements and have not left yet.
    pub predicted_blocks: usize,
    /// Blocks whose parent is unknown.
    pub orphans: usize,
    /// Orphans dropped because there were too many.
    pub orphans_dropped: u64,
    /// Unknown parents found through another owner's hashes.
    pub orphans_anchored: u64,
    /// Sequence numbers that were skipped.
    pub gaps: u64,
    /// Gaps that a replay filled.
    pub repairs: u64,
    /// Times everything was forgotten: restarts, lost history.
    pub resets: u64,
    /// Batches or events that could not be read.
    pub decode_failures: u64,
    /// Events of a kind that is not known here.
    pub unknown_events: u64,
    /// Events that contradict themselves.
    pub malformed_events: u64,
    /// Batches that had been applied before.
    pub repeated_batches: u64,
    /// Removals of blocks that were not known.
    pub unknown_removals: u64,
    /// Events of KV-cache groups that are not followed.
    pub other_group_events: u64,
    /// Batches that named another data-parallel rank than the source's.
    pub rank_mismatches: u64,
    /// Stores with another block size than the owner's own.
    pub block_size_mismatches: u64,
    /// The size its configuration told and the size its events show, when they differ.
    pub block_size_conflict: Option<(BlockSize, BlockSize)>,
    /// Blocks dropped because the owner reached its bound.
    pub over_limit: u64,
    /// Number of the last batch applied.
    pub last_seq: Option<u64>,
    /// Time since the last batch was applied; of a mirrored owner, since it was last told.
    pub last_event_age: Option<Duration>,
    /// Tokens in a block, once known.
    pub block_size: Option<BlockSize>,
    /// KV capacity in blocks, told or assumed.
    pub capacity_blocks: usize,
    /// Bytes of the owner's own maps.
    pub bytes: usize,
    /// Where its events come from, in words.
    pub source: String,
    /// Whether its content is another process's view, entered as it was published.
    pub mirrored: bool,
    /// What its follower is doing.
    pub follower: FollowerStatus,
}

/// The whole index in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexSize {
    /// Models with at least one owner, now or before.
    pub models: usize,
    /// Owners.
    pub owners: usize,
    /// Distinct blocks.
    pub blocks: usize,
    /// Bytes of all maps.
    pub bytes: usize,
}
