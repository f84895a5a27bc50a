//! Groups of strict engines with a router in front, and what must be true of all of it after each case.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use kvasir_mock_engine::{
    Answer, ConnectorKind, Engine, EngineConfig, EngineKind, EventsConfig, EventsEndpoint, Exchange, Fabric,
    Fault, HashForm, Part, RecordedRequest, Role,
};
use kvasir_settings::Settings;
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";

type Change<T> = Box<dyn Fn(&mut T)>;

/// What is to be built.
pub struct Sketch {
    pub connector: ConnectorKind,
    pub groups: usize,
    pub prefills: usize,
    pub decodes: usize,
    seed: Cell<u64>,
    engines: Vec<Change<EngineConfig>>,
    parts: Vec<Change<Part>>,
    router: Vec<Change<Settings>>,
}

/// A router and its engines.
pub struct Site {
    pub groups: Vec<Group>,
    pub router: Router,
}

/// Engines that can hand over to each other.
pub struct Group {
    pub fabric: Arc<Fabric>,
    pub prefills: Vec<Engine>,
    pub decodes: Vec<Engine>,
}

impl Sketch {
    /// So many groups of one prefill and one decode engine.
    pub fn of(connector: ConnectorKind, groups: usize) -> Self {
        let (seed, engines, parts, router) = Default::default();
        Self { connector, groups, prefills: 1, decodes: 1, seed, engines, parts, router }
    }

    /// So many of each in every group.
    pub fn each(mut self, prefills: usize, decodes: usize) -> Self {
        (self.prefills, self.decodes) = (prefills, decodes);
        self
    }

    /// Engines that are otherwise; their role is in their part.
    pub fn engines(mut self, change: impl Fn(&mut EngineConfig) + 'static) -> Self {
        self.engines.push(Box::new(change));
        self
    }

    /// Engines of one role that are otherwise.
    pub fn engines_that(self, role: Role, change: impl Fn(&mut EngineConfig) + 'static) -> Self {
        self.engines(move |config| {
            if config.part.as_ref().is_some_and(|part| part.role == role) {
                change(config);
            }
        })
    }

    /// Parts that are otherwise.
    pub fn parts(mut self, change: impl Fn(&mut Part) + 'static) -> Self {
        self.parts.push(Box::new(change));
        self
    }

    /// A router that is told otherwise.
    pub fn router(mut self, change: impl Fn(&mut Settings) + 'static) -> Self {
        self.router.push(Box::new(change));
        self
    }

    /// Builds it.
    pub async fn build(self) -> anyhow::Result<Site> {
        let mut groups = Vec::new();
        let mut members = Vec::new();
        for number in 0..self.groups {
            let mut group = Group { fabric: Fabric::new(), prefills: Vec::new(), decodes: Vec::new() };
            for index in 0..self.prefills {
                // Addresses of their own, so that a host that is not the prefill engine's is noticed.
                let ip = Ipv4Addr::new(127, 0, u8::try_from(number + 1)?, u8::try_from(index + 2)?);
                group.prefills.push(self.engine(&group.fabric, Role::Prefill, ip).await?);
            }
            for _ in 0..self.decodes {
                group.decodes.push(self.engine(&group.fabric, Role::Decode, Ipv4Addr::LOCALHOST).await?);
            }
            let role = |engine: &Engine| engine.config().part.as_ref().map_or(Role::Both, |part| part.role);
            members.extend(
                group.engines().map(|engine| (engine.url(), role(engine), number, events_of(engine))),
            );
            groups.push(group);
        }
        let urls: Vec<String> = members.iter().map(|(url, ..)| url.clone()).collect();
        let mut told = settings(&urls)?;
        told.scrape_interval = Duration::from_millis(100);
        let model = &mut told.models[0];
        (model.connector, model.engine) = (Some(self.connector), kind(self.connector));
        for (endpoint, (_, role, group, events)) in model.endpoints.iter_mut().zip(members) {
            (endpoint.role, endpoint.group) = (role, Some(format!("group-{group}")));
            endpoint.kv_events = events;
        }
        self.router.iter().for_each(|change| change(&mut told));
        Ok(Site { groups, router: Router::start(told).await? })
    }

