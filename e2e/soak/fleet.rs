//! Engines with small caches, an agent beside each, and routers that know the caches by Redis alone.

use std::time::Duration;

use anyhow::Context as _;
use kvasir_agent::{AgentConfig, EngineConfig as AgentEngine, Layout, Service};
use kvasir_core::{Address, EngineKind};
use kvasir_mock_engine::{Encoding, Engine, EngineConfig, EventsConfig, HashRoot};
use kvasir_settings::CoordinationMode;
use kvasir_settings::redis::RedisSettings;
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_suite::router::{MODEL, Router, settings};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Engines, each with an agent.
pub const ENGINES: usize = 4;

/// Routers.
pub const ROUTERS: usize = 2;

/// Blocks of one engine's cache: a part of what is asked for, so that it evicts all the time.
const CACHE_BLOCKS: usize = 900;

/// Batches that an engine can replay. An agent that was away for longer goes on from its saved state.
const REPLAY_BATCHES: usize = 2_000;

/// A lease that ends while some of the agents are away, and not while the others are.
const LEASE: Duration = Duration::from_secs(2);

/// All of it.
#[derive(Debug)]
pub struct Fleet {
    /// The engines; every second one is of an older kind, whose hashes differ from start to start.
    pub engines: Vec<Engine>,
    /// The agent of each; `None` while it is away.
    pub agents: Vec<Mutex<Option<Agent>>>,
    /// The routers.
    pub routers: Vec<Router>,
    redis: RedisSettings,
}

impl Fleet {
    /// Starts everything.
    pub async fn start(redis: RedisSettings) -> anyhow::Result<Self> {
        let mut engines = Vec::new();
        for number in 0..ENGINES {
            engines.push(Engine::start(engine(number)).await?);
        }
        let urls: Vec<String> = engines.iter().map(Engine::url).collect();
        let agents = (0..ENGINES).map(|_| Mutex::new(None)).collect();
        let mut fleet = Self { engines, agents, routers: Vec::new(), redis };
        for number in 0..ENGINES {
            fleet.start_agent(number).await?;
        }
        for _ in 0..ROUTERS {
            let mut settings = settings(&urls)?;
            settings.redis = Some(fleet.redis.clone());
            settings.coordination = Some(CoordinationMode::Mirror);
            settings.scrape_interval = Duration::from_millis(500);
            fleet.routers.push(Router::start(settings).await?);
        }
        Ok(fleet)
    }

    /// Starts the agent of an engine.
    pub async fn start_agent(&self, number: usize) -> anyhow::Result<()> {
        let engine = self.engines.get(number).context("no such engine")?;
        let agent = Agent::start(engine, self.redis.clone()).await?;
        if let Some(place) = self.agents.get(number) {
            *place.lock() = Some(agent);
        }
        Ok(())
    }

    /// Takes the agent of an engine out, to be ended.
    pub fn take_agent(&self, number: usize) -> Option<Agent> {
        self.agents.get(number)?.lock().take()
    }

    /// Blocks that all routers' views hold together.
    pub fn blocks_in_views(&self) -> usize {
        let blocks =
            |router: &Router| router.gateway.index.stats().iter().map(|owner| owner.blocks).sum::<usize>();
        self.routers.iter().map(blocks).sum()
    }
}

fn engine(number: usize) -> EngineConfig {
    let is_older = number % 2 == 1;
    let events = EventsConfig {
        encoding: if is_older { Encoding::Array } else { Encoding::Map },
        replay_buffer: REPLAY_BATCHES,
        ..EventsConfig::default()
    };
    EngineConfig {
        model: MODEL.to_owned(),
        kv_blocks: CACHE_BLOCKS,
        prefill_us_per_token: 2.0,
        decode_us_per_token: 50.0,
        answer_tokens: 20,
        hash_root: if is_older { HashRoot::Random } else { HashRoot::Fixed },
        events: Some(events),
        record_requests: 0,
        seed: number as u64,
        ..EngineConfig::default()
    }
}

/// An agent in a runtime of its own, so that it can be killed as a process is: at once and without a last word.
#[derive(Debug)]
pub struct Agent {
    runtime: Option<Runtime>,
    stop: CancellationToken,
    ended: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Agent {
    async fn start(engine: &Engine, redis: RedisSettings) -> anyhow::Result<Self> {
        let events = engine.kv_events().context("the engine publishes no events")?;
        let config = AgentConfig {
            listen: ("127.0.0.1".to_owned(), 0),
            engines: vec![AgentEngine {
                kind: EngineKind::Vllm,
                address: Address::parse(&engine.url()).map_err(anyhow::Error::msg)?,
                metrics_path: "/metrics".to_owned(),
                pod: "127.0.0.1".into(),
                namespace: "default".into(),
                model: None,
                kv_events: vec![KvEventsSettings {
                    endpoint: events.events,
                    replay: events.replay,
                    topic: String::new(),
                    rank: 0,
                }],
            }],
            redis,
            layout: Layout::Native,
            lease: LEASE,
            resume_interval: Duration::from_millis(500),
            scrape_interval: Duration::from_millis(500),
            warnings: Vec::new(),
            log_level: "info".to_owned(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let stop = CancellationToken::new();
        let (bound, is_bound) = tokio::sync::oneshot::channel();
        let (ends, ended) = tokio::sync::oneshot::channel();
        let stopping = stop.clone();
        runtime.spawn(async move {
            match Service::bind(config).await {
                Err(error) => drop(bound.send(Err(error))),
                Ok(service) => {
                    let _ = bound.send(Ok(()));
                    service.serve(stopping).await;
                    let _ = ends.send(());
                }
            }
        });
        let agent = Self { runtime: Some(runtime), stop, ended: Some(ended) };
        is_bound.await.context("the agent ended before it listened")??;
        Ok(agent)
    }

    /// Ends it as SIGTERM does.
    pub async fn end(mut self) {
        self.stop.cancel();
        if let Some(ended) = self.ended.take() {
            let _ = ended.await;
        }
    }
}

impl Drop for Agent {
    /// Ends it as SIGKILL does.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
