//! The contract of the block index: who holds how much of a prefix, answered from memory.

use serde::Serialize;

use crate::block::{BlockChain, BlockSize};
use crate::endpoint::Completeness;
use crate::ids::{ModelName, OwnerSlot};

/// How much of a prompt one owner holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PrefixHit {
    /// Leading tokens of the prompt that the owner holds in full blocks, from events or remembered placements.
    pub tokens: u32,
    /// The part of `tokens` that rests on our own predictions only (placements not yet confirmed by events).
    pub predicted_tokens: u32,
    /// Tokens right behind `tokens` that the owner holds as well, in full blocks without a hole, but some of them on a
    /// slower tier (the host's memory, a disk) only: it can load them instead of computing them.
    pub offloaded_tokens: u32,
    /// Tokens in one of the owner's blocks; 0 when not known.
    pub block_tokens: u32,
    /// How far the owner's content is known; `None` for an owner the index has never heard of.
    pub completeness: Option<Completeness>,
}

/// Which owner holds which blocks. Called on the request path: memory only, never waits, never fails.
///
/// Called by the `prefix_hits` producer with the chains of one request. An unknown owner has a zero hit.
pub trait BlockIndex: Send + Sync {
    /// Distinct block sizes among the live owners of `model`, at most four, the most common first.
    /// [`BlockSize::DEFAULT`] alone when no owner has told its size.
    fn block_sizes(&self, model: &ModelName) -> smallvec::SmallVec<[BlockSize; 4]>;

    /// Fills `hits[i]` for `owners[i]`. `chains` holds one chain for each size of
    /// [`block_sizes`](Self::block_sizes); an owner is looked up with the chain of its own size.
    ///
    /// `hits` is as long as `owners`; what is longer is left alone.
    fn walk(&self, model: &ModelName, chains: &[BlockChain], owners: &[OwnerSlot], hits: &mut [PrefixHit]);
}