    async fn engine(&self, fabric: &Arc<Fabric>, role: Role, ip: Ipv4Addr) -> anyhow::Result<Engine> {
        let mut part = Part::new(role, self.connector, fabric);
        self.parts.iter().for_each(|change| change(&mut part));
        let hash = if self.connector == ConnectorKind::Sglang { HashForm::I64 } else { HashForm::U64 };
        let endpoint = EventsEndpoint::Bind((ip, 0).into());
        let events = EventsConfig { hash, endpoint, ..EventsConfig::default() };
        let seed = self.seed.get() + 1;
        self.seed.set(seed);
        let mut config = EngineConfig {
            // Answers have ids of their own.
            seed,
            listen: (ip, 0).into(),
            kind: kind(self.connector),
            model: MODEL.to_owned(),
            prefill_us_per_token: 1.0,
            decode_us_per_token: 50.0,
            answer: Answer::Words,
            answer_tokens: 8,
            record_requests: 4096,
            events: Some(events),
            part: Some(part),
            ..EngineConfig::default()
        };
        self.engines.iter().for_each(|change| change(&mut config));
        Engine::start(config).await
    }
}

/// Where an engine's events are: SGLang does not tell.
fn events_of(engine: &Engine) -> Vec<KvEventsSettings> {
    let sockets = engine.kv_events().into_iter();
    let topic = "kv-events".to_owned();
    sockets
        .map(|kv| KvEventsSettings { endpoint: kv.events, replay: kv.replay, topic: topic.clone(), rank: 0 })
        .collect()
}

fn kind(connector: ConnectorKind) -> EngineKind {
    if connector == ConnectorKind::Sglang { EngineKind::Sglang } else { EngineKind::Vllm }
}

impl Group {
    /// All engines.
    pub fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.prefills.iter().chain(&self.decodes)
    }

    /// What its engines of this role were asked, oldest first.
    pub fn exchanges(&self, role: Role) -> Vec<Exchange> {
        let all = self.fabric.exchanges().into_iter();
        all.filter(|exchange| exchange.role == role).collect()
    }

    /// Sets the prefill engines' fault.
    pub async fn spoil_prefill(&self, fault: Fault) {
        for engine in &self.prefills {
            engine.set_fault(fault.clone()).await;
        }
    }

    /// Sets the decode engines' fault.
    pub async fn spoil_decode(&self, fault: Fault) {
        for engine in &self.decodes {
            engine.set_fault(fault.clone()).await;
        }
    }
}

impl Site {
    /// Where clients ask.
    pub fn door(&self) -> SocketAddr {
        self.router.inference
    }

