//! Agents that publish full caches, and routers that follow: memory in Redis, start-up, lag, processor time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_coordination::testing::TestServer;
use kvasir_coordination::{
    Mirror, MirrorOptions, PublishedOwner, Publisher, PublisherOptions, PublisherState, PublisherStatus,
    Redis,
};
use kvasir_core::{OwnerJournal, SystemClock};
use kvasir_kvcache::Index;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

use super::processor::seconds_of;
use super::reader::Reader;
use super::steps::{EVENTS_IN_STEP, Stepping};
use super::{owners, told, until};

/// Names of threads: whose processor time is whose.
const AGENTS: &str = "agents";
const ROUTER: &str = "router";

/// Load before anything is counted.
const WARM_UP: Duration = Duration::from_secs(3);

/// Load beside a router that starts.
const BESIDE_START: Duration = Duration::from_secs(4);

/// How long the server takes to give back what its connections used.
const COMES_TO_REST: Duration = Duration::from_secs(3);

/// What is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Amounts {
    /// Owners.
    pub owners: u32,
    /// Agents that they are shared out among, each with a connection of its own.
    pub agents: usize,
    /// Blocks that all owners hold together.
    pub blocks: usize,
    /// Block events a second over all owners.
    pub rate: f64,
    /// How long lag is measured.
    pub time: Duration,
    /// Routers that are started one after the other.
    pub starts: usize,
}

impl Amounts {
    /// Blocks of one owner.
    fn capacity(&self) -> usize {
        self.blocks / self.owners.max(1) as usize
    }
}

/// Publishes, starts routers, and changes blocks while one of them follows. Agents have one thread, the router has one.
///
/// # Errors
/// The server cannot be reached, a rate cannot be kept, or the router's index is not the agents'.
pub fn measure(amounts: Amounts) -> anyhow::Result<Value> {
    let (agents, router) = (one_thread(AGENTS)?, one_thread(ROUTER)?);
    let run = run(amounts, agents.handle(), router.handle());
    Builder::new_current_thread().enable_all().build()?.block_on(run)
}

fn one_thread(name: &str) -> std::io::Result<Runtime> {
    // Work that blocks gets threads of its own, and what a thread has used is told for as long as it lives.
    let kept = Duration::from_secs(3600);
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .thread_keep_alive(kept)
        .enable_all()
        .build()
}

async fn run(amounts: Amounts, agents: &Handle, router: &Handle) -> anyhow::Result<Value> {
    let mut plant = Plant::start(amounts)?;
    let house = House { amounts, server: TestServer::start().await, router, owners: owners(amounts.owners) };
    let held = plant.held() as f64;
    let stop = CancellationToken::new();
    let shares = house.connect(agents).await?;
    // What connections cost is no matter of blocks.
    tokio::time::sleep(COMES_TO_REST).await;
    let memory_before = house.used_memory().await?;
    let began = Instant::now();
    let publishers = publish(shares, &plant.index, agents, &stop);
    let following = |status: &PublisherStatus| status.state == PublisherState::Following;
    until("everything is published", || statuses(&publishers).iter().all(following)).await?;
    let publishing = began.elapsed();
    tokio::time::sleep(COMES_TO_REST).await;
    let at_rest = house.used_memory().await? - memory_before;
    let mut starts = Vec::new();
    for _ in 0..amounts.starts {
        let (router, took) = house.start_router().await?;
        anyhow::ensure!(router.reader.equals(&plant.index), "a router that started knows something else");
        starts.push(took.as_secs_f64());
    }
    let (follower, _) = house.start_router().await?;
    let index_bytes = follower.reader.index.size().bytes as f64;
    let load = house.load(&mut plant, &publishers, &follower).await?;
    let (_, beside) = tokio::join!(plant.work(BESIDE_START, None), house.start_router());
    let (beside, beside_took) = beside?;
    let loaded = house.used_memory().await? - memory_before;
    settle(&plant, &publishers, &[&follower.reader, &beside.reader]).await?;
    stop.cancel();
    Ok(json!({
        "owners": amounts.owners, "agents": publishers.len(), "held": plant.held(),
        "publish_seconds": publishing.as_secs_f64(),
        "redis_bytes_per_block": at_rest / held, "redis_bytes_per_block_under_load": loaded / held,
        "index_bytes_per_block": index_bytes / held,
        "start_seconds": starts, "start_under_load_seconds": beside_took.as_secs_f64(),
        "load": load,
    }))
}

