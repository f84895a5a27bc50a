//! Adds up what happened to the requests of a load run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use crate::error::ProbeError;
use crate::exchange::Answer;
use crate::failure::Failure;
use crate::report::{EndpointShare, EndpointSource, LoadReport, Percentiles};

/// Longest latency told apart, microseconds: one hour. Longer ones count as this.
const MAX_LATENCY_US: u64 = 3_600_000_000;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Most endpoints told apart; a fleet is smaller, a broken header is not.
const MAX_ENDPOINTS: usize = 1024;

/// The name that endpoints beyond the limit share.
const OTHER_ENDPOINTS: &str = "(others)";

/// Sums and histograms of one run.
#[derive(Debug)]
pub(crate) struct Tally {
    succeeded: u64,
    failed: u64,
    errors: BTreeMap<String, (u64, String)>,
    ttft: Histogram<u64>,
    total: Histogram<u64>,
    prompt_tokens: u64,
    completion_tokens: u64,
    reported: Option<Reported>,
    endpoints: BTreeMap<Arc<str>, EndpointShare>,
    late_starts: u64,
}

/// Over the requests whose usage says how much was cached.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    prompt_tokens: u64,
    cached_tokens: u64,
}

impl Tally {
    /// An empty tally.
    pub(crate) fn new() -> Result<Self, ProbeError> {
        let histogram = || {
            Histogram::new_with_bounds(1, MAX_LATENCY_US, DIGITS)
                .map_err(|error| ProbeError::Recorder(error.to_string()))
        };
        Ok(Self {
            succeeded: 0,
            failed: 0,
            errors: BTreeMap::new(),
            ttft: histogram()?,
            total: histogram()?,
            prompt_tokens: 0,
            completion_tokens: 0,
            reported: None,
            endpoints: BTreeMap::new(),
            late_starts: 0,
        })
    }

    /// An answer to a request that was due at `due`.
    pub(crate) fn succeed(&mut self, due: Instant, answer: &Answer) {
        self.succeeded += 1;
        self.total.saturating_record(micros(answer.finished.duration_since(due)));
        if let Some(first) = answer.first_content {
            self.ttft.saturating_record(micros(first.duration_since(due)));
        }
        let usage = answer.usage.unwrap_or_default();
        self.prompt_tokens += usage.prompt_tokens;
        self.completion_tokens += usage.completion_tokens;
        if let Some(cached) = usage.cached_tokens {
            let reported = self.reported.get_or_insert_default();
            reported.prompt_tokens += usage.prompt_tokens;
            reported.cached_tokens += cached;
        }
        if let Some(name) = &answer.endpoint {
            let share = self.share(name);
            share.requests += 1;
            share.prompt_tokens += usage.prompt_tokens;
            if let Some(cached) = usage.cached_tokens {
                *share.cached_tokens.get_or_insert(0) += cached;
            }
        }
    }

