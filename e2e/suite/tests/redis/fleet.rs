//! Mock engines with an agent each, routers over one Redis, and the engines' truth by a path of its own.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_agent::{AgentConfig, EngineConfig as AgentEngine, Layout, Service};
use kvasir_core::{Address, BlockIndex, CacheScope, Completeness, EngineKind, OwnerSlot, PrefixHit};
use kvasir_kvcache::chain;
use kvasir_mock_engine::{Engine, EngineConfig, KvEndpoints};
use kvasir_settings::redis::RedisSettings;
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_settings::{CoordinationMode, Settings};
use kvasir_suite::client::{post, send};
use kvasir_suite::report::Figures;
use kvasir_suite::router::{MODEL, Router, settings};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Tokens in a prompt of these tests: 20 blocks of 16, and one token that is never reused.
const PROMPT_TOKENS: u32 = 321;

/// A lease that lets an abandoned owner go within a test.
pub const LEASE: Duration = Duration::from_secs(2);

/// How long an outage lasts.
#[expect(clippy::disallowed_methods, reason = "how long a test's outage lasts is no setting of the router")]
pub fn outage() -> Duration {
    let said = std::env::var("KVASIR_OUTAGE_MS").ok().and_then(|text| text.parse().ok());
    Duration::from_millis(said.unwrap_or(2_000))
}

/// An engine whose answers are short and come at once.
pub fn quick() -> EngineConfig {
    EngineConfig {
        model: MODEL.to_owned(),
        prefill_us_per_token: 1.0,
        decode_us_per_token: 50.0,
        answer_tokens: 2,
        ..EngineConfig::default()
    }
}

