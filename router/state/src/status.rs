//! What is known of an endpoint, for people and for metrics.

use std::sync::Arc;

use kvasir_core::{EndpointId, EngineAdapters, EngineKind, Load, ModelName, OwnerSlot, Role, SharedLoad};
use serde::Serialize;

/// One endpoint as it stands now.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointStatus {
    /// Identity.
    pub id: EndpointId,
    /// Where it listens.
    pub url: String,
    /// The engine's served name.
    pub model: ModelName,
    /// Which engine it is.
    pub engine: EngineKind,
    /// Its part in prefill/decode serving.
    pub role: Role,
    /// Its number in the block index.
    pub slot: OwnerSlot,
    /// `healthy`, `ejected` or `trial`; `asleep`, `draining` and `not_ready` come before them.
    pub health: &'static str,
    /// Whether new requests go there, as long as others are available too.
    pub available: bool,
    /// Whether an operator takes it out of service.
    pub draining: bool,
    /// Its load, as decisions see it: this router's, its live peers' and that of others.
    pub load: Load,
    /// What this router alone has in flight there.
    pub own: SharedLoad,
    /// Age of the last good scrape, seconds; it is in `load` only while it is fresh.
    pub sample_age_seconds: Option<f64>,
    /// Why the last scrape failed.
    pub scrape_error: Option<String>,
    /// What the engine lists at `/v1/models`, sorted; `None` until it has told.
    pub listed_models: Option<Arc<[String]>>,
    /// The LoRA adapters of its last scrape; `None` where the engine tells of none.
    pub adapters: Option<EngineAdapters>,
    /// Attempts sent there.
    pub requests: u64,
    /// Attempts that failed there.
    pub failures: FailureCounts,
}

/// Failed attempts by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FailureCounts {
    /// No connection.
    pub connect: u64,
    /// Answered with 500 or more.
    pub status_5xx: u64,
    /// No answer in time.
    pub first_byte_timeout: u64,
    /// The connection died after the request was sent.
    pub died_after_send: u64,
}
