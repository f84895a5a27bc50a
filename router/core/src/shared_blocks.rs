//! What one process tells another about the blocks that an owner holds.
//!
//! An agent keeps an index of its own and records what changes in it ([`OwnerJournal`]); whoever mirrors it enters the
//! same content and the same changes into another index ([`MirrorSink`]). Both speak chained hashes, so tokens, engine
//! hashes and salts never leave the process that reads the engine's events.

use crate::block::{BlockHash, BlockSize};
use crate::endpoint::Completeness;
use crate::ids::{EndpointId, ModelName, OwnerSlot};

/// Where an owner holds a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum HeldOn {
    /// GPU memory.
    Gpu,
    /// Any slower tier.
    OtherTier,
}

/// One block came, or went.
///
/// Changes are about sets: the same change twice is the same as once, and of several changes of one block on one tier
/// the last one counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockChange {
    /// Which block.
    pub block: BlockHash,
    /// On which tier.
    pub on: HeldOn,
    /// Whether it is held from now on.
    pub held: bool,
}

/// Everything an owner holds at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerContent {
    /// Which life of the owner this is about: rises at each reset, within one process.
    pub life: u64,
    /// Tokens in a block; `None` until the engine has told.
    pub block_size: Option<BlockSize>,
    /// How far the content is known.
    pub completeness: Completeness,
    /// Blocks in GPU memory, each once, in no order.
    pub gpu: Vec<BlockHash>,
    /// Blocks on slower tiers, each once, in no order.
    pub other_tiers: Vec<BlockHash>,
}

/// What changed since the last time somebody asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerChanges {
    /// Which life of the owner this is about. Another than before: everything from before is gone, and `changes` begin
    /// with an empty owner.
    pub life: u64,
    /// Tokens in a block; `None` until the engine has told.
    pub block_size: Option<BlockSize>,
    /// How far the content is known.
    pub completeness: Completeness,
    /// More changed than was kept: `changes` is empty, and the content must be read as a whole.
    pub overflowed: bool,
    /// In order; each block at most once for each tier.
    pub changes: Vec<BlockChange>,
}

/// Records what changes in an index. Implemented by the block index, used by whoever publishes it; memory only, never
/// waits.
pub trait OwnerJournal: Send + Sync {
    /// Begins to record the changes of an owner; at most `most_changes` are kept between two calls of
    /// [`take_changes`](Self::take_changes). Again is the same as once.
    fn record(&self, slot: OwnerSlot, most_changes: usize);

    /// What changed since the last call of this or of [`content`](Self::content). `None` for an owner that is unknown
    /// or not recorded.
    fn take_changes(&self, slot: OwnerSlot) -> Option<OwnerChanges>;

    /// All that the owner holds; changes taken later are later than this. `None` for an unknown owner.
    fn content(&self, slot: OwnerSlot) -> Option<OwnerContent>;
}

/// Takes in what another process published. Called in the order of publication for one owner. Every call is quick but
/// [`load`](Self::load) and [`change`](Self::change) with much content, which are called where waiting is allowed.
pub trait MirrorSink: Send + Sync {
    /// The number under which an owner's blocks are entered. `None`: nobody wants them here (the endpoint is unknown,
    /// serves another model, or is followed directly). Asked again at every refresh.
    fn slot(&self, owner: &EndpointId, model: &ModelName) -> Option<OwnerSlot>;

    /// Replaces all that is known of an owner. Whether it was taken; what was not is brought again after a while.
    #[must_use]
    fn load(&self, slot: OwnerSlot, content: OwnerContent) -> bool;

    /// Enters changes of an owner that was loaded. Whether they were taken: `false` where what was loaded is not there
    /// any more, and then the owner is loaded again.
    #[must_use]
    fn change(&self, slot: OwnerSlot, changes: &[BlockChange]) -> bool;

    /// How far the owner's content is known from here on; the blocks stay.
    fn set_completeness(&self, slot: OwnerSlot, completeness: Completeness);

    /// The owner's lease ended, or what is known of it cannot be trusted: it holds nothing.
    fn lapse(&self, slot: OwnerSlot);
}