    /// A request that failed. The first sentence of each kind is kept as its example.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failed += 1;
        let entry = self.errors.entry(failure.kind.to_string()).or_insert((0, failure.message));
        entry.0 += 1;
    }

    /// A request of an open loop that started after it was due.
    pub(crate) fn start_late(&mut self) {
        self.late_starts += 1;
    }

    /// The report; `wall` is the time of the whole run, `abandoned` the requests it left in flight.
    pub(crate) fn report(&self, wall: Duration, abandoned: u64) -> LoadReport {
        let wall_s = wall.as_secs_f64();
        let per_second = |count: u64| if wall_s > 0.0 { count as f64 / wall_s } else { 0.0 };
        let per_endpoint: BTreeMap<String, EndpointShare> =
            self.endpoints.iter().map(|(name, share)| (name.to_string(), share.clone())).collect();
        LoadReport {
            requests: self.succeeded + self.failed,
            succeeded: self.succeeded,
            failed: self.failed,
            abandoned,
            errors: self.errors.iter().map(|(kind, (count, _))| (kind.clone(), *count)).collect(),
            error_examples: self
                .errors
                .iter()
                .map(|(kind, (_, text))| (kind.clone(), text.clone()))
                .collect(),
            ttft_ms: percentiles(&self.ttft),
            total_ms: percentiles(&self.total),
            throughput_rps: per_second(self.succeeded),
            output_tokens_per_s: per_second(self.completion_tokens),
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_tokens: self.reported.map(|reported| reported.cached_tokens),
            hit_rate: self
                .reported
                .filter(|reported| reported.prompt_tokens > 0)
                .map(|reported| reported.cached_tokens as f64 / reported.prompt_tokens as f64),
            endpoint_source: (!per_endpoint.is_empty()).then_some(EndpointSource::Header),
            per_endpoint,
            late_starts: self.late_starts,
            wall_s,
        }
    }

    fn share(&mut self, name: &Arc<str>) -> &mut EndpointShare {
        let known = self.endpoints.contains_key(name) || self.endpoints.len() < MAX_ENDPOINTS;
        let key = if known { Arc::clone(name) } else { Arc::from(OTHER_ENDPOINTS) };
        self.endpoints.entry(key).or_default()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn percentiles(histogram: &Histogram<u64>) -> Option<Percentiles> {
    if histogram.is_empty() {
        return None;
    }
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Some(Percentiles {
        p50: at(0.50),
        p90: at(0.90),
        p95: at(0.95),
        p99: at(0.99),
        mean: histogram.mean() / 1000.0,
        max: histogram.max() as f64 / 1000.0,
    })
}

#[cfg(test)]
mod tests {
    use kvasir_core::Usage;

    use super::*;
    use crate::failure::FailureKind;

    fn answer(
        due: Instant,
        ttft_ms: u64,
        total_ms: u64,
        cached: Option<u64>,
        endpoint: Option<&str>,
    ) -> Answer {
        Answer {
            first_content: Some(due + Duration::from_millis(ttft_ms)),
            finished: due + Duration::from_millis(total_ms),
            text: String::new(),
            usage: Some(Usage { prompt_tokens: 100, completion_tokens: 5, cached_tokens: cached }),
            endpoint: endpoint.map(Arc::from),
        }
    }

    #[test]
    fn percentiles_are_those_of_the_latencies() {
        let mut tally = Tally::new().unwrap();
        let due = Instant::now();
        for ms in 1..=100 {
            tally.succeed(due, &answer(due, ms, ms * 10, None, None));
        }
        let report = tally.report(Duration::from_secs(2), 0);
        let ttft = report.ttft_ms.unwrap();
        for (name, value, expected) in [
            ("p50", ttft.p50, 50.0),
            ("p90", ttft.p90, 90.0),
            ("p95", ttft.p95, 95.0),
            ("p99", ttft.p99, 99.0),
            ("mean", ttft.mean, 50.5),
            ("max", ttft.max, 100.0),
            ("total p50", report.total_ms.unwrap().p50, 500.0),
        ] {
            assert!((value - expected).abs() <= expected / 500.0, "{name} is {value}, not {expected}");
        }
        assert_eq!((report.throughput_rps, report.output_tokens_per_s), (50.0, 250.0));
    }

    #[test]
    fn the_hit_rate_counts_only_who_reported() {
        let mut tally = Tally::new().unwrap();
        let due = Instant::now();
        tally.succeed(due, &answer(due, 1, 2, Some(80), Some("a")));
        tally.succeed(due, &answer(due, 1, 2, Some(0), Some("a")));
        tally.succeed(due, &answer(due, 1, 2, None, Some("b")));
        let report = tally.report(Duration::from_secs(1), 0);
        assert_eq!((report.prompt_tokens, report.cached_tokens, report.hit_rate), (300, Some(80), Some(0.4)));
        assert_eq!(
            report.per_endpoint["a"],
            EndpointShare { requests: 2, prompt_tokens: 200, cached_tokens: Some(80) }
        );
        assert_eq!(report.per_endpoint["b"].cached_tokens, None);
        assert_eq!(report.spread(), Some(2.0 / 1.5));
    }

    #[test]
    fn errors_are_counted_by_kind_with_one_example() {
        let mut tally = Tally::new().unwrap();
        tally.fail(Failure::status(503, b"busy"));
        tally.fail(Failure::status(503, b"still busy"));
        tally.fail(Failure::new(FailureKind::StreamCut, "cut"));
        let report = tally.report(Duration::from_secs(1), 4);
        assert_eq!((report.requests, report.failed, report.abandoned), (3, 3, 4));
        assert_eq!(report.errors, BTreeMap::from([("http_503".to_owned(), 2), ("stream_cut".to_owned(), 1)]));
        assert_eq!(report.error_examples["http_503"], "HTTP 503: busy");
        assert_eq!((report.ttft_ms, report.hit_rate), (None, None));
    }

    #[test]
    fn a_header_that_never_repeats_does_not_grow_the_report() {
        let mut tally = Tally::new().unwrap();
        let due = Instant::now();
        for index in 0..2000 {
            tally.succeed(due, &answer(due, 1, 2, None, Some(&index.to_string())));
        }
        let report = tally.report(Duration::from_secs(1), 0);
        assert_eq!(report.per_endpoint.len(), MAX_ENDPOINTS + 1);
        assert_eq!(report.per_endpoint[OTHER_ENDPOINTS].requests, 2000 - MAX_ENDPOINTS as u64);
    }
}