    /// Sends a request and reads the whole answer.
    pub async fn ask(&self, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Response<Bytes>> {
        send(self.door(), post(path, body)?).await
    }

    /// As [`ask`](Self::ask), and wants a 200.
    pub async fn answer(&self, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Response<Bytes>> {
        let answer = self.ask(path, body).await?;
        anyhow::ensure!(
            answer.status() == 200,
            "{}: {:?}; engines refused {:?}",
            answer.status(),
            answer.body(),
            self.refusals()
        );
        Ok(answer)
    }

    /// All exchanges of a role.
    pub fn exchanges(&self, role: Role) -> Vec<Exchange> {
        self.groups.iter().flat_map(|group| group.exchanges(role)).collect()
    }

    /// What the engines refused.
    pub fn refusals(&self) -> Vec<String> {
        self.groups.iter().flat_map(|group| group.fabric.refusals()).collect()
    }

    /// Waits until nobody is inside, here or at the engines, and no engine has refused anything.
    pub async fn is_clean(&self) {
        eventually("nothing is under way at the engines", || {
            let idle = |group: &Group| {
                group.fabric.under_way() == 0
                    && group.engines().all(|one| one.backlog() == Default::default())
            };
            self.groups.iter().all(idle)
        })
        .await;
        eventually("nothing is in flight in the router", || self.is_idle()).await;
        assert_eq!(self.refusals(), Vec::<String>::new(), "engines have refused requests");
    }

    fn is_idle(&self) -> bool {
        let gauges = [
            "kthena_router_active_requests",
            "kthena_router_active_downstream_requests",
            "kthena_router_active_upstream_requests",
            "kvasir_buffered_bytes",
        ];
        let endpoints = self.router.gateway.state.endpoints();
        let idle = endpoints
            .iter()
            .all(|one| (one.own.in_flight, one.own.prefill_tokens, one.own.decoding) == (0, 0, 0));
        idle && gauges.iter().all(|gauge| self.router.metric(gauge).is_none_or(|number| number == 0.0))
            && self.router.gateway.readiness.inside() == 0
    }

    /// How many exchanges of each role every prompt had, over all groups; those that failed included.
    pub fn by_prompt(&self) -> BTreeMap<u64, (usize, usize)> {
        let mut counts: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for group in &self.groups {
            for exchange in group.fabric.exchanges() {
                let Some(prompt) = exchange.prompt else { continue };
                let count = counts.entry(prompt).or_default();
                match exchange.role {
                    Role::Prefill => count.0 += 1,
                    _ => count.1 += 1,
                }
            }
        }
        counts
    }
}

/// Generation requests that an engine got.
pub fn requests(engine: &Engine) -> Vec<RecordedRequest> {
    let all = engine.requests().into_iter();
    all.filter(|one| one.method == Method::POST && one.path.starts_with("/v1/")).collect()
}

/// A prompt of `count` token ids, as JSON. Ids need no tokenizer, so that how busy the machine is decides nothing.
pub fn ids(seed: u32, count: u32) -> String {
    let ids: Vec<String> = (0..count).map(|number| (seed * 100_000 + number + 1).to_string()).collect();
    format!("[{}]", ids.join(","))
}

/// A completion of token ids.
pub fn completion(seed: u32, count: u32) -> String {
    format!(r#"{{"model":"{MODEL}","max_tokens":6,"prompt":{}}}"#, ids(seed, count))
}

/// A streamed completion of token ids, to its full length.
pub fn streamed(seed: u32, tokens: usize) -> String {
    format!(
        r#"{{"model":"{MODEL}","stream":true,"max_tokens":{tokens},"ignore_eos":true,"prompt":{}}}"#,
        ids(seed, 100)
    )
}

/// The `usage` of an answer, whole or streamed.
pub fn usage(body: &[u8]) -> serde_json::Value {
    if let Ok(whole) = serde_json::from_slice::<serde_json::Value>(body) {
        return whole["usage"].clone();
    }
    events(body)
        .into_iter()
        .map(|event| event["usage"].clone())
        .rfind(|usage| !usage.is_null())
        .unwrap_or_default()
}

/// The JSON of every event.
pub fn events(body: &[u8]) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(body);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// Whether an answer to [`completion`] or [`streamed`] is whole.
pub fn is_whole(body: &[u8]) -> bool {
    if body.starts_with(b"{") {
        return usage(body)["completion_tokens"].as_u64().is_some_and(|count| count > 0);
    }
    let finished =
        events(body).iter().filter(|event| event["choices"][0]["finish_reason"].is_string()).count();
    finished == 1 && body.ends_with(b"data: [DONE]\n\n")
}

/// Cached prompt tokens as a usage tells them.
pub fn cached(usage: &serde_json::Value) -> Option<u64> {
    usage["prompt_tokens_details"]["cached_tokens"].as_u64()
}
