//! What goes on all the time: clients that ask, and one fault after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_coordination::testing::TestServer;
use kvasir_mock_engine::Fault;
use kvasir_suite::client::{post, send};
use kvasir_suite::router::MODEL;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::conversations::Conversations;
use crate::fleet::{ENGINES, Fleet};

/// Between two requests of one client.
const PAUSE: std::ops::Range<u64> = 5..45;

/// Clients of each router, and of all engines together.
const CLIENTS: usize = 2;

/// After an engine's restart what it was sent before may still fail.
const AFTERMATH: Duration = Duration::from_millis(500);

/// What clients saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests through routers.
    pub requests: AtomicU64,
    /// Those that had no good answer because the engine that was answering died.
    pub cut: AtomicU64,
    /// Those without a good answer and without that reason.
    pub lost: AtomicU64,
    /// Requests to engines, past the routers.
    pub direct: AtomicU64,
    /// What the first lost one got.
    pub first_loss: Mutex<Option<String>>,
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Engines that died and came back empty.
    pub engines_restarted: u32,
    /// Caches that were emptied by order.
    pub caches_reset: u32,
    /// Batches of events that did not arrive.
    pub batches_dropped: u32,
    /// Agents that were killed, and came back.
    pub agents_killed: u32,
    /// Agents that were ended in order, and came back.
    pub agents_restarted: u32,
    /// Servers that were killed and came back empty.
    pub redis_restarted: u32,
}

impl Faults {
    /// All of them.
    pub fn total(&self) -> u32 {
        self.engines_restarted
            + self.caches_reset
            + self.batches_dropped
            + self.agents_killed
            + self.agents_restarted
            + self.redis_restarted
    }
}

/// Everything that churns.
#[derive(Debug)]
pub struct Churn {
    pub fleet: Fleet,
    pub redis: tokio::sync::Mutex<TestServer>,
    pub conversations: Conversations,
    pub seen: Seen,
    pub faults: Mutex<Faults>,
    dying: AtomicBool,
}

impl Churn {
    pub fn new(fleet: Fleet, redis: TestServer) -> Self {
        Self {
            fleet,
            redis: tokio::sync::Mutex::new(redis),
            conversations: Conversations::default(),
            seen: Seen::default(),
            faults: Mutex::default(),
            dying: AtomicBool::new(false),
        }
    }

    /// Starts the clients; they go on until `stop`.
    pub fn clients(self: &Arc<Self>, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        let routers = self.fleet.routers.iter().map(|router| Some(router.inference));
        let all = routers.chain([None]).flat_map(|to| std::iter::repeat_n(to, CLIENTS));
        all.zip(1..)
            .map(|(to, seed)| {
                let (churn, stop) = (Arc::clone(self), stop.clone());
                tokio::spawn(async move { churn.client(to, seed, &stop).await })
            })
            .collect()
    }

    /// Sends to a router, or without one to any of the engines.
    async fn client(&self, router: Option<SocketAddr>, seed: u64, stop: &CancellationToken) {
        let mut rng = StdRng::seed_from_u64(seed);
        while !stop.is_cancelled() {
            let ids = self.conversations.prompt(&mut rng);
            match router {
                Some(router) => self.ask_router(router, &ids).await,
                None => {
                    if let Some(engine) = self.fleet.engines.get(rng.random_range(0..ENGINES)) {
                        self.seen.direct.fetch_add(1, Ordering::Relaxed);
                        // One that is dying has no answer.
                        let _ = ask(engine.address(), &ids).await;
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(PAUSE))).await;
        }
    }

    async fn ask_router(&self, router: SocketAddr, ids: &[u32]) {
        let was_dying = self.dying.load(Ordering::Relaxed);
        self.seen.requests.fetch_add(1, Ordering::Relaxed);
        let Err(error) = ask(router, ids).await else { return };
        if was_dying || self.dying.load(Ordering::Relaxed) {
            self.seen.cut.fetch_add(1, Ordering::Relaxed);
        } else {
            self.seen.lost.fetch_add(1, Ordering::Relaxed);
            self.seen.first_loss.lock().get_or_insert_with(|| format!("{error:#}"));
        }
    }

    /// One fault after the other until `end`, with pauses in which most views become whole.
    pub async fn break_things(&self, end: Instant, seed: u64) -> anyhow::Result<()> {
        let mut rng = StdRng::seed_from_u64(seed);
        while Instant::now() < end {
            let number = rng.random_range(0..ENGINES);
            // Shorter and longer than an agent's lease.
            let away = Duration::from_millis(rng.random_range(20..4_000))
                .min(end.saturating_duration_since(Instant::now()));
            match rng.random_range(0..50) {
                0..8 => self.restart_engine(number).await?,
                8..13 => self.reset_cache(number).await,
                13..23 => self.drop_events(number).await,
                23..38 => {
                    drop(self.fleet.take_agent(number));
                    tokio::time::sleep(away).await;
                    self.fleet.start_agent(number).await?;
                    self.faults.lock().agents_killed += 1;
                }
                38..49 => {
                    if let Some(agent) = self.fleet.take_agent(number) {
                        agent.end().await;
                    }
                    tokio::time::sleep(away / 4).await;
                    self.fleet.start_agent(number).await?;
                    self.faults.lock().agents_restarted += 1;
                }
                // Rarely, so that its streams grow to what they are kept for.
                _ => self.restart_redis(away / 2).await,
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(200..3_000))).await;
        }
        Ok(())
    }

    async fn restart_engine(&self, number: usize) -> anyhow::Result<()> {
        let Some(engine) = self.fleet.engines.get(number) else { return Ok(()) };
        self.dying.store(true, Ordering::Relaxed);
        let restarted = engine.restart().await;
        tokio::time::sleep(AFTERMATH).await;
        self.dying.store(false, Ordering::Relaxed);
        self.faults.lock().engines_restarted += 1;
        restarted
    }

    async fn reset_cache(&self, number: usize) {
        let Some(engine) = self.fleet.engines.get(number) else { return };
        // It refuses while anything runs.
        for _ in 0..500 {
            if engine.reset_prefix_cache() {
                self.faults.lock().caches_reset += 1;
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn drop_events(&self, number: usize) {
        let Some(engine) = self.fleet.engines.get(number) else { return };
        engine.set_fault(Fault::DropEvents { batches: 1, replayable: true }).await;
        self.faults.lock().batches_dropped += 1;
    }

    async fn restart_redis(&self, away: Duration) {
        let mut redis = self.redis.lock().await;
        redis.kill();
        tokio::time::sleep(away).await;
        redis.restart().await;
        self.faults.lock().redis_restarted += 1;
    }

    /// Every engine computes something once more: a batch that was lost before is missed at the next one only.
    pub async fn last_word(&self) -> anyhow::Result<()> {
        let mut rng = StdRng::seed_from_u64(0);
        for engine in &self.fleet.engines {
            engine.set_fault(Fault::None).await;
            for _ in 0..2 {
                ask(engine.address(), &self.conversations.prompt(&mut rng)).await?;
            }
        }
        Ok(())
    }
}

async fn ask(to: SocketAddr, ids: &[u32]) -> anyhow::Result<()> {
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"model":"{MODEL}","max_tokens":20,"prompt":[{ids}]}}"#);
    let answer = send(to, post("/v1/completions", body)?).await?;
    anyhow::ensure!(answer.status() == 200, "{}: {:?}", answer.status(), answer.body());
    Ok(())
}
