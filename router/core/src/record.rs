//! The decision record: why a request went where it went, and how that turned out (decision D10).

use serde::Serialize;

use crate::candidates::Phase;
use crate::decision::ScoreLine;
use crate::endpoint::Completeness;
use crate::ids::{AdapterName, EndpointId, ModelName, RequestId};
use crate::load::Load;
use crate::usage::Usage;

/// One candidate as the decision saw it.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateRecord {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// Whether filters kept it.
    pub kept: bool,
    /// Leading prompt tokens it holds.
    pub matched_tokens: u32,
    /// The part of them that rests on predictions.
    pub predicted_tokens: u32,
    /// What the engine may really reuse: never the last token, whole blocks only.
    pub reusable_tokens: u32,
    /// How far its content is known.
    pub completeness: Option<Completeness>,
    /// Its load.
    pub load: Load,
    /// Weighted total.
    pub total: Option<f64>,
    /// Milliseconds to the first token that a scorer expected here; `None` when none expected anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_ttft_ms: Option<f64>,
}

/// One try at one endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptRecord {
    /// Which endpoint.
    pub endpoint: EndpointId,
    /// What was asked of it.
    pub phase: Phase,
    /// Status, when one came.
    pub status: Option<u16>,
    /// What failed, in fixed words.
    pub error: Option<String>,
}

/// How tokens were had.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TokensRecord {
    /// `given`, `local`, `service` or `engine`; `None` without tokens.
    pub source: Option<&'static str>,
    /// How many; an estimate without tokens.
    pub prompt_tokens: u32,
    /// Why there are none.
    pub missing: Option<String>,
    /// Full blocks, per block size: (tokens per block, blocks).
    pub blocks: Vec<(u32, u32)>,
    /// Microseconds, waiting included.
    pub took_us: u64,
}

/// How the request ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OutcomeRecord {
    /// Status the client saw; 0 when it saw none.
    pub status: u16,
    /// Usage as the engine reported it.
    pub usage: Option<Usage>,
    /// Milliseconds from the request's first byte to the answer's first byte.
    pub ttft_ms: Option<f64>,
    /// Milliseconds in all.
    pub total_ms: f64,
    /// What went wrong, in fixed words.
    pub error: Option<String>,
}

/// The whole record. Holds no prompt text and no token ids.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionRecord {
    /// Id of the request.
    pub request_id: RequestId,
    /// Wall-clock start, milliseconds since 1970.
    pub started_ms: u64,
    /// As the client wrote it.
    pub requested_model: String,
    /// The engine's served name.
    pub model: ModelName,
    /// Adapter.
    pub adapter: Option<AdapterName>,
    /// Path label.
    pub path: &'static str,
    /// Streamed?
    pub stream: bool,
    /// Tokens.
    pub tokens: TokensRecord,
    /// Every candidate.
    pub candidates: Vec<CandidateRecord>,
    /// Every scorer's line, aligned with `candidates`.
    pub scores: Vec<ScoreLine>,
    /// Filters that dropped candidates.
    pub filtered: Vec<(&'static str, usize)>,
    /// Ranked endpoints; where prefill is apart, those that decode.
    pub picks: Vec<EndpointId>,
    /// The prefill endpoint of each pick; empty where prefill is not apart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefill_picks: Vec<EndpointId>,
    /// Why a decode endpoint was asked for the prompt too, in fixed words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pd_fallback: Option<&'static str>,
    /// Tries, in order.
    pub attempts: Vec<AttemptRecord>,
    /// Cached tokens that the decision expected at the endpoint that answered.
    pub predicted_cached_tokens: Option<u32>,
    /// How it ended; `None` while it runs, and for a dry run.
    pub outcome: Option<OutcomeRecord>,
    /// Microseconds spent gathering.
    pub gather_us: u64,
    /// Microseconds spent deciding.
    pub decide_us: u64,
}
