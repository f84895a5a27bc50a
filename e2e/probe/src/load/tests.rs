//! Tests of the loops, in virtual time with a caller that only waits.

use std::collections::BTreeSet;

use bytes::Bytes;
use kvasir_core::Usage;
use serde_json::Value;

use super::*;
use crate::exchange::Answer;
use crate::failure::{Failure, FailureKind};
use crate::workload::Workload;

/// Answers after a while, and remembers everything.
#[derive(Clone, Default)]
struct FakeCaller {
    log: Arc<Mutex<Log>>,
    takes: Duration,
    /// Calls whose number is in here fail.
    fails: BTreeSet<u64>,
}

#[derive(Default)]
struct Log {
    bodies: Vec<Bytes>,
    starts: Vec<Instant>,
    running: usize,
    most_running: usize,
}

impl Caller for FakeCaller {
    async fn call(&self, body: Bytes, _keep_text: bool) -> Result<Answer, Failure> {
        let number = {
            let mut log = self.log.lock();
            log.bodies.push(body);
            log.starts.push(Instant::now());
            log.running += 1;
            log.most_running = log.most_running.max(log.running);
            log.bodies.len() as u64
        };
        tokio::time::sleep(self.takes).await;
        self.log.lock().running -= 1;
        if self.fails.contains(&number) {
            return Err(Failure::new(FailureKind::StreamCut, "cut"));
        }
        Ok(Answer {
            first_content: Some(Instant::now()),
            finished: Instant::now(),
            text: format!("answer {number}"),
            usage: Some(Usage { prompt_tokens: 10, completion_tokens: 2, cached_tokens: Some(5) }),
            endpoint: None,
        })
    }
}

fn caller(takes_ms: u64) -> FakeCaller {
    FakeCaller { takes: Duration::from_millis(takes_ms), ..FakeCaller::default() }
}

async fn play_with(caller: &FakeCaller, config: &LoadConfig) -> LoadReport {
    play(caller.clone(), config, CancellationToken::new(), Arc::default()).await.unwrap()
}

