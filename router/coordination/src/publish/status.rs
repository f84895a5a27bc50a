//! How publishing does, for readiness, debugging and metrics.

use kvasir_core::EndpointId;
use serde::Serialize;

use crate::snapshot::Epoch;

/// What a publisher is about for one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PublisherState {
    /// Not the writer yet.
    Asking,
    /// Another agent writes; we take over when its lease ends.
    StandingBy,
    /// What is there has a schema that this version does not understand.
    OtherSchema,
    /// The writer; the content is on its way.
    Publishing,
    /// The content is there, changes follow.
    Following,
    /// The agent does not hear the engine: the lease runs out, and is not renewed before it does.
    Unheard,
    /// Given up at shutdown.
    Released,
}

impl PublisherState {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asking => "asking",
            Self::StandingBy => "standing_by",
            Self::OtherSchema => "other_schema",
            Self::Publishing => "publishing",
            Self::Following => "following",
            Self::Unheard => "unheard",
            Self::Released => "released",
        }
    }
}

/// One owner's publisher in a few words and numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PublisherStatus {
    /// Whose blocks.
    pub owner: EndpointId,
    /// What it is about.
    pub state: PublisherState,
    /// The epoch that is published, or on its way.
    pub epoch: Epoch,
    /// Number of the last delta that Redis has.
    pub seq: u64,
    /// Blocks held.
    pub blocks: usize,
    /// Chunks that they are in.
    pub chunks: u32,
    /// How long the lease still lasts at least, milliseconds.
    pub lease_left_ms: u64,
    /// Deltas that Redis has not confirmed.
    pub unconfirmed: usize,
    /// How long the oldest of them waits, milliseconds; 0 without any.
    pub lag_ms: u64,
    /// Times the content was published as a whole.
    pub snapshots: u64,
    /// Times chunks were brought up to date.
    pub folds: u64,
    /// Times Redis had not what we left there.
    pub losses: u64,
    /// Times another agent took the owner.
    pub fenced: u64,
    /// Times more changed than was kept.
    pub overflows: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Why the last one did; stays after things went well again.
    pub last_error: Option<String>,
}
