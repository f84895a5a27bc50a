//! What an engine counts, under the engine's own names.

mod exposition;

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use exposition::render;

/// Bucket bounds as vLLM 0.32 exports them.
const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0,
    50_000.0, 100_000.0,
];

/// The reasons of `vllm:request_success_total`.
const FINISH_REASONS: [&str; 5] = ["stop", "length", "abort", "error", "repetition"];

/// One start's counters and histograms.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) prompt_tokens: Counter,
    pub(crate) cached_prompt_tokens: Counter,
    pub(crate) generation_tokens: Counter,
    pub(crate) prefix_cache_queries: Counter,
    pub(crate) prefix_cache_hits: Counter,
    pub(crate) rejected: Counter,
    pub(crate) time_to_first_token: Histogram,
    pub(crate) inter_token_latency: Histogram,
    pub(crate) end_to_end: Histogram,
    pub(crate) queue_time: Histogram,
    pub(crate) prefill_time: Histogram,
    pub(crate) request_prompt_tokens: Histogram,
    pub(crate) request_generation_tokens: Histogram,
    finished: [Counter; FINISH_REASONS.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            prompt_tokens: Counter::default(),
            cached_prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            prefix_cache_queries: Counter::default(),
            prefix_cache_hits: Counter::default(),
            rejected: Counter::default(),
            time_to_first_token: Histogram::new(FIRST_TOKEN_SECONDS),
            inter_token_latency: Histogram::new(TOKEN_SECONDS),
            end_to_end: Histogram::new(REQUEST_SECONDS),
            queue_time: Histogram::new(REQUEST_SECONDS),
            prefill_time: Histogram::new(REQUEST_SECONDS),
            request_prompt_tokens: Histogram::new(TOKENS),
            request_generation_tokens: Histogram::new(TOKENS),
            finished: Default::default(),
        }
    }
}

impl Metrics {
    /// One more request that ended for `reason`.
    pub(crate) fn finished(&self, reason: &str) {
        let index = FINISH_REASONS.iter().position(|known| *known == reason);
        if let Some(counter) = index.and_then(|index| self.finished.get(index)) {
            counter.add(1);
        }
    }

    /// Requests that ended, in all.
    pub(crate) fn finished_requests(&self) -> u64 {
        self.finished.iter().map(Counter::value).sum()
    }

    /// Requests by the reason of their end.
    pub(crate) fn finish_reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FINISH_REASONS.into_iter().zip(self.finished.iter().map(Counter::value))
    }
}

/// Only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts in buckets, with a sum in millionths.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    buckets: Box<[AtomicU64]>,
    above: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            buckets: bounds.iter().map(|_| AtomicU64::new(0)).collect(),
            above: AtomicU64::new(0),
            micros: AtomicU64::new(0),
        }
    }

    pub(crate) fn observe(&self, value: f64) {
        self.observe_many(value, 1);
    }

    /// `count` observations of the same value.
    pub(crate) fn observe_many(&self, value: f64, count: usize) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        self.buckets.get(index).unwrap_or(&self.above).fetch_add(count as u64, Ordering::Relaxed);
        self.micros.fetch_add((value * count as f64 * 1e6) as u64, Ordering::Relaxed);
    }

    /// (bound, observations up to it), then all observations, then their sum.
    fn snapshot(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut total = 0;
        let buckets = self
            .bounds
            .iter()
            .zip(&self.buckets)
            .map(|(bound, bucket)| {
                total += bucket.load(Ordering::Relaxed);
                (*bound, total)
            })
            .collect();
        total += self.above.load(Ordering::Relaxed);
        (buckets, total, self.micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}
