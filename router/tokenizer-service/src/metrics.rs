//! What the service counts, and the page that shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use kvasir_telemetry::Page;
use kvasir_telemetry::names::{Family, Kind};
use parking_lot::Mutex;

use crate::board::{Line, Status};

const fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind, labels, buckets: &[], help }
}

/// Answers.
pub const REQUESTS: Family = family(
    "kvasir_tokenizer_service_requests_total",
    Kind::Counter,
    &["path", "model", "status"],
    "Answers by path, model (`unknown` for names that are not served) and status.",
);

/// Time.
pub const SECONDS: Family = family(
    "kvasir_tokenizer_service_request_seconds_total",
    Kind::Counter,
    &["path", "model", "status"],
    "Seconds from a request's head to its answer, summed; divide by the requests for the mean.",
);

/// Bytes.
pub const BYTES: Family = family(
    "kvasir_tokenizer_service_request_bytes_total",
    Kind::Counter,
    &["path", "model", "status"],
    "Bytes of request bodies that were answered.",
);

/// States.
pub const STATE: Family = family(
    "kvasir_tokenizer_service_model_state",
    Kind::Gauge,
    &["model", "engine", "status"],
    "1 for a model's state: loading, ready, failed; the engine is native, render, or empty while that is open.",
);

/// Restarts.
pub const RESTARTS: Family = family(
    "kvasir_tokenizer_service_renderer_restarts_total",
    Kind::Counter,
    &["model"],
    "Restarts of a model's renderer since the model was added.",
);

/// All of them, for the guide.
pub const ALL: [&Family; 5] = [&REQUESTS, &SECONDS, &BYTES, &STATE, &RESTARTS];

/// Path, model, status.
type Labels = (&'static str, String, u16);

#[derive(Clone, Copy, Default, Debug)]
struct Sums {
    requests: u64,
    seconds: f64,
    bytes: u64,
}

/// The counters. Labels come from the board and a fixed set of paths, so that their number is bounded.
#[derive(Debug, Default)]
pub struct ServiceMetrics {
    sums: Mutex<BTreeMap<Labels, Sums>>,
}

impl ServiceMetrics {
    /// Counts one answer. `model` is a served name, or none.
    pub fn answered(
        &self,
        path: &'static str,
        model: Option<&str>,
        status: u16,
        took: Duration,
        bytes: usize,
    ) {
        let labels = (path, model.unwrap_or("unknown").to_owned(), status);
        let mut all = self.sums.lock();
        let sums = all.entry(labels).or_default();
        sums.requests += 1;
        sums.seconds += took.as_secs_f64();
        sums.bytes += bytes as u64;
    }

    /// The page.
    pub fn page(&self, lines: &[Line]) -> String {
        // What models that were taken away counted goes with them.
        let known = |model: &str| model == "unknown" || lines.iter().any(|line| line.model == model);
        let mut sums = self.sums.lock();
        sums.retain(|(_, model, _), _| known(model));
        let rows: Vec<(&Labels, Sums, String)> =
            sums.iter().map(|(labels, sums)| (labels, *sums, labels.2.to_string())).collect();
        let mut page = Page::default();
        let mut counter = |family: &Family, of: fn(&Sums) -> f64| {
            page.family(
                family,
                rows.iter().map(|((path, model, _), sums, status)| {
                    (vec![*path, model.as_str(), status.as_str()], of(sums))
                }),
            );
        };
        counter(&REQUESTS, |sums| sums.requests as f64);
        counter(&SECONDS, |sums| sums.seconds);
        counter(&BYTES, |sums| sums.bytes as f64);
        let states = [Status::Loading, Status::Ready, Status::Failed];
        page.family(
            &STATE,
            lines.iter().flat_map(|line| {
                states.map(|status| {
                    let is = if line.status == status { 1.0 } else { 0.0 };
                    (vec![line.model.as_str(), line.engine, status.as_str()], is)
                })
            }),
        );
        page.family(&RESTARTS, lines.iter().map(|line| (vec![line.model.as_str()], line.restarts as f64)));
        page.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(model: &str) -> Line {
        Line {
            model: model.to_owned(),
            source: "/m".to_owned(),
            status: Status::Ready,
            engine: "render",
            port: 8200,
            restarts: 2,
            last_error: String::new(),
        }
    }

    #[test]
    fn answers_and_states_are_shown_and_go_with_their_model() {
        let metrics = ServiceMetrics::default();
        metrics.answered("/tokenize", Some("m"), 200, Duration::from_millis(500), 10);
        metrics.answered("/tokenize", Some("m"), 200, Duration::from_millis(250), 5);
        metrics.answered("/tokenize", None, 503, Duration::ZERO, 1);
        let page = metrics.page(&[line("m")]);
        for expected in [
            "kvasir_tokenizer_service_requests_total{path=\"/tokenize\",model=\"m\",status=\"200\"} 2",
            "kvasir_tokenizer_service_requests_total{path=\"/tokenize\",model=\"unknown\",status=\"503\"} 1",
            "kvasir_tokenizer_service_request_seconds_total{path=\"/tokenize\",model=\"m\",status=\"200\"} 0.75",
            "kvasir_tokenizer_service_request_bytes_total{path=\"/tokenize\",model=\"m\",status=\"200\"} 15",
            "kvasir_tokenizer_service_model_state{model=\"m\",engine=\"render\",status=\"ready\"} 1",
            "kvasir_tokenizer_service_model_state{model=\"m\",engine=\"render\",status=\"failed\"} 0",
            "kvasir_tokenizer_service_renderer_restarts_total{model=\"m\"} 2",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
        let page = metrics.page(&[]);
        assert!(!page.contains("model=\"m\"") && page.contains("unknown"), "{page}");
    }
}