/// The engines, and the index that their agents share.
struct Plant {
    engines: Vec<Stepping>,
    index: Arc<Index>,
    rate: f64,
}

impl Plant {
    fn start(amounts: Amounts) -> anyhow::Result<Self> {
        let index = Arc::new(Index::default());
        let owners = owners(amounts.owners);
        let engines = owners.iter().map(|owner| Stepping::start(&index, owner.slot, amounts.capacity()));
        Ok(Self { engines: engines.collect::<anyhow::Result<_>>()?, index, rate: amounts.rate })
    }

    fn held(&self) -> usize {
        self.engines.iter().map(Stepping::held).sum()
    }

    /// The engines work; with a reader, the newest block of every step is waited for there. Steps and block events.
    async fn work(&mut self, time: Duration, reader: Option<&Reader>) -> (u64, usize) {
        let per_second = self.rate / EVENTS_IN_STEP;
        let engines = self.engines.len().max(1) as u64;
        let (mut steps, mut events) = (0, 0);
        let began = Instant::now();
        loop {
            let elapsed = began.elapsed().min(time);
            let due = (elapsed.as_secs_f64() * per_second) as u64;
            while steps < due {
                let Some(engine) = self.engines.get_mut((steps % engines) as usize) else { break };
                let (batch, blocks, newest) = engine.step();
                if let Some(reader) = reader {
                    reader.expect(engine.slot, newest);
                }
                self.index.apply(engine.slot, &batch);
                (steps, events) = (steps + 1, events + blocks);
            }
            if elapsed == time {
                return (steps, events);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A router that follows until it is dropped.
struct Router {
    reader: Arc<Reader>,
    mirror: Mirror,
    stop: CancellationToken,
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The server, and who may be in it.
struct House<'a> {
    amounts: Amounts,
    server: TestServer,
    router: &'a Handle,
    owners: Vec<PublishedOwner>,
}

/// One agent's connection and owners.
type Share = (Redis, Vec<PublishedOwner>);

impl House<'_> {
    async fn used_memory(&self) -> anyhow::Result<f64> {
        told(&self.server, "memory", "used_memory").await
    }

    /// The agents' connections.
    async fn connect(&self, agents: &Handle) -> anyhow::Result<Vec<Share>> {
        let mut shares = Vec::new();
        for number in 0..self.amounts.agents {
            let redis = {
                let _inside = agents.enter();
                Redis::new(self.server.settings())?
            };
            redis.connected().await;
            shares.push((
                redis,
                self.owners.iter().skip(number).step_by(self.amounts.agents).cloned().collect(),
            ));
        }
        Ok(shares)
    }

    /// Starts a router and waits until it knows everything; from the first attempt to connect on.
    async fn start_router(&self) -> anyhow::Result<(Router, Duration)> {
        let reader = Arc::new(Reader::new(&self.owners, 2 * self.amounts.capacity())?);
        let stop = CancellationToken::new();
        let began = Instant::now();
        let mirror = {
            let _inside = self.router.enter();
            let redis = Redis::new(self.server.settings())?;
            let (options, sink) = (MirrorOptions::default(), Arc::<Reader>::clone(&reader));
            Mirror::start(&redis, sink, options, Arc::new(SystemClock), &stop)
        };
        mirror.first_sync().await;
        Ok((Router { reader, mirror, stop }, began.elapsed()))
    }

    async fn load(
        &self,
        plant: &mut Plant,
        publishers: &[Publisher],
        router: &Router,
    ) -> anyhow::Result<Value> {
        let reader = &*router.reader;
        plant.work(WARM_UP, None).await;
        let (before, counts_before) = (self.used().await?, Counts::read(publishers, router));
        let began = Instant::now();
        let (steps, events) = plant.work(self.amounts.time, Some(reader)).await;
        let seconds = began.elapsed().as_secs_f64();
        let (after, counts) = (self.used().await?, Counts::read(publishers, router));
        until("all blocks came", || reader.waiting() == 0).await?;
        let rate = events as f64 / seconds;
        anyhow::ensure!(rate > 0.98 * plant.rate, "only {rate:.0} block events a second could be made");
        let cores: Vec<f64> =
            before.iter().zip(after).map(|(before, after)| (after - before) / seconds).collect();
        let lags = reader.lags();
        Ok(json!({
            "seconds": seconds, "events_per_second": rate, "steps_per_second": steps as f64 / seconds,
            // An owner that is published anew counts from 0 again.
            "deltas_per_second": counts.deltas.saturating_sub(counts_before.deltas) as f64 / seconds,
            "folds": counts.folds - counts_before.folds,
            "published_anew": counts.snapshots - counts_before.snapshots,
            "failures": counts.failures - counts_before.failures,
            "loaded_anew": counts.loads - counts_before.loads,
            "lags": lags.len(), "lag_us": lags.json(),
            "cores": { "agents": cores.first(), "router": cores.get(1), "redis": cores.get(2) },
        }))
    }

    /// Seconds of processor time so far: agents, router, server.
    async fn used(&self) -> anyhow::Result<[f64; 3]> {
        let user = told(&self.server, "cpu", "used_cpu_user").await?;
        let system = told(&self.server, "cpu", "used_cpu_sys").await?;
        Ok([seconds_of(AGENTS)?, seconds_of(ROUTER)?, user + system])
    }
}

/// What agents and a router have counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    /// Entries that were added to the streams.
    deltas: u64,
    folds: u64,
    snapshots: u64,
    failures: u64,
    loads: u64,
}

impl Counts {
    fn read(publishers: &[Publisher], router: &Router) -> Self {
        let mut counts = Self::default();
        for status in statuses(publishers) {
            counts.deltas += status.seq;
            counts.folds += status.folds;
            counts.snapshots += status.snapshots;
            counts.failures += status.failures;
        }
        counts.loads = router.mirror.status().owners.iter().map(|owner| owner.loads).sum();
        counts
    }
}

fn publish(
    shares: Vec<Share>,
    index: &Arc<Index>,
    agents: &Handle,
    stop: &CancellationToken,
) -> Vec<Publisher> {
    let _inside = agents.enter();
    let start = |(redis, owners): Share| {
        let journal: Arc<dyn OwnerJournal> = Arc::<Index>::clone(index);
        Publisher::start(&redis, journal, owners, PublisherOptions::default(), Arc::new(SystemClock), stop)
    };
    shares.into_iter().map(start).collect()
}

fn statuses(publishers: &[Publisher]) -> Vec<PublisherStatus> {
    publishers.iter().flat_map(Publisher::status).collect()
}

/// Waits until the readers hold what the engines hold, block for block.
async fn settle(plant: &Plant, publishers: &[Publisher], readers: &[&Reader]) -> anyhow::Result<()> {
    // Reading the engines' content ends what is noted of changes, so all of them must have been sent.
    tokio::time::sleep(10 * PublisherOptions::default().flush).await;
    until("everything is sent", || statuses(publishers).iter().all(|status| status.unconfirmed == 0)).await?;
    until("every reader holds what the engines hold", || {
        readers.iter().all(|reader| reader.equals(&plant.index))
    })
    .await
}
