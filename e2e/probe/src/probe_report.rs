//! What a probe saw, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::report::EndpointSource;
use crate::verdict::Verdict;

/// The result of a probe.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProbeReport {
    /// Where the requests went.
    pub url: String,
    /// The model that was asked.
    pub model: String,
    /// The verdict over both parts.
    pub verdict: Verdict,
    /// Requests that failed.
    pub failed: u64,
    /// How engines were told apart; `None` when they were not.
    pub engine_source: Option<EndpointSource>,
    /// The requests sent one after the other.
    pub sequential: PhaseReport,
    /// The requests sent at once, when there were any.
    pub concurrent: Option<PhaseReport>,
}

/// One part of a probe.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseReport {
    /// The verdict over this part.
    pub verdict: Verdict,
    /// Why, one sentence.
    pub reason: String,
    /// The requests, in the order of their numbers.
    pub requests: Vec<RequestLine>,
    /// Prompt tokens that each engine took meanwhile, by its own counter; empty when no engine was named.
    pub prompt_tokens_by_engine: BTreeMap<String, u64>,
}

/// One request of a probe.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RequestLine {
    /// From 1.
    pub number: u32,
    /// Who served it.
    pub engine: Option<String>,
    /// Prompt tokens, as the engine counts them.
    pub prompt_tokens: Option<u64>,
    /// Those that all requests share: the engine's count times the shared part of the words.
    pub shared_tokens: Option<u64>,
    /// Those that came out of the cache, when the engine says so.
    pub cached_tokens: Option<u64>,
    /// Milliseconds to the first generated content.
    pub ttft_ms: Option<f64>,
    /// Milliseconds to the end of the answer.
    pub total_ms: Option<f64>,
    /// Kind of failure.
    pub error: Option<String>,
    /// Its sentence.
    pub error_message: Option<String>,
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} at {}", self.model, self.url)?;
        let phases = [("one after the other", Some(&self.sequential)), ("at once", self.concurrent.as_ref())];
        let lines = phases.iter().filter_map(|(_, phase)| *phase).flat_map(|phase| &phase.requests);
        let width = lines.map(|line| line.engine().chars().count()).max().unwrap_or(0).max(8) + 2;
        for (name, phase) in phases {
            let Some(phase) = phase else { continue };
            writeln!(f, "\n{name}: {} ({})", phase.verdict, phase.reason)?;
            write!(f, "{:>3}  {:<width$}{:>9}{:>9}{:>9}", "#", "engine", "prompt", "shared", "cached")?;
            writeln!(f, "{:>12}{:>12}", "ttft ms", "total ms")?;
            for line in &phase.requests {
                line.write(f, width)?;
            }
        }
        writeln!(f, "\nverdict: {}", self.verdict)
    }
}

impl RequestLine {
    fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or("?")
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        write!(f, "{:>3}  {:<width$}", self.number, self.engine())?;
        if let (Some(kind), Some(message)) = (&self.error, &self.error_message) {
            return writeln!(f, "{kind}: {message}");
        }
        for count in [self.prompt_tokens, self.shared_tokens, self.cached_tokens] {
            match count {
                Some(count) => write!(f, "{count:>9}")?,
                None => write!(f, "{:>9}", "-")?,
            }
        }
        for time in [self.ttft_ms, self.total_ms] {
            match time {
                Some(time) => write!(f, "{time:>12.1}")?,
                None => write!(f, "{:>12}", "-")?,
            }
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_errors_are_written_out() {
        let good = RequestLine {
            number: 1,
            engine: Some("http://engine-with-a-name:8000".to_owned()),
            prompt_tokens: Some(19_443),
            shared_tokens: Some(19_400),
            cached_tokens: None,
            ttft_ms: Some(812.25),
            total_ms: Some(900.0),
            ..RequestLine::default()
        };
        let bad = RequestLine {
            number: 2,
            error: Some("http_503".to_owned()),
            error_message: Some("HTTP 503: busy".to_owned()),
            ..RequestLine::default()
        };
        let phase = PhaseReport {
            verdict: Verdict::Unknown,
            reason: "request 2 failed".to_owned(),
            requests: vec![good, bad],
            prompt_tokens_by_engine: BTreeMap::new(),
        };
        let report = ProbeReport {
            url: "http://router".to_owned(),
            model: "m".to_owned(),
            verdict: Verdict::Unknown,
            failed: 1,
            engine_source: None,
            sequential: phase.clone(),
            concurrent: Some(phase),
        };
        let table = report.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[3].len(), lines[4].len(), "{table}");
        assert!(lines[5].ends_with("http_503: HTTP 503: busy"), "{table}");
        assert!(table.ends_with("verdict: unknown\n"), "{table}");
    }
}
