//! Tokens to block hashes, the block index, and engine KV events.
//!
//! Events come in by [`follow`](fn@follow), are read by [`event`], and end in the [`Index`], which answers who holds how
//! much of a prompt from memory. Requests meet them there by the chained hashes of [`hash`]. What was sent where
//! is entered by [`Placements`] until events say more.
//!
//! An index tells what changes in it ([`OwnerJournal`](kvasir_core::OwnerJournal)) and takes in what another process
//! tells ([`Index::load`], [`Index::change`], [`Index::lapse`]). What a follower has built up can be left behind for the
//! process that comes after this one ([`SavedOwner`], [`FollowSetup`]).

pub mod discover;
pub mod event;
pub mod follow;
pub mod hash;
pub mod index;
pub mod placements;

pub use discover::parse_kv_event_sources;
pub use event::Batch;
pub use follow::{EventTap, FollowSetup, FollowerStatus, KvEventsSource, follow, follow_with};
pub use hash::{chain, kthena_block_hash};
pub use index::{BatchMark, DamagedState, Index, OwnerStats, Progress, RestoreError, SavedOwner};
pub use placements::Placements;
