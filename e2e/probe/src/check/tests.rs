//! Tests of the probe against a small fleet: a router that places by a rule, and engines that count.

use parking_lot::Mutex;

use super::*;
use crate::testing::{Give, Got, Server};

/// How the fake router places request number `n` (from 0).
type Placement = fn(usize) -> usize;

/// What each engine has counted.
type Tokens = Arc<Mutex<Vec<u64>>>;

struct Fleet {
    router: Server,
    engines: Vec<Server>,
}

#[derive(Clone, Copy)]
struct Rules {
    place: Placement,
    header: bool,
    /// Cached tokens of request number `n`, out of its prompt tokens.
    cached: fn(usize, u64) -> Option<u64>,
    fail: fn(usize) -> bool,
}

const RULES: Rules = Rules { place: |_| 1, header: false, cached: |_, _| None, fail: |_| false };

async fn fleet(rules: Rules) -> Fleet {
    let counted: Tokens = Arc::new(Mutex::new(vec![0; 2]));
    let mut engines = Vec::new();
    for index in 0..2 {
        let counted = Arc::clone(&counted);
        let page = move |_: &Got| {
            let tokens = counted.lock()[index];
            Give::new(200, "text/plain", format!("vllm:prompt_tokens_total{{engine=\"0\"}} {tokens}.0\n"))
        };
        engines.push(Server::start(page).await);
    }
    let seen = Mutex::new(0usize);
    let router = Server::start(move |got| {
        let number = std::mem::replace(&mut *seen.lock(), 0);
        *seen.lock() = number + 1;
        if (rules.fail)(number) {
            return Give::new(503, "application/json", r#"{"error":{"message":"busy"}}"#);
        }
        let prompt_tokens =
            got.json()["messages"][0]["content"].as_str().unwrap().split_whitespace().count() as u64;
        let engine = (rules.place)(number);
        counted.lock()[engine] += prompt_tokens;
        let give = Give::chat_stream("ok", prompt_tokens, (rules.cached)(number, prompt_tokens));
        if rules.header {
            give.header("x-kvasir-endpoint", &format!("default/engine-{engine}:8000"))
        } else {
            give
        }
    })
    .await;
    Fleet { router, engines }
}

impl Fleet {
    fn config(&self) -> ProbeConfig {
        let mut config = ProbeConfig::new(self.router.url(), "m", "salt");
        config.prefix_tokens = 1300;
        config.tail_tokens = 13;
        config.metrics_wait = Duration::ZERO;
        config
    }

    fn with_engines(&self) -> ProbeConfig {
        let mut config = self.config();
        config.target.engines = self.engines.iter().map(Server::url).collect();
        config
    }
}

async fn probe(config: ProbeConfig) -> ProbeReport {
    run_probe(config, CancellationToken::new()).await.unwrap()
}

#[tokio::test]
async fn one_engine_by_its_counters_is_pinned() {
    let fleet = fleet(RULES).await;
    let report = probe(fleet.with_engines()).await;
    assert_eq!((report.verdict, report.failed), (Verdict::Pinned, 0));
    assert_eq!(report.engine_source, Some(EndpointSource::Metrics));
    assert_eq!(report.sequential.requests.len(), 4);
    let line = &report.sequential.requests[3];
    assert_eq!(line.engine, Some(fleet.engines[1].url()));
    assert_eq!((line.number, line.prompt_tokens, line.shared_tokens), (4, Some(1011), Some(1001)));
    assert!(line.ttft_ms.unwrap() <= line.total_ms.unwrap());
    assert_eq!(report.sequential.prompt_tokens_by_engine[&fleet.engines[1].url()], 4 * 1011);
}

#[tokio::test]
async fn the_requests_share_a_salted_prefix_and_no_more() {
    let fleet = fleet(RULES).await;
    probe(fleet.config()).await;
    let got = fleet.router.got();
    let text = |index: usize| got[index].json()["messages"][0]["content"].as_str().unwrap().to_owned();
    let (prefix, tail) = text(0).split_once("\n\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert!(prefix.starts_with("salt "));
    for index in 1..4 {
        assert!(text(index).starts_with(&prefix));
        assert!(!text(index).ends_with(&tail));
    }
}

#[tokio::test]
async fn the_table_of_fleets() {
    let header = Rules { header: true, ..RULES };
    let rotate: Placement = |number| number % 2;
    for (name, rules, with_engines, expected) in [
        ("rotation, counters", Rules { place: rotate, ..RULES }, true, Verdict::Scattered),
        ("rotation, header", Rules { place: rotate, ..header }, false, Verdict::Scattered),
        ("one, header", header, false, Verdict::Pinned),
        ("one, both", header, true, Verdict::Pinned),
        ("rotation, neither", Rules { place: rotate, ..RULES }, false, Verdict::Unknown),
        (
            "one, cached",
            Rules { cached: |n, all| Some(if n == 0 { 0 } else { all - 16 }), ..header },
            false,
            Verdict::Pinned,
        ),
        ("one, not cached", Rules { cached: |_, _| Some(16), ..header }, false, Verdict::Scattered),
    ] {
        let fleet = fleet(rules).await;
        let config = if with_engines { fleet.with_engines() } else { fleet.config() };
        let report = probe(config).await;
        assert_eq!(report.verdict, expected, "{name}: {}", report.sequential.reason);
    }
}

#[tokio::test]
async fn requests_at_once_are_judged_too() {
    for (name, place, header, expected) in [
        ("all to one, counters", (|_| 0) as Placement, false, Verdict::Pinned),
        ("all to one, header", |_| 0, true, Verdict::Pinned),
        ("one astray, counters", |number| usize::from(number == 5), false, Verdict::Scattered),
        ("one astray, header", |number| usize::from(number == 5), true, Verdict::Scattered),
        ("all elsewhere, counters", |number| usize::from(number >= 4), false, Verdict::Scattered),
    ] {
        let fleet = fleet(Rules { place, header, ..RULES }).await;
        let mut config = if header { fleet.config() } else { fleet.with_engines() };
        config.concurrent = 4;
        let report = probe(config).await;
        assert_eq!(report.sequential.verdict, Verdict::Pinned, "{name}");
        let concurrent = report.concurrent.unwrap();
        assert_eq!(
            (concurrent.verdict, report.verdict),
            (expected, expected),
            "{name}: {}",
            concurrent.reason
        );
        assert_eq!(concurrent.requests.iter().map(|line| line.number).collect::<Vec<_>>(), [5, 6, 7, 8]);
    }
}

#[tokio::test]
async fn a_failed_request_is_in_the_report_and_leaves_no_verdict() {
    let fleet = fleet(Rules { fail: |number| number == 2, ..RULES }).await;
    let report = probe(fleet.with_engines()).await;
    assert_eq!((report.verdict, report.failed), (Verdict::Unknown, 1));
    let line = &report.sequential.requests[2];
    assert_eq!(line.error.as_deref(), Some("http_503"));
    assert_eq!(line.error_message.as_deref(), Some("HTTP 503: busy"));
}

#[tokio::test]
async fn an_engine_without_counters_is_refused() {
    let fleet = fleet(RULES).await;
    let mute = Server::start(|_| Give::new(200, "text/plain", "other 1\n")).await;
    let mut config = fleet.config();
    config.target.engines = vec![mute.url()];
    let error = run_probe(config, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains(&mute.url()), "{error}");
}

#[tokio::test]
async fn stopping_leaves_no_verdict() {
    let fleet = fleet(RULES).await;
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(run_probe(fleet.config(), stop).await.unwrap_err(), ProbeError::Stopped);
}
