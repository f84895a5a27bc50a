//! One engine: start, orders, oracles, restart, stop.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use kvasir_core::EngineKind;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::answer::Vocabulary;
use crate::backlog::Backlog;
use crate::cache::scope_part;
use crate::config::{Encoding, EngineConfig};
use crate::core::Core;
use crate::fault::{FaultBoard, FaultOrder};
use crate::hash::Scope;
use crate::http::Desk;
use crate::port::Port;
use crate::publisher::{EventPorts, Publisher};
use crate::recorder::{RecordedRequest, Recorder};
use crate::server::{FaultControl, Server};

/// A running mock engine. Dropping it stops it, too, a moment later; [`stop`](Self::stop) waits.
#[derive(Debug)]
pub struct Engine {
    house: Arc<House>,
}

/// What outlives restarts.
#[derive(Debug)]
pub(crate) struct House {
    config: Arc<EngineConfig>,
    vocabulary: Arc<Vocabulary>,
    port: Arc<Port>,
    event_ports: Option<EventPorts>,
    recorder: Arc<Recorder>,
    faults: Arc<FaultBoard>,
    chance: Mutex<StdRng>,
    now: Mutex<Option<Running>>,
    restarts: tokio::sync::Mutex<()>,
    this: Weak<House>,
}

/// What a restart replaces.
#[derive(Debug)]
struct Running {
    desk: Arc<Desk>,
    server: Server,
    publisher: Option<Publisher>,
    stop: CancellationToken,
}

/// Where KV events come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KvEndpoints {
    /// What a subscriber connects to (`tcp://127.0.0.1:41234`), or what the engine connects to.
    pub events: String,
    /// What replay is asked of.
    pub replay: Option<String>,
}

/// What an engine has done since its last start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Stats {
    /// Requests that ended, however.
    pub finished_requests: u64,
    /// Prompt tokens of scheduled sequences.
    pub prompt_tokens: u64,
    /// The part of them that came out of the cache.
    pub cached_tokens: u64,
    /// Output tokens.
    pub generated_tokens: u64,
    /// Sequences that wait.
    pub waiting: usize,
    /// Sequences that run.
    pub running: usize,
    /// Blocks in use by running sequences.
    pub used_blocks: usize,
    /// Distinct blocks that a prompt could reuse.
    pub cached_blocks: usize,
    /// Batches of KV events that got a sequence number.
    pub event_batches: u64,
}

impl Engine {
    /// Starts an engine; it answers when this returns.
    pub async fn start(config: EngineConfig) -> anyhow::Result<Self> {
        config.check()?;
        let vocabulary = Arc::new(Vocabulary::new(&*config.tokenizer, &config.model));
        let port = Arc::new(Port::reserve(config.listen)?);
        let event_ports = config.events.as_ref().map(EventPorts::reserve).transpose()?;
        let house = Arc::new_cyclic(|this| House {
            this: this.clone(),
            port,
            event_ports,
            recorder: Arc::new(Recorder::new(config.record_requests)),
            faults: Arc::new(FaultBoard::default()),
            chance: Mutex::new(StdRng::seed_from_u64(config.seed)),
            vocabulary,
            config: Arc::new(config),
            now: Mutex::new(None),
            restarts: tokio::sync::Mutex::new(()),
        });
        house.launch().await?;
        Ok(Self { house })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.house.port.address())
    }

    /// Where HTTP listens.
    pub fn address(&self) -> SocketAddr {
        self.house.port.address()
    }

    /// The settings it runs with.
    pub fn config(&self) -> &EngineConfig {
        &self.house.config
    }

    /// Where its KV events come from; `None` without events.
    pub fn kv_events(&self) -> Option<KvEndpoints> {
        self.house.kv_events()
    }

    /// Leading tokens of a prompt that the engine would reuse if it were scheduled now: whole blocks, never the
    /// last token. Exact.
    pub fn cached_prefix_tokens(&self, tokens: &[u32], adapter: Option<&str>, salt: Option<&str>) -> usize {
        let scope = Scope { adapter: scope_part(adapter), salt: scope_part(salt) };
        self.house.core().map_or(0, |core| core.cached_prefix_tokens(tokens, &scope))
    }

    /// The work it has now. Exact.
    pub fn backlog(&self) -> Backlog {
        self.house.core().map_or_else(Backlog::default, |core| core.backlog())
    }

    /// What it has done since its last start.
    pub fn stats(&self) -> Stats {
        let desk = self.house.now.lock().as_ref().map(|running| Arc::clone(&running.desk));
        let Some(desk) = desk else { return Stats::default() };
        let metrics = &desk.core.metrics;
        let state = desk.core.state.lock();
        Stats {
            finished_requests: metrics.finished_requests(),
            prompt_tokens: metrics.prompt_tokens.value(),
            cached_tokens: metrics.cached_prompt_tokens.value(),
            generated_tokens: metrics.generation_tokens.value(),
            waiting: state.ledger.waiting(),
            running: state.ledger.running(),
            used_blocks: state.cache.used_blocks(),
            cached_blocks: state.cache.contents(),
            event_batches: desk.outlet.as_ref().map_or(0, |outlet| outlet.published()),
        }
    }

    /// The latest requests on any path, oldest first. They survive restarts.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.house.recorder.requests()
    }

    /// Forgets the recorded requests.
    pub fn clear_requests(&self) {
        self.house.recorder.clear();
    }

    /// Misbehaves from here on; [`Fault::None`](crate::Fault::None) ends it. In force when this returns. Survives restarts.
    pub async fn set_fault(&self, fault: impl Into<FaultOrder>) {
        let order = fault.into();
        let control = self.house.now.lock().as_ref().map(|running| running.desk.control.clone());
        match control {
            Some(control) => control.set(order).await,
            None => self.house.faults.set(order),
        }
    }

    /// Empties the prefix cache, as `POST /reset_prefix_cache` does. False, and nothing done, while sequences run.
    pub fn reset_prefix_cache(&self) -> bool {
        self.house.core().is_some_and(|core| core.state.lock().cache.reset())
    }

    /// Falls asleep, as `POST /sleep` does: the cache is given up without an event, and the metrics say so. It must get no
    /// requests until [`wake_up`](Self::wake_up). False, and nothing done, while sequences run.
    pub fn sleep(&self) -> bool {
        self.house.core().is_some_and(|core| core.sleep())
    }

    /// Is awake again, with an empty cache.
    pub fn wake_up(&self) {
        if let Some(core) = self.house.core() {
            core.wake_up();
        }
    }

    /// Dies and starts again on the same ports: connections are cut, the cache is empty, events count from 0, and a
    /// random hash root is another one. A fault stays in force.
    pub async fn restart(&self) -> anyhow::Result<()> {
        self.house.restart().await
    }

    /// Dies. Its ports refuse connections; [`restart`](Self::restart) brings it back.
    pub async fn stop(&self) {
        let _one_at_a_time = self.house.restarts.lock().await;
        self.house.shut_down().await;
    }
}

