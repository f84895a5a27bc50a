//! The demo's result: a table for people, an object for machines.

use anyhow::Context as _;
use kvasir_probe::LoadReport;
use serde_json::{Value, json};

use super::Policy;
use crate::explain::table;

/// One report for each policy.
#[derive(Debug)]
pub(super) struct Rows(Vec<(Policy, LoadReport)>);

impl Rows {
    pub(super) fn new(rows: Vec<(Policy, LoadReport)>) -> anyhow::Result<Self> {
        for (policy, report) in &rows {
            report
                .hit_rate
                .with_context(|| format!("{} routing: no engine reported cached tokens", policy.title()))?;
            report
                .ttft_ms
                .as_ref()
                .with_context(|| format!("{} routing: no answer was streamed", policy.title()))?;
        }
        Ok(Self(rows))
    }

    /// Failed requests over all runs.
    pub(super) fn errors(&self) -> u64 {
        self.0.iter().map(|(_, report)| report.failed).sum()
    }

    pub(super) fn table(&self) -> String {
        let head =
            ["routing", "hit rate", "TTFT p50", "TTFT p95", "requests/s", "errors", "requests per engine"];
        let rows = self.0.iter().map(|(policy, report)| {
            let spread: Vec<String> =
                report.per_endpoint.values().map(|share| share.requests.to_string()).collect();
            vec![
                policy.title().to_owned(),
                format!("{:.1} %", 100.0 * report.hit_rate.unwrap_or(0.0)),
                milliseconds(report.ttft_ms.as_ref().map(|ttft| ttft.p50)),
                milliseconds(report.ttft_ms.as_ref().map(|ttft| ttft.p95)),
                format!("{:.0}", report.throughput_rps),
                report.failed.to_string(),
                spread.join(" / "),
            ]
        });
        let mut text = table(&head, rows.collect());
        text.push_str(
            "\nHit rate: prompt tokens that came out of an engine's cache. TTFT: time to the first token.\n\
             Next: README.md (two vLLM servers), docs/architecture.md (how it works), kvasir router --help\n",
        );
        text
    }

    pub(super) fn json(&self) -> String {
        let mut object = serde_json::Map::new();
        for (policy, report) in &self.0 {
            let key = match policy {
                Policy::Random => "random",
                Policy::KvAware => "kv_aware",
                Policy::PerfectKnowledge => "best_possible",
            };
            let value: Value = json!({
                "hit_rate": report.hit_rate,
                "ttft_ms": {"p50": report.ttft_ms.as_ref().map(|ttft| ttft.p50), "p95": report.ttft_ms.as_ref().map(|ttft| ttft.p95)},
                "requests": report.requests,
                "errors": report.failed,
                "throughput_rps": report.throughput_rps,
                "per_engine": report.per_endpoint.values().map(|share| share.requests).collect::<Vec<_>>(),
            });
            object.insert(key.to_owned(), value);
        }
        format!("{:#}\n", Value::Object(object))
    }
}

fn milliseconds(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} ms"))
}
