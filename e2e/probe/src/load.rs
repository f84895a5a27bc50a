//! Plays a workload: closed loop or open loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Amount, LoadConfig, LoadMode};
use crate::engines::{Counters, Engines};
use crate::error::ProbeError;
use crate::exchange::{Caller, HttpCaller};
use crate::progress::Progress;
use crate::report::{EndpointShare, EndpointSource, LoadReport};
use crate::script::Script;
use crate::tally::Tally;

/// A start this close to its due time is on time: the runtime's timer ticks in milliseconds, and its rounding is
/// not the server's latency. A start later than this counts from when it was due.
const TIMER_TICK: Duration = Duration::from_millis(2);

/// What the workers of a run share.
#[derive(Debug)]
struct Run<C> {
    caller: C,
    script: Script,
    /// Requests at most.
    limit: Option<u64>,
    /// No request starts from here on.
    deadline: Option<Instant>,
    next_dialogue: AtomicU64,
    tally: Mutex<Tally>,
    progress: Arc<Progress>,
}

/// Plays the workload to its end, or until `stop`. Requests in flight at `stop` are dropped and counted as
/// abandoned.
pub async fn run_load(config: LoadConfig, stop: CancellationToken) -> Result<LoadReport, ProbeError> {
    run_load_watched(config, stop, Arc::new(Progress::default())).await
}

/// The same, with counters to watch. `progress` must be fresh.
pub async fn run_load_watched(
    config: LoadConfig,
    stop: CancellationToken,
    progress: Arc<Progress>,
) -> Result<LoadReport, ProbeError> {
    let engines = Engines::new(&config.target.engines)?;
    let caller = HttpCaller::new(&config.target)?;
    let before = engines.read().await?;
    let mut report = play(caller, &config, stop, progress).await?;
    if report.per_endpoint.is_empty() && !engines.is_empty() {
        let after = engines.read().await?;
        report.per_endpoint = shares(&engines, &before, &after);
        report.endpoint_source = Some(EndpointSource::Metrics);
    }
    Ok(report)
}

async fn play<C: Caller>(
    caller: C,
    config: &LoadConfig,
    stop: CancellationToken,
    progress: Arc<Progress>,
) -> Result<LoadReport, ProbeError> {
    config.check()?;
    let script = Script::new(config)?;
    let began = Instant::now();
    let (limit, deadline) = match config.amount {
        Amount::Requests(count) => {
            progress.expect(count);
            (Some(count), None)
        }
        Amount::Duration(duration) => (None, Some(began + duration)),
    };
    let run = Arc::new(Run {
        caller,
        script,
        limit,
        deadline,
        next_dialogue: AtomicU64::new(0),
        tally: Mutex::new(Tally::new()?),
        progress,
    });
    // Dropping the loop drops its tasks, and with them every connection in flight.
    stop.run_until_cancelled(async {
        match config.mode {
            LoadMode::Closed { concurrency } => closed_loop(&run, concurrency).await,
            LoadMode::Open { rate_per_s, seed } => {
                open_loop(&run, rate_per_s, seed, config.max_in_flight).await;
            }
        }
    })
    .await;
    let report = run.tally.lock().report(began.elapsed(), run.progress.in_flight());
    Ok(report)
}

async fn closed_loop<C: Caller>(run: &Arc<Run<C>>, concurrency: usize) {
    let mut workers = JoinSet::new();
    for _ in 0..concurrency {
        let run = Arc::clone(run);
        workers.spawn(async move { while run.claim() && run.converse(None).await {} });
    }
    workers.join_all().await;
}

async fn open_loop<C: Caller>(run: &Arc<Run<C>>, rate_per_s: f64, seed: u64, max_in_flight: usize) {
    let mut gaps = StdRng::seed_from_u64(seed);
    let dialogues_per_s = rate_per_s / f64::from(run.script.workload().turns());
    let places = Arc::new(Semaphore::new(max_in_flight));
    let mut dialogues = JoinSet::new();
    let mut due = Instant::now();
    loop {
        due += exponential_gap(&mut gaps, dialogues_per_s);
        if run.deadline.is_some_and(|deadline| due >= deadline) {
            break;
        }
        tokio::time::sleep_until(due).await;
        // A full house delays the start, never the due time, so the delay is measured.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
        if !run.claim() {
            break;
        }
        let lateness = Instant::now().duration_since(due);
        let counted_from = if lateness > TIMER_TICK { Some(due) } else { None };
        let task = Arc::clone(run);
        dialogues.spawn(async move {
            task.converse(counted_from).await;
            drop(place);
        });
        while dialogues.try_join_next().is_some() {}
    }
    dialogues.join_all().await;
}

impl<C: Caller> Run<C> {
    /// The right to start one request.
    fn claim(&self) -> bool {
        let in_time = self.deadline.is_none_or(|deadline| Instant::now() < deadline);
        in_time && self.progress.start(self.limit)
    }

    /// Plays the next conversation, whose first request is claimed already. A failed turn ends it: what would
    /// have been said next depends on the answer. `false` when no further request may start.
    async fn converse(&self, due: Option<Instant>) -> bool {
        let mut dialogue = self.script.open(self.next_dialogue.fetch_add(1, Ordering::Relaxed));
        let mut late = due;
        loop {
            let body = dialogue.next_body();
            let keep_text = dialogue.has_next();
            let late_due = late.take();
            let due = late_due.unwrap_or_else(Instant::now);
            let outcome = self.caller.call(body, keep_text).await;
            self.progress.end(outcome.is_ok());
            let answer = {
                let mut tally = self.tally.lock();
                if late_due.is_some() {
                    tally.start_late();
                }
                match outcome {
                    Ok(answer) => {
                        tally.succeed(due, &answer);
                        answer
                    }
                    Err(failure) => {
                        tally.fail(failure);
                        return true;
                    }
                }
            };
            if !keep_text {
                return true;
            }
            dialogue.hear(&answer.text);
            self.think().await;
            if !self.claim() {
                return false;
            }
        }
    }

    async fn think(&self) {
        let until = Instant::now() + self.script.workload().think_time();
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        if until > Instant::now() {
            tokio::time::sleep_until(until).await;
        }
    }
}

/// The time to the next arrival of a Poisson process.
fn exponential_gap(rng: &mut StdRng, rate_per_s: f64) -> Duration {
    // 1 - u is in (0, 1], so its logarithm is finite.
    let u: f64 = rng.random();
    Duration::from_secs_f64(-(1.0 - u).ln() / rate_per_s)
}

fn shares(
    engines: &Engines,
    before: &[Counters],
    after: &[Counters],
) -> std::collections::BTreeMap<String, EndpointShare> {
    let rises = before.iter().zip(after).enumerate();
    rises
        .filter_map(|(index, (before, after))| {
            let share = EndpointShare {
                requests: after.requests_since(before).unwrap_or(0),
                prompt_tokens: after.prompt_tokens_since(before),
                cached_tokens: after.cached_tokens_since(before),
            };
            engines.name(index).map(|name| (name, share))
        })
        .collect()
}

#[cfg(test)]
mod tests;
