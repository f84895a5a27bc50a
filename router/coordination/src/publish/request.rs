//! What a publisher asks of Redis, and what it may be told.

use bytes::Bytes;
use kvasir_core::{BlockSize, Completeness};
use std::time::Duration;

use crate::connection::StoreError;
use crate::delta::{Reason, StreamId};
use crate::snapshot::Epoch;

/// One thing to do for one owner. All of them may be done twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Become the writer, or stay it.
    Acquire,
    /// Write one chunk.
    Chunk { generation: u64, index: u32, bytes: Bytes },
    /// The chunks are written: they are the owner from here on.
    Commit(Commit),
    /// Add a delta.
    Delta { epoch: Epoch, seq: u64, changes: Bytes, blocks: u64, completeness: Completeness },
    /// The chunks of this generation hold the deltas up to `floor`.
    Fold(Folded),
    /// Renew the lease, if everything is as it was left.
    Heartbeat { epoch: Epoch, seq: u64, folds: Folds, tidy: Tidy },
    /// Keep a chunk for another while.
    KeepChunk { generation: u64, index: u32 },
    /// Let a chunk go soon; readers may still be at it.
    DropChunk { generation: u64, index: u32 },
    /// Write one part of the resume state.
    ResumePart { id: u64, index: u32, bytes: Bytes },
    /// The parts are written: they are the resume state from here on.
    ResumeCommit { pointer: String },
    /// Keep a part of the resume state for another while.
    KeepResume { id: u64, index: u32 },
    /// Let a part of the resume state go.
    DropResume { id: u64, index: u32 },
    /// Stop being the writer.
    Release { left: Duration },
}

/// What makes chunks an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    pub(crate) epoch: Epoch,
    pub(crate) reason: Reason,
    pub(crate) generation: u64,
    pub(crate) chunks: u32,
    pub(crate) blocks: u64,
    pub(crate) block_size: Option<BlockSize>,
    pub(crate) completeness: Completeness,
}

/// What raises the floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Folded {
    pub(crate) epoch: Epoch,
    pub(crate) folds: Folds,
    pub(crate) floor: u64,
    pub(crate) floor_id: StreamId,
    pub(crate) generation: u64,
    pub(crate) chunks: u32,
}

/// How often the chunks of an epoch were brought up to date. A server with another number in its head lost a fold, or
/// found one again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Folds {
    /// As far as the server said that it was done.
    pub(crate) confirmed: u64,
    /// As far as it was asked for.
    pub(crate) asked: u64,
}

/// What a heartbeat may throw away: nothing where a server's clock that was set wrong is all that speaks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tidy {
    /// Entries may be trimmed before this millisecond of their ids.
    pub(crate) trim_ms: u64,
    /// The latest time that counts when owners are removed that ended long ago, server's milliseconds.
    pub(crate) now_ms: u64,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Done. The entry that it made, or had made before, if any.
    Done(Option<StreamId>),
    /// A delta is in the stream.
    Added {
        /// Its entry.
        id: StreamId,
        /// The stream's oldest entry.
        first: StreamId,
        /// Number of entries.
        length: u64,
    },
    /// We write. The chunks that were there before: generation and number.
    Acquired(Option<(u64, u32)>),
    /// Another writer has the owner for so long.
    Held(Duration),
    /// What is there has a schema that we do not understand.
    OtherSchema,
    /// The lease is renewed.
    Beaten(Beaten),
    /// The key that was to be kept is not there.
    Missing,
    /// Another writer took the owner.
    Fenced,
    /// What is there is not what we left.
    Lost {
        /// Whether nothing is there: the store is new or was emptied.
        emptied: bool,
    },
    /// It may or may not have been done.
    Failed(StoreError),
}

/// The stream as a heartbeat found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Beaten {
    /// Its oldest entry.
    pub(crate) first: Option<StreamId>,
    /// Its newest entry.
    pub(crate) last: Option<StreamId>,
    /// Number of entries.
    pub(crate) length: u64,
    /// The server's clock, milliseconds.
    pub(crate) now: u64,
}