/// An agent in a runtime of its own, so that it can be killed as a process is: at once and without a last word.
pub struct Agent {
    runtime: Option<Runtime>,
    stop: CancellationToken,
    ended: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Agent {
    /// Starts an agent for one engine.
    pub async fn start(engine: &Engine, redis: RedisSettings, layout: Layout) -> Self {
        let events = engine.kv_events().expect("the engine publishes events");
        Self::start_with(engine.address(), vec![source(&events)], redis, layout).await
    }

    pub async fn start_with(
        engine: SocketAddr,
        kv_events: Vec<KvEventsSettings>,
        redis: RedisSettings,
        layout: Layout,
    ) -> Self {
        let config = AgentConfig {
            listen: ("127.0.0.1".to_owned(), 0),
            engines: vec![AgentEngine {
                kind: EngineKind::Vllm,
                address: Address::parse(&format!("http://{engine}")).unwrap(),
                metrics_path: "/metrics".to_owned(),
                pod: "127.0.0.1".into(),
                namespace: "default".into(),
                model: None,
                kv_events,
            }],
            redis,
            layout,
            lease: LEASE,
            resume_interval: Duration::from_millis(200),
            scrape_interval: Duration::from_millis(200),
            warnings: Vec::new(),
            log_level: "info".to_owned(),
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let stop = CancellationToken::new();
        let (bound, is_bound) = tokio::sync::oneshot::channel();
        let (ends, ended) = tokio::sync::oneshot::channel();
        let stopping = stop.clone();
        runtime.spawn(async move {
            let service = Service::bind(config).await.unwrap();
            let _ = bound.send(());
            service.serve(stopping).await;
            let _ = ends.send(());
        });
        is_bound.await.unwrap();
        Self { runtime: Some(runtime), stop, ended: Some(ended) }
    }

    /// Ends it as SIGKILL does.
    pub fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Ends it as SIGTERM does.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(ended) = self.ended.take() {
            let _ = ended.await;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn source(events: &KvEndpoints) -> KvEventsSettings {
    KvEventsSettings {
        endpoint: events.events.clone(),
        replay: events.replay.clone(),
        topic: String::new(),
        rank: 0,
    }
}

/// Engines with agents, and one router, over one Redis.
pub struct Fleet {
    pub engines: Vec<Engine>,
    pub agents: Vec<Option<Agent>>,
    pub router: Router,
    pub redis: RedisSettings,
    /// Seeds of the prompts that were sent; what becomes of them is compared.
    pub seeds: u32,
}

impl Fleet {
    /// Two engines of this kind. `redis` is where agents and router go.
    pub async fn start(engine: &EngineConfig, redis: RedisSettings) -> Self {
        let fleet = Self::start_in_the_dark(engine, redis).await;
        // The engines name their sources too, and are followed directly until their agents publish.
        until("the caches are known by Redis", || fleet.is_mirrored()).await;
        fleet
    }

    /// The same without waiting for anything to be known.
    pub async fn start_in_the_dark(engine: &EngineConfig, redis: RedisSettings) -> Self {
        let mut engines = Vec::new();
        for _ in 0..2 {
            engines.push(Engine::start(engine.clone()).await.unwrap());
        }
        let mut agents = Vec::new();
        for engine in &engines {
            agents.push(Some(Agent::start(engine, redis.clone(), Layout::Native).await));
        }
        let router = router(&engines, &redis).await;
        Self { engines, agents, router, redis, seeds: 0 }
    }

    /// Whether all owners come from Redis.
    pub fn is_mirrored(&self) -> bool {
        self.router.gateway.index.stats().iter().all(|stats| stats.mirrored)
    }

    /// Sends new prompts to each engine, past the router.
    pub async fn fill(&mut self, prompts: u32) {
        for _ in 0..prompts {
            for engine in &self.engines {
                self.seeds += 1;
                complete(engine.address(), self.seeds).await.unwrap();
            }
        }
    }

    /// Whether the router credits each engine with exactly what it holds of every prompt that was ever sent.
    pub fn is_true(&self) -> bool {
        is_true(&self.router, &self.engines, self.seeds)
    }

    /// Waits until that is so; gives how long it took.
    pub async fn until_true(&self, what: &str) -> Duration {
        let begun = Instant::now();
        while !self.is_true() {
            assert!(begun.elapsed() < guard(), "never happened: {what}\n{}", self.differences());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        begun.elapsed()
    }

    /// What the router gets wrong, and what it says of the owners.
    fn differences(&self) -> String {
        let mut text = String::new();
        for (engine, seed) in
            self.engines.iter().flat_map(|engine| (1..=self.seeds).map(move |seed| (engine, seed)))
        {
            let (credited, held) = (credit(&self.router, engine, seed), truth(engine, seed));
            if credited != held {
                let _ = writeln!(text, "prompt {seed} at {}: {credited} of {held} tokens", engine.url());
            }
        }
        let page = self.router.metrics_page();
        let lines = page.lines().filter(|line| line.starts_with("kvasir_mirror") && !line.ends_with(" 0"));
        lines.for_each(|line| text.extend([line, "\n"]));
        for stats in self.router.gateway.index.stats() {
            let _ = writeln!(
                text,
                "{}: {:?}, {} blocks, mirrored: {}",
                stats.slot.0, stats.completeness, stats.blocks, stats.mirrored
            );
        }
        text
    }

    /// Starts the agent of an engine again.
    pub async fn restart_agent(&mut self, number: usize) {
        let agent = Agent::start(&self.engines[number], self.redis.clone(), Layout::Native).await;
        self.agents[number] = Some(agent);
    }
}

/// A router that takes the engines' caches from Redis.
pub async fn router(engines: &[Engine], redis: &RedisSettings) -> Router {
    router_with(engines, redis, |_| {}).await
}

/// The same with other settings.
pub async fn router_with(
    engines: &[Engine],
    redis: &RedisSettings,
    change: impl FnOnce(&mut Settings),
) -> Router {
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let mut settings = settings(&urls).unwrap();
    settings.redis = Some(redis.clone());
    settings.scrape_interval = Duration::from_millis(100);
    settings.coordination = Some(CoordinationMode::Mirror);
    change(&mut settings);
    Router::start(settings).await.unwrap()
}

/// The ids of a prompt. Those of two seeds share no block.
pub fn ids(seed: u32) -> Vec<u32> {
    (0..PROMPT_TOKENS).map(|number| seed * 1_000 + number + 1).collect()
}

/// Sends a prompt; gives the endpoint that a router names, if it is one.
pub async fn complete(to: SocketAddr, seed: u32) -> anyhow::Result<String> {
    let ids = ids(seed).iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"model":"{MODEL}","max_tokens":2,"prompt":[{ids}]}}"#);
    let answer = send(to, post("/v1/completions", body)?).await?;
    anyhow::ensure!(answer.status() == 200, "{}: {:?}", answer.status(), answer.body());
    let by = answer.headers().get("x-kvasir-endpoint").and_then(|value| value.to_str().ok());
    Ok(by.unwrap_or_default().to_owned())
}

/// Tokens that a router credits an engine with, out of a prompt; never the last one.
pub fn credit(router: &Router, engine: &Engine, seed: u32) -> u32 {
    let Some(slot) = slot_of(router, engine) else { return 0 };
    let index = &router.gateway.index;
    let model = MODEL.into();
    let ids = ids(seed);
    let chains: Vec<_> = index
        .block_sizes(&model)
        .iter()
        .map(|size| chain(&CacheScope::default(), *size, &ids, None))
        .collect();
    let mut hits = [PrefixHit::default()];
    index.walk(&model, &chains, &[slot], &mut hits);
    // What the router placed there itself is a guess where nobody tells, and no knowledge.
    if hits[0].completeness == Some(Completeness::Approximate) {
        return 0;
    }
    let block = hits[0].block_tokens.max(1);
    (hits[0].tokens - hits[0].predicted_tokens.min(hits[0].tokens)).min((PROMPT_TOKENS - 1) / block * block)
}

/// What the engine itself would reuse.
pub fn truth(engine: &Engine, seed: u32) -> u32 {
    engine.cached_prefix_tokens(&ids(seed), None, None) as u32
}

pub fn is_true(router: &Router, engines: &[Engine], seeds: u32) -> bool {
    (1..=seeds).all(|seed| engines.iter().all(|engine| credit(router, engine, seed) == truth(engine, seed)))
}

pub fn slot_of(router: &Router, engine: &Engine) -> Option<OwnerSlot> {
    let endpoints = router.gateway.state.endpoints();
    endpoints.iter().find(|endpoint| endpoint.url == engine.url()).map(|endpoint| endpoint.slot)
}

/// What an endpoint is called in headers.
pub fn id_of(engine: &Engine) -> String {
    format!("default/{}", engine.address())
}

/// Outlasts the longest outage.
fn guard() -> Duration {
    outage() + Duration::from_secs(40)
}

/// Waits for a condition, within a guard that outlasts the longest outage; gives how long it took.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < guard(), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    begun.elapsed()
}

/// Clients that send through a router until they are stopped, and count.
pub struct Traffic {
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<Figures>>,
}

impl Traffic {
    /// Two clients over prompts that were sent before, one request after another.
    pub fn start(router: &Router, seeds: u32) -> Self {
        let stop = CancellationToken::new();
        let to = router.inference;
        let seeds = Arc::new(seeds.max(1));
        let tasks = (0..2u32)
            .map(|client| {
                let (stop, seeds) = (stop.clone(), Arc::clone(&seeds));
                tokio::spawn(async move {
                    let mut figures = Figures::default();
                    let mut seed = client;
                    while !stop.is_cancelled() {
                        seed = seed % *seeds + 1;
                        let begun = Instant::now();
                        let ended = complete(to, seed).await;
                        figures.requests += 1;
                        figures.lost += usize::from(ended.is_err());
                        figures.waited_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    figures
                })
            })
            .collect();
        Self { stop, tasks }
    }

    /// Ends them; gives what they saw.
    pub async fn end(self) -> Figures {
        self.stop.cancel();
        let mut all = Figures::default();
        for task in self.tasks {
            let one = task.await.unwrap();
            all.requests += one.requests;
            all.lost += one.lost;
            all.waited_ms.extend(one.waited_ms);
        }
        all
    }
}
