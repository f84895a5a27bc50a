//! What a load run measured, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// The result of a load run. Latencies are those of the requests that succeeded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadReport {
    /// Requests that ended, well or not.
    pub requests: u64,
    /// Requests that ended well.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests in flight when the run was stopped; they count nowhere else.
    pub abandoned: u64,
    /// Failed requests by kind: `connect`, `timeout`, `closed`, `http_STATUS`, `bad_answer`, `stream_cut`,
    /// `no_finish`, `error_event`, `too_large`.
    pub errors: BTreeMap<String, u64>,
    /// The first sentence seen of each kind.
    pub error_examples: BTreeMap<String, String>,
    /// Milliseconds to the first generated content; `None` when nothing was streamed.
    pub ttft_ms: Option<Percentiles>,
    /// Milliseconds to the end of the answer.
    pub total_ms: Option<Percentiles>,
    /// Requests that ended well, a second.
    pub throughput_rps: f64,
    /// Generated tokens a second, as the engines count them.
    pub output_tokens_per_s: f64,
    /// Prompt tokens, as the engines count them.
    pub prompt_tokens: u64,
    /// Generated tokens, as the engines count them.
    pub completion_tokens: u64,
    /// Prompt tokens that came out of a cache; `None` when no answer said so.
    pub cached_tokens: Option<u64>,
    /// Cached over prompt tokens, 0 to 1, over the answers that say how many were cached.
    pub hit_rate: Option<f64>,
    /// Where [`Self::per_endpoint`] comes from; `None` when it is empty.
    pub endpoint_source: Option<EndpointSource>,
    /// Who served how much.
    pub per_endpoint: BTreeMap<String, EndpointShare>,
    /// Requests of an open loop that started after they were due; their wait is in their latency.
    pub late_starts: u64,
    /// Seconds from the first start to the last end.
    pub wall_s: f64,
}

/// Latencies, milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Percentiles {
    /// Half were as fast as this.
    pub p50: f64,
    /// 90 % were.
    pub p90: f64,
    /// 95 % were.
    pub p95: f64,
    /// 99 % were.
    pub p99: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The slowest.
    pub max: f64,
}

/// How endpoints were told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointSource {
    /// By the endpoint header of the answers.
    Header,
    /// By the engines' own counters, which count everyone's requests.
    Metrics,
}

/// What one endpoint served.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct EndpointShare {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Those that came out of its cache; `None` when it does not say.
    pub cached_tokens: Option<u64>,
}