impl House {
    /// See [`Engine::restart`].
    pub(crate) async fn restart(&self) -> anyhow::Result<()> {
        let _one_at_a_time = self.restarts.lock().await;
        self.shut_down().await;
        self.launch().await
    }

    fn kv_events(&self) -> Option<KvEndpoints> {
        let ports = self.event_ports.as_ref()?;
        let events = match (ports.publisher(), self.config.events.as_ref().map(|events| &events.endpoint)) {
            (Some(address), _) => format!("tcp://{address}"),
            (None, Some(crate::config::EventsEndpoint::Connect(endpoint))) => endpoint.clone(),
            (None, _) => return None,
        };
        Some(KvEndpoints { events, replay: ports.replay().map(|address| format!("tcp://{address}")) })
    }

    async fn launch(&self) -> anyhow::Result<()> {
        let publisher = match (&self.config.events, &self.event_ports) {
            (Some(events), Some(ports)) => Some(Publisher::start(events, self.config.kind, ports).await?),
            _ => None,
        };
        let outlet = publisher.as_ref().map(Publisher::outlet);
        let chance = self.chance.lock().next_u64();
        let core = Core::new(Arc::clone(&self.config), Arc::clone(&self.vocabulary), outlet.clone(), chance);
        let (control, orders) = FaultControl::new();
        let desk = Arc::new(Desk {
            config: Arc::clone(&self.config),
            core,
            address: self.port.address(),
            member: self.config.part.as_ref().map(|part| part.fabric.join(part.role)),
            faults: Arc::clone(&self.faults),
            recorder: Arc::clone(&self.recorder),
            event_sources: self.event_sources(),
            control,
            outlet,
            responses: Mutex::default(),
            house: self.this.clone(),
        });
        let stop = CancellationToken::new();
        let server = Server::start(Arc::clone(&self.port), Arc::clone(&desk), orders, stop.clone())?;
        *self.now.lock() = Some(Running { desk, server, publisher, stop });
        Ok(())
    }

    async fn shut_down(&self) {
        let Some(running) = self.now.lock().take() else { return };
        running.stop.cancel();
        running.server.stopped().await;
        if let Some(publisher) = running.publisher {
            publisher.stop().await;
        }
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.now.lock().as_ref().map(|running| Arc::clone(&running.desk.core))
    }

    /// vLLM 0.32 lists its event endpoints; 0.18 and SGLang have no such path.
    fn event_sources(&self) -> Option<serde_json::Value> {
        if self.config.kind == EngineKind::Sglang {
            return None;
        }
        let (Some(events), Some(ports)) = (&self.config.events, &self.event_ports) else {
            return Some(json!({}));
        };
        if events.encoding == Encoding::Array {
            return None;
        }
        let wildcard = |address: SocketAddr| format!("tcp://*:{}", address.port());
        let endpoint = ports.publisher().map(wildcard).or_else(|| self.kv_events().map(|kv| kv.events));
        let mut sources = serde_json::Map::new();
        sources.insert(
            events.rank.to_string(),
            json!({
                "enable_kv_cache_events": true,
                "publisher": "zmq",
                "endpoint": endpoint,
                "replay_endpoint": ports.replay().map(wildcard),
                "buffer_steps": events.replay_buffer,
                "hwm": 100_000,
                "max_queue_size": 100_000,
                "topic": events.topic,
            }),
        );
        Some(sources.into())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(running) = self.house.now.lock().take() {
            running.stop.cancel();
            if let Some(publisher) = running.publisher {
                publisher.cancel();
            }
        }
    }
}

#[cfg(test)]
mod tests;
