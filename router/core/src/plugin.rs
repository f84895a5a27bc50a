//! The contracts of the scheduler's parts: gather (async), then decide (pure).

use std::ops::BitOr;
use std::time::Duration;

use rand::Rng;

use crate::BoxFuture;
use crate::candidates::Candidates;
use crate::cycle::CycleState;
use crate::decision::{Decision, ScorerTotals};
use crate::endpoint::Endpoint;
use crate::ids::ModelName;
use crate::load::InFlightCost;
use crate::request::InferenceRequest;
use crate::usage::Usage;

/// What all parts have.
pub trait Plugin: Send + Sync {
    /// The name users type and metrics carry.
    fn name(&self) -> &'static str;
}

/// Gathered data, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs(u8);

impl Needs {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// [`CycleState::tokens`].
    pub const TOKENS: Self = Self(1);
    /// [`CycleState::chains`].
    pub const BLOCKS: Self = Self(2);
    /// [`CycleState::hits`].
    pub const PREFIX_HITS: Self = Self(4);
    /// [`CycleState::text_hashes`].
    pub const TEXT_HASHES: Self = Self(8);

    /// Whether every item of `other` is in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the two share an item.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Needs {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Drops candidates. Pure; called in the configured order. May drop all: the request then fails with a
/// retryable status.
pub trait Filter: Plugin {
    /// Clears the mask of those that must not be chosen.
    fn filter(&self, cycle: &CycleState, pool: &mut Candidates);
}

/// A scorer's answers, aligned with the candidates: 0 to 100, or `None` for "no opinion".
pub type Scores = Vec<Option<f64>>;

/// Gives each kept candidate a score. Pure; called once per decision.
pub trait Scorer: Plugin {
    /// What must have been gathered.
    fn needs(&self) -> Needs {
        Needs::NONE
    }

    /// Fills `out`, which comes as long as the pool and all `None`. Scores are nominally 0..=100.
    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores);

    /// The same for a scorer that rests on an estimate: `expected` gets the seconds that it expects until the first
    /// token, as long as the pool, or stays empty.
    fn score_and_expect(
        &self,
        cycle: &CycleState,
        pool: &Candidates,
        out: &mut Scores,
        expected: &mut Scores,
    ) {
        let _ = expected;
        self.score(cycle, pool, out);
    }
}

/// Ranks candidates by their totals. Pure; chance is a parameter.
pub trait Picker: Plugin {
    /// The ranked picks; empty only when no candidate is kept.
    fn pick(&self, totals: ScorerTotals, pool: &Candidates, rng: &mut dyn Rng) -> Decision;
}

/// Why a producer left its slot empty.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{producer}: {reason}")]
pub struct ProduceError {
    /// Producer name.
    pub producer: &'static str,
    /// What happened; a metric label from a fixed set.
    pub reason: &'static str,
}

/// Gathers one kind of data for a request. Called once per request, in dependency order, under the gathering
/// deadline; must not block the thread. A failure leaves the slot empty.
pub trait DataProducer: Plugin {
    /// What it fills.
    fn provides(&self) -> Needs;

    /// What must be there before it runs.
    fn after(&self) -> Needs {
        Needs::NONE
    }

    /// Fills its slots of `cycle`.
    fn produce<'a>(
        &'a self,
        request: &'a InferenceRequest,
        pool: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>>;
}

/// Learns where requests went. Called by the gateway; must be quick and never block.
pub trait PlacementObserver: Plugin {
    /// An attempt is about to be sent to `endpoint`.
    fn dispatched(&self, cycle: &CycleState, endpoint: &Endpoint, cost: InFlightCost);

    /// The first byte of the attempt's answer is here, `took` after [`dispatched`](Self::dispatched) with the same `cost`.
    /// Where the answer is not streamed (`CycleState::streamed`), that is its end.
    fn first_byte(&self, cycle: &CycleState, endpoint: &Endpoint, cost: InFlightCost, took: Duration) {
        let _ = (cycle, endpoint, cost, took);
    }

    /// The attempt ended well: the answer was relayed to its end. kthena's post-schedule hook.
    fn completed(&self, cycle: &CycleState, endpoint: &Endpoint, usage: Option<&Usage>);

    /// The attempt failed or was cancelled before its answer was complete.
    fn failed(&self, cycle: &CycleState, endpoint: &Endpoint);
}

/// Why no decision was possible.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// There was nobody to choose from.
    #[error("no endpoint is available")]
    NoCandidates,
    /// Every candidate was dropped by a filter.
    #[error("all endpoints have been filtered out by {0:?}")]
    AllFiltered(&'static str),
    /// Prefill and decode are apart, and no endpoint decodes.
    #[error("no decode endpoint is available")]
    NoDecode,
    /// Prefill and decode are apart, and no group has both.
    #[error("no pair of a prefill and a decode endpoint is available")]
    NoPair,
}

/// Counts what the scheduler and its parts do. Implemented by `telemetry`; every call is cheap.
pub trait ScheduleMeter: Send + Sync {
    /// A filter or scorer ran; `kind` is `filter` or `score`.
    fn plugin_ran(&self, model: &ModelName, plugin: &'static str, kind: &'static str, took: Duration);
    /// The best candidate's matched share of the prompt, 0 to 1, as `plugin` saw it.
    fn match_ratio(&self, model: &ModelName, plugin: &'static str, ratio: f64);
    /// A producer left its slot empty; `reason` is from a fixed set.
    fn produce_failed(&self, model: &ModelName, producer: &'static str, reason: &'static str);
    /// `prefix-cache` evicted hashes to keep within its capacity.
    fn prefix_evicted(&self, model: &ModelName, hashes: u64);
}

/// A meter that counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMeter;

impl ScheduleMeter for NoMeter {
    fn plugin_ran(&self, _: &ModelName, _: &'static str, _: &'static str, _: Duration) {}
    fn match_ratio(&self, _: &ModelName, _: &'static str, _: f64) {}
    fn produce_failed(&self, _: &ModelName, _: &'static str, _: &'static str) {}
    fn prefix_evicted(&self, _: &ModelName, _: u64) {}
}
