//! A million blocks, and fifty thousand changes a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{
    BlockChange, Completeness, EndpointId, HeldOn, MirrorSink, ModelName, OwnerContent, OwnerSlot,
    SystemClock,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::fleet::{Agent, Router, quick_mirror, quick_publisher, until};
use crate::mirror::{Mirror, OwnerState};
use crate::publish::{PublisherOptions, PublisherState};
use crate::testing::TestServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_blocks_are_published_and_read() {
    const OWNERS: u32 = 16;
    const BLOCKS: u64 = 62_500;
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let memory = async || -> u64 {
        let text = server.ask(&["INFO", "memory"]).await.join("\n");
        text.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok()).unwrap()
    };
    let before = memory().await;
    let journal = Arc::new(super::fleet::Journal::default());
    for owner in 0..OWNERS {
        journal.add(owner);
        journal.store(owner, u64::from(owner) * BLOCKS..u64::from(owner + 1) * BLOCKS);
    }
    let started = Instant::now();
    let options = PublisherOptions { lease: Duration::from_secs(10), ..quick_publisher() };
    let agent = Agent::with(&redis, journal, options, Arc::new(SystemClock));
    until(|| agent.publisher.status().iter().all(|status| status.state == PublisherState::Following)).await;
    println!("published in {:?}", started.elapsed());
    println!("{:.1} bytes of Redis memory for each block", (memory().await - before) as f64 / 1e6);
    let started = Instant::now();
    let router = Router::start(&redis, OWNERS, quick_mirror());
    router.mirror.first_sync().await;
    println!("a router has them after {:?}", started.elapsed());
    router.has(&agent.journal, 0..OWNERS).await;
    assert!(memory().await - before < 24_000_000);
}

/// An index that only looks at when a block was stored: its hash is that time, in microseconds since the start, and a
/// number, with the bits turned round so that it is spread like a hash.
struct Stopwatch {
    start: Instant,
    lags: Mutex<Vec<u64>>,
}

impl MirrorSink for Stopwatch {
    fn slot(&self, owner: &EndpointId, _: &ModelName) -> Option<OwnerSlot> {
        owner.pod.strip_prefix("engine-")?.parse().ok().map(OwnerSlot)
    }

    fn load(&self, _: OwnerSlot, _: OwnerContent) -> bool {
        true
    }

    fn change(&self, _: OwnerSlot, changes: &[BlockChange]) -> bool {
        let now = self.start.elapsed().as_micros() as u64;
        let stored = changes.iter().filter(|change| change.held);
        self.lags.lock().extend(stored.map(|change| now.saturating_sub(change.block.0.reverse_bits() >> 16)));
        true
    }

    fn set_completeness(&self, _: OwnerSlot, _: Completeness) {}

    fn lapse(&self, _: OwnerSlot) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_changes_a_second_arrive_soon() {
    const OWNERS: u32 = 64;
    const BURSTS: u32 = 200;
    const BURST: u32 = 500;
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let options = PublisherOptions { lease: Duration::from_secs(10), ..quick_publisher() };
    let agent = Agent::start(&redis, OWNERS, options);
    let start = Instant::now();
    let watch = Arc::new(Stopwatch { start, lags: Mutex::default() });
    let stop = CancellationToken::new();
    let mirror = Mirror::start(&redis, Arc::clone(&watch) as _, quick_mirror(), Arc::new(SystemClock), &stop);
    until(|| mirror.status().owners.iter().filter(|owner| owner.state == OwnerState::Synced).count() == 64)
        .await;
    // Every ten milliseconds 500 changes, half of them stores and half of them the eviction of what was stored before.
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let mut held: std::collections::VecDeque<(u32, u64)> = std::collections::VecDeque::new();
    for burst in 0..BURSTS {
        ticks.tick().await;
        for number in 0..BURST / 2 {
            let owner = (burst + number) % OWNERS;
            let block = ((start.elapsed().as_micros() as u64) << 16 | u64::from(number)).reverse_bits();
            agent.journal.change(owner, block, HeldOn::Gpu, true);
            held.push_back((owner, block));
            if held.len() > 5000
                && let Some((owner, block)) = held.pop_front()
            {
                agent.journal.change(owner, block, HeldOn::Gpu, false);
            }
        }
    }
    let caught_up = || {
        let mirrored: u64 = mirror.status().owners.iter().map(|owner| owner.seq).sum();
        let published = agent.publisher.status();
        published.iter().all(|status| status.unconfirmed == 0)
            && mirrored == published.iter().map(|status| status.seq).sum::<u64>()
            && watch.lags.lock().len() > (BURSTS * BURST / 4) as usize
    };
    until(caught_up).await;
    stop.cancel();
    let mut lags = std::mem::take(&mut *watch.lags.lock());
    lags.sort_unstable();
    let at = |part: usize| lags[(lags.len() - 1) * part / 1000] as f64 / 1e3;
    println!(
        "lag of {} stores: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms",
        lags.len(),
        at(500),
        at(990),
        at(1000)
    );
    let scripts = server.calls("evalsha").await;
    println!("{scripts} scripts, {} reads of the streams", server.calls("xread").await);
    // Far above what is seen on an idle machine, so that a busy one does not fail it.
    assert!(at(500) < 500.0);
}
