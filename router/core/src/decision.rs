//! What the scheduler decided, and what every scorer gave.

use std::sync::Arc;

use serde::Serialize;

use crate::endpoint::Endpoint;

/// One ranked choice.
#[derive(Clone, Debug)]
pub struct Pick {
    /// Index in the candidates.
    pub index: usize,
    /// Where to send the request (decode side when prefill is apart).
    pub endpoint: Arc<Endpoint>,
    /// Where to prefill, when that is another endpoint.
    pub prefill: Option<PrefillPick>,
    /// Weighted total.
    pub total: f64,
}

/// The endpoint that computes the prompt for another one.
#[derive(Clone, Debug)]
pub struct PrefillPick {
    /// Index in the candidates.
    pub index: usize,
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// Weighted total.
    pub total: f64,
}

/// The scores of one scorer, aligned with the candidates.
#[derive(Clone, Debug, Serialize)]
pub struct ScoreLine {
    /// Plugin name.
    pub plugin: &'static str,
    /// Its weight.
    pub weight: f64,
    /// One entry for each candidate; `None` is "no opinion".
    pub scores: Vec<Option<f64>>,
    /// What the scorer expects, seconds until the first token, aligned with the candidates; empty for a scorer that
    /// expects nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected_seconds: Vec<Option<f64>>,
}

/// Every scorer's line and the totals.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScorerTotals {
    /// One line for each scorer that ran.
    pub lines: Vec<ScoreLine>,
    /// Weighted sums; `None` for filtered candidates. A candidate without any opinion has a total of 0.
    pub totals: Vec<Option<f64>>,
}

/// The ranked picks with the scores behind them.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Best first; the rest are the retry list.
    pub picks: Vec<Pick>,
    /// Scores, for explaining.
    pub scores: ScorerTotals,
    /// Filters that dropped candidates: name and how many.
    pub filtered: Vec<(&'static str, usize)>,
}
