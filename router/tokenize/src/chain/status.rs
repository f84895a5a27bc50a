//! What the chain tells about itself, for metrics, readiness and the start-up lines.

use std::collections::BTreeMap;

use kvasir_core::{ModelName, TokenSource};
use serde::Serialize;

use super::proof::Proof;
use super::verify::ProbeStatus;

/// How far a local tokenizer has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum LoadState {
    /// In the background.
    Loading,
    /// In use.
    Ready {
        /// `fastokens`, `words`, `tokenizers` or `sentencepiece`.
        encoder: &'static str,
        /// Why the fast encoder is not used, where it is not.
        fallback: Option<String>,
    },
    /// Tried again after a while.
    Failed {
        /// A sentence that names the file and what is wrong.
        reason: String,
        /// Attempts so far.
        attempts: u32,
    },
}

/// One source of one model.
#[derive(Clone, Debug, Serialize)]
pub struct SourceStatus {
    /// Which.
    pub source: TokenSource,
    /// Whether its counts agree with the engine's.
    pub proof: Proof,
    /// Whether it was contradicted so often that it is not asked any more.
    pub demoted: bool,
    /// Whether it would be asked now; false for a remote source that failed a moment ago.
    pub open: bool,
    /// For the local source: loading, ready or failed.
    pub load: Option<LoadState>,
    /// For the local source: why the files that are there now are not the ones in use.
    pub problem: Option<String>,
    /// Requests it gave ids for.
    pub succeeded: u64,
    /// Requests it gave none for, by the reason's label.
    pub failed: BTreeMap<&'static str, u64>,
    /// Answers that agreed.
    pub agreements: u64,
    /// Answers that disagreed.
    pub contradictions: u64,
    /// Bytes of remembered segments, for the local source.
    pub memory_bytes: usize,
    /// Segments found in the memory.
    pub memory_hits: u64,
    /// Segments not found.
    pub memory_misses: u64,
}

/// One model with its sources in their order.
#[derive(Clone, Debug, Serialize)]
pub struct ModelStatus {
    /// Served name.
    pub model: ModelName,
    /// Its sources.
    pub sources: Vec<SourceStatus>,
    /// What the probes proved about the local tokenizer.
    pub probes: ProbeStatus,
}