impl LoadReport {
    /// The busiest endpoint's requests over the mean of all; 1 is even. `None` without endpoints.
    pub fn spread(&self) -> Option<f64> {
        let busiest = self.per_endpoint.values().map(|share| share.requests).max()?;
        let all: u64 = self.per_endpoint.values().map(|share| share.requests).sum();
        (all > 0).then(|| busiest as f64 * self.per_endpoint.len() as f64 / all as f64)
    }

    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ttft_ms.is_none() && self.total_ms.is_none() {
            return Ok(());
        }
        let heads = ["p50", "p90", "p95", "p99", "mean", "max"];
        write!(f, "\n{:<16}", "milliseconds")?;
        for head in heads {
            write!(f, "{head:>11}")?;
        }
        writeln!(f)?;
        for (name, row) in [("first token", &self.ttft_ms), ("whole answer", &self.total_ms)] {
            let Some(row) = row else { continue };
            write!(f, "{name:<16}")?;
            for value in [row.p50, row.p90, row.p95, row.p99, row.mean, row.max] {
                write!(f, "{value:>11.2}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn write_endpoints(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.per_endpoint.is_empty() {
            return Ok(());
        }
        let width = self.per_endpoint.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(16);
        write!(f, "\n{:<width$}{:>11}{:>15}{:>15}", "endpoint", "requests", "prompt tokens", "cached")?;
        writeln!(f, "{:>11}", "hit rate")?;
        for (name, share) in &self.per_endpoint {
            write!(f, "{name:<width$}{:>11}{:>15}", share.requests, share.prompt_tokens)?;
            match share.cached_tokens {
                Some(cached) if share.prompt_tokens > 0 => {
                    writeln!(f, "{cached:>15}{:>11.3}", cached as f64 / share.prompt_tokens as f64)?;
                }
                Some(cached) => writeln!(f, "{cached:>15}{:>11}", "-")?,
                None => writeln!(f, "{:>15}{:>11}", "-", "-")?,
            }
        }
        if let Some(spread) = self.spread() {
            writeln!(f, "the busiest has {spread:.2} times the mean")?;
        }
        if self.endpoint_source == Some(EndpointSource::Metrics) {
            writeln!(f, "(by the engines' counters, which count everyone's requests)")?;
        }
        Ok(())
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}{} ended, {} failed", "requests", self.requests, self.failed)?;
        if self.abandoned > 0 {
            write!(f, ", {} abandoned", self.abandoned)?;
        }
        writeln!(f, ", in {:.2} s", self.wall_s)?;
        write!(f, "{:<16}{:.1} requests/s", "throughput", self.throughput_rps)?;
        writeln!(f, ", {:.1} output tokens/s", self.output_tokens_per_s)?;
        write!(f, "{:<16}{}", "prompt tokens", self.prompt_tokens)?;
        match (self.cached_tokens, self.hit_rate) {
            (Some(cached), Some(rate)) => writeln!(f, ", {cached} cached, hit rate {rate:.3}")?,
            _ => writeln!(f, ", cached tokens not reported")?,
        }
        if self.late_starts > 0 {
            writeln!(f, "{:<16}{} (their wait is in their latency)", "late starts", self.late_starts)?;
        }
        self.write_latencies(f)?;
        self.write_endpoints(f)?;
        if !self.errors.is_empty() {
            writeln!(f, "\n{:<16}{:>11}  first message", "error", "requests")?;
        }
        for (kind, count) in &self.errors {
            let example = self.error_examples.get(kind).map_or("", String::as_str);
            writeln!(f, "{kind:<16}{count:>11}  {example}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> LoadReport {
        let row = Percentiles { p50: 7.6, p90: 10.0, p95: 12.6, p99: 208.0, mean: 9.0, max: 300.25 };
        let share = |requests, cached_tokens| EndpointShare { requests, prompt_tokens: 1000, cached_tokens };
        LoadReport {
            requests: 10,
            succeeded: 9,
            failed: 1,
            abandoned: 0,
            errors: BTreeMap::from([("http_503".to_owned(), 1)]),
            error_examples: BTreeMap::from([("http_503".to_owned(), "HTTP 503: busy".to_owned())]),
            ttft_ms: Some(row),
            total_ms: Some(row),
            throughput_rps: 4.5,
            output_tokens_per_s: 288.0,
            prompt_tokens: 2000,
            completion_tokens: 576,
            cached_tokens: Some(1500),
            hit_rate: Some(0.75),
            endpoint_source: Some(EndpointSource::Metrics),
            per_endpoint: BTreeMap::from([
                ("http://127.0.0.1:8001".to_owned(), share(6, Some(950))),
                ("http://127.0.0.1:8002".to_owned(), share(3, None)),
            ]),
            late_starts: 2,
            wall_s: 2.0,
        }
    }

    #[test]
    fn the_table_is_aligned() {
        let table = report().to_string();
        let lines: Vec<&str> = table.lines().collect();
        let length_of = |start: &str| lines.iter().find(|line| line.starts_with(start)).unwrap().len();
        assert_eq!(length_of("milliseconds"), length_of("first token"), "{table}");
        assert_eq!(length_of("first token"), length_of("whole answer"), "{table}");
        assert_eq!(length_of("endpoint"), length_of("http://127.0.0.1:8001"), "{table}");
        assert_eq!(length_of("endpoint"), length_of("http://127.0.0.1:8002"), "{table}");
        for part in ["10 ended, 1 failed", "hit rate 0.750", "HTTP 503: busy", "1.33 times", "late starts"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
    }

    #[test]
    fn the_json_has_the_promised_names() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["ttft_ms"]["p99"], 208.0);
        assert_eq!(json["errors"]["http_503"], 1);
        assert_eq!(json["per_endpoint"]["http://127.0.0.1:8001"]["cached_tokens"], 950);
        assert_eq!(json["endpoint_source"], "metrics");
        assert_eq!(json["hit_rate"], 0.75);
    }
}
