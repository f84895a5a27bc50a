//! How the mirror does, for readiness, debugging and metrics.

use kvasir_core::{AdapterName, Completeness, EndpointId, ModelName, OwnerSlot};
use serde::Serialize;

use crate::snapshot::Epoch;

/// What the mirror knows of one owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    /// Its content is here, and changes follow.
    Synced,
    /// Its content is on its way, for the first time or again; what was known stays meanwhile.
    Resyncing,
    /// Nobody wants it here: the endpoint is unknown, serves another model, or is followed directly.
    Unwanted,
    /// It is published in a schema that this version does not understand.
    OtherSchema,
    /// Its head is missing or malformed.
    Unreadable,
    /// Its lease ended, and what was known is forgotten.
    Lapsed,
}

impl OwnerState {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Resyncing => "resyncing",
            Self::Unwanted => "unwanted",
            Self::OtherSchema => "other_schema",
            Self::Unreadable => "unreadable",
            Self::Lapsed => "lapsed",
        }
    }
}

/// One published owner in a few words and numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MirroredOwner {
    /// Who it is.
    pub owner: EndpointId,
    /// What is known of it.
    pub state: OwnerState,
    /// Its number in the index; `None` where nobody wants it.
    pub slot: Option<OwnerSlot>,
    /// The engine's served name; `None` before its head was read.
    pub model: Option<ModelName>,
    /// Adapters that the engine serves.
    pub adapters: Vec<AdapterName>,
    /// The epoch that is followed.
    pub epoch: Option<Epoch>,
    /// Number of the last delta that was entered.
    pub seq: u64,
    /// Blocks that it holds by its head.
    pub blocks: u64,
    /// How far its content is known here.
    pub completeness: Option<Completeness>,
    /// How long its lease lasts, milliseconds, by the server's clock as far as it can be told.
    pub lease_left_ms: u64,
    /// How long its last delta took from the server to here, milliseconds.
    pub lag_ms: u64,
    /// Times its content was loaded.
    pub loads: u64,
    /// Times a delta was missing.
    pub gaps: u64,
    /// Why its content could not be loaded the last time; `None` once it was.
    pub last_fault: Option<String>,
}

/// The mirror in a few words and numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MirrorStatus {
    /// Whether every stream was reached at its last refresh.
    pub connected: bool,
    /// How long ago the stream was reached that was not reached for the longest time, milliseconds; `None` before all
    /// were.
    pub last_contact_ms: Option<u64>,
    /// Whether everything that was there at the start was loaded once.
    pub first_synced: bool,
    /// Times a store was found new or emptied.
    pub emptied: u64,
    /// Entries and names that could not be read.
    pub malformed: u64,
    /// Every published owner.
    pub owners: Vec<MirroredOwner>,
}