fn short(mode: LoadMode, amount: Amount) -> LoadConfig {
    LoadConfig { mode, amount, ..LoadConfig::new("http://a", "m", Workload::Short) }
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_keeps_its_clients_busy_and_sends_exactly_what_was_asked() {
    let caller = caller(100);
    let report = play_with(&caller, &short(LoadMode::Closed { concurrency: 4 }, Amount::Requests(10))).await;
    assert_eq!((report.requests, report.succeeded, report.failed), (10, 10, 0));
    assert_eq!(caller.log.lock().most_running, 4);
    assert_eq!(report.wall_s, 0.3, "10 requests of 4 clients are 3 rounds");
    assert_eq!(report.hit_rate, Some(0.5));
    assert_eq!(report.late_starts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_duration_ends_the_starts_and_lets_the_rest_finish() {
    let caller = caller(400);
    let amount = Amount::Duration(Duration::from_secs(1));
    let report = play_with(&caller, &short(LoadMode::Closed { concurrency: 2 }, amount)).await;
    assert_eq!(report.requests, 6, "starts at 0, 0.4 and 0.8 s");
    assert_eq!(report.wall_s, 1.2);
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_starts_at_its_rate_whatever_the_answers_take() {
    let caller = caller(60_000);
    let mode = LoadMode::Open { rate_per_s: 50.0, seed: 3 };
    let report = play_with(&caller, &short(mode, Amount::Duration(Duration::from_secs(20)))).await;
    assert!(
        (900..1100).contains(&report.requests),
        "1000 expected, with a deviation of 32: {}",
        report.requests
    );
    let log = caller.log.lock();
    assert_eq!(log.most_running as u64, report.requests, "nobody waited for an answer");
    assert_eq!(report.late_starts, 0);
    let gaps: Vec<Duration> = log.starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let short_gaps = gaps.iter().filter(|gap| **gap < Duration::from_millis(20)).count();
    let share = short_gaps as f64 / gaps.len() as f64;
    assert!((0.56..0.70).contains(&share), "63 % of exponential gaps are below the mean: {share}");
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_sends_exactly_the_requests_asked_for() {
    let caller = caller(5);
    let mode = LoadMode::Open { rate_per_s: 1000.0, seed: 1 };
    let report = play_with(&caller, &short(mode, Amount::Requests(77))).await;
    assert_eq!(report.requests, 77);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_place_counts_as_latency() {
    // One at a time, one second each, all due within a few milliseconds: the n-th waits n seconds.
    let caller = caller(1000);
    let mode = LoadMode::Open { rate_per_s: 10_000.0, seed: 1 };
    let config = LoadConfig { max_in_flight: 1, ..short(mode, Amount::Requests(10)) };
    let report = play_with(&caller, &config).await;
    assert_eq!(caller.log.lock().most_running, 1);
    let total = report.total_ms.unwrap();
    assert!((total.max - 10_000.0).abs() < 50.0, "{total:?}");
    assert!((total.p50 - 5_000.0).abs() < 50.0, "{total:?}");
    assert_eq!(report.late_starts, 9);
}

fn talk(users: u32, turns: u32, think_time: Duration) -> Workload {
    Workload::MultiTurn { users, turns, system_prompts: 1, system_tokens: 50, turn_tokens: 10, think_time }
}

/// The messages of each body.
fn messages(caller: &FakeCaller) -> Vec<Vec<Value>> {
    let log = caller.log.lock();
    log.bodies
        .iter()
        .map(|body| serde_json::from_slice::<Value>(body).unwrap()["messages"].as_array().unwrap().clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn users_talk_at_once_and_each_turn_holds_the_real_answers() {
    let caller = caller(100);
    let config = LoadConfig {
        mode: LoadMode::Closed { concurrency: 3 },
        amount: Amount::Requests(9),
        ..LoadConfig::new("http://a", "m", talk(3, 3, Duration::from_secs(2)))
    };
    let report = play_with(&caller, &config).await;
    assert_eq!(report.requests, 9);
    assert_eq!(caller.log.lock().most_running, 3);
    assert!((report.wall_s - 4.3).abs() < 0.02, "3 answers and 2 thoughts: {}", report.wall_s);
    let bodies = messages(&caller);
    for turn in bodies.iter().filter(|messages| messages.len() == 6) {
        let earlier = bodies.iter().position(|messages| messages[..] == turn[..4]).unwrap();
        assert_eq!(turn[4]["role"], "assistant");
        assert_eq!(turn[4]["content"], format!("answer {}", earlier + 1), "the answer to that very turn");
    }
    assert_eq!(bodies.iter().filter(|messages| messages.len() == 6).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_ends_its_conversation_and_a_new_one_begins() {
    let caller = FakeCaller { fails: BTreeSet::from([2]), ..caller(10) };
    let config = LoadConfig {
        mode: LoadMode::Closed { concurrency: 1 },
        amount: Amount::Requests(5),
        ..LoadConfig::new("http://a", "m", talk(1, 3, Duration::ZERO))
    };
    let report = play_with(&caller, &config).await;
    assert_eq!((report.succeeded, report.failed), (4, 1));
    assert_eq!(report.errors["stream_cut"], 1);
    let lengths: Vec<usize> = messages(&caller).iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 4, 2, 4, 6]);
}

#[tokio::test(start_paused = true)]
async fn conversations_of_an_open_loop_begin_at_the_rate_over_their_turns() {
    let caller = caller(1);
    let mode = LoadMode::Open { rate_per_s: 40.0, seed: 9 };
    let config = LoadConfig {
        mode,
        amount: Amount::Duration(Duration::from_secs(100)),
        ..LoadConfig::new("http://a", "m", talk(1, 4, Duration::ZERO))
    };
    let report = play_with(&caller, &config).await;
    assert!((3600..4400).contains(&report.requests), "4000 expected: {}", report.requests);
}

#[tokio::test(start_paused = true)]
async fn stopping_leaves_what_is_in_flight_and_reports_the_rest() {
    let caller = caller(1000);
    let stop = CancellationToken::new();
    let config = short(LoadMode::Closed { concurrency: 3 }, Amount::Requests(1000));
    let playing = play(caller.clone(), &config, stop.clone(), Arc::default());
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        stop.cancel();
    };
    let (report, ()) = tokio::join!(playing, stopping);
    let report = report.unwrap();
    assert_eq!((report.requests, report.abandoned), (6, 3));
    assert_eq!(report.wall_s, 2.5);
}
