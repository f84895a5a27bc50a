//! Churn for a while, then every router's view compared with the engines' truth, and memory that must stay flat.
//!
//! In `make test` this lasts seconds; `make soak` makes it minutes (`KVASIR_SOAK_SECONDS`) and writes down what was seen
//! (`KVASIR_SOAK_REPORT`).

mod churn;
mod comparison;
mod conversations;
mod fleet;
mod samples;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvasir_coordination::testing::TestServer;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use churn::Churn;
use comparison::Comparison;
use fleet::{ENGINES, Fleet, ROUTERS};
use samples::{ALLOWED, SHORTEST, Samples, growth};

/// What the router uses; memory is looked at here.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long the churn lasts where nobody says.
const SECONDS: u64 = 8;

/// After the churn, how long views may take to be the truth: leases of dead agents, back-off, a republication.
const SETTLES: Duration = Duration::from_secs(30);

/// For so long the truth must stay the truth.
const STAYS: Duration = Duration::from_secs(2);

/// Seed of the faults.
const SEED: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn after_much_churn_every_view_is_the_engines_truth_and_memory_is_flat() -> anyhow::Result<()> {
    let lasts = Duration::from_secs(
        told("KVASIR_SOAK_SECONDS").and_then(|text| text.parse().ok()).unwrap_or(SECONDS),
    );
    let redis = TestServer::start().await;
    let fleet = Fleet::start(redis.settings()).await?;
    let churn = Arc::new(Churn::new(fleet, redis));
    let (samples, settled, comparison) = run(&churn, lasts).await?;
    let report = report(&churn, lasts, &samples, settled, &comparison);
    if let Some(path) = told("KVASIR_SOAK_REPORT") {
        std::fs::write(path, report.to_string())?;
    }
    assert!(comparison.is_equal(), "{comparison}");
    assert!(comparison.held_tokens > 0 && comparison.prompts > 0, "{comparison:?}");
    let lost = churn.seen.lost.load(Ordering::Relaxed);
    assert_eq!(lost, 0, "requests were lost, the first: {:?}", churn.seen.first_loss.lock());
    if lasts >= SHORTEST {
        for (of, halves) in [
            ("this process", samples.halves(|sample| Some(sample.resident))),
            ("Redis", samples.halves(|sample| sample.redis)),
        ] {
            let growth = halves.map(growth);
            assert!(growth.is_some_and(|growth| growth <= ALLOWED), "the memory of {of} grew: {halves:?}");
        }
    }
    Ok(())
}

/// The comparison is worth something: what an engine does behind the back of a dead agent is a difference.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_behind_is_told_from_the_truth() -> anyhow::Result<()> {
    let redis = TestServer::start().await;
    let fleet = Fleet::start(redis.settings()).await?;
    let churn = Churn::new(fleet, redis);
    churn.last_word().await?;
    let compare = || Comparison::make(&churn.fleet, &churn.conversations);
    kvasir_suite::eventually("every view is the truth", || compare().is_equal()).await;
    drop(churn.fleet.take_agent(0));
    anyhow::ensure!(
        churn.fleet.engines.first().is_some_and(|engine| engine.reset_prefix_cache()),
        "still busy"
    );
    let behind = compare();
    assert!(behind.differ >= ROUTERS && behind.counts_differ == ROUTERS, "{behind}");
    Ok(())
}

/// Churns, then waits until all is quiet and compares. How long the views took to be the truth, if they ever were.
async fn run(churn: &Arc<Churn>, lasts: Duration) -> anyhow::Result<(Samples, Option<Duration>, Comparison)> {
    let began = Instant::now();
    let end = began + lasts;
    let stop = CancellationToken::new();
    let clients = churn.clients(&stop);
    let every = (lasts / 10).min(Duration::from_secs(10));
    let (samples, broken) =
        tokio::join!(Samples::take(churn, began, end, every), churn.break_things(end, SEED));
    stop.cancel();
    for client in clients {
        client.await?;
    }
    let samples = samples?;
    broken?;
    churn.last_word().await?;
    let quiet = Instant::now();
    let compare = || Comparison::make(&churn.fleet, &churn.conversations);
    let mut comparison = compare();
    while !comparison.is_equal() && quiet.elapsed() < SETTLES {
        tokio::time::sleep(Duration::from_millis(50)).await;
        comparison = compare();
    }
    let settled = comparison.is_equal().then(|| quiet.elapsed());
    if settled.is_some() {
        tokio::time::sleep(STAYS).await;
        comparison = compare();
    }
    Ok((samples, settled, comparison))
}

fn report(
    churn: &Churn,
    lasts: Duration,
    samples: &Samples,
    settled: Option<Duration>,
    comparison: &Comparison,
) -> Value {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let faults = churn.faults.lock().clone();
    json!({
        "seconds": lasts.as_secs(), "engines": ENGINES, "agents": ENGINES, "routers": ROUTERS,
        "requests": count(&churn.seen.requests), "cut": count(&churn.seen.cut), "lost": count(&churn.seen.lost),
        "direct": count(&churn.seen.direct), "first_loss": *churn.seen.first_loss.lock(),
        "faults": {
            "total": faults.total(),
            "engines restarted": faults.engines_restarted,
            "prefix caches reset": faults.caches_reset,
            "event batches lost on the way": faults.batches_dropped,
            "agents killed, back after up to 4 s": faults.agents_killed,
            "agents ended and started again": faults.agents_restarted,
            "Redis killed and started empty": faults.redis_restarted,
        },
        "comparison": {
            "prompts": comparison.prompts, "compared": comparison.compared, "differ": comparison.differ,
            "counts_differ": comparison.counts_differ, "held_tokens": comparison.held_tokens,
            "held_blocks": comparison.held_blocks, "text": comparison.to_string(),
            "settled_seconds": settled.map(|took| took.as_secs_f64()),
        },
        "memory": {
            "allowed": ALLOWED, "is_held": lasts >= SHORTEST,
            "resident": samples.halves(|sample| Some(sample.resident)),
            "redis": samples.halves(|sample| sample.redis),
        },
        "samples": samples.json(),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a test lasts and where its figures go are no settings of the router"
)]
fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}
