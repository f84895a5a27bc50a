//! What the agent is at: written by its tasks, read by the HTTP face.

mod status;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvasir_coordination::{PublisherStatus, Redis};
use kvasir_core::{EndpointId, ModelName, OwnerSlot};
use kvasir_kvcache::follow::Link;
use kvasir_kvcache::{Index, OwnerStats};
use parking_lot::Mutex;

use crate::config::{AgentConfig, EngineConfig, Layout};
use crate::kthena_pod::{KthenaPods, RankTap};
use crate::publishing::PublisherDesk;
use crate::resume::SaveLog;

pub use status::{EngineLine, KthenaLine, OwnerLine, RedisLine, Status};

/// How far an engine has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It does not answer, or lists no model yet.
    #[default]
    Waiting,
    /// It answers, and publishes no events.
    NoEvents,
    /// Its events are followed.
    Following,
}

/// One rank whose events are followed.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Who it is.
    pub id: EndpointId,
    /// Its number in the index.
    pub slot: OwnerSlot,
    /// What keeps its part of kthena's layout, where that is written.
    pub tap: Option<Arc<RankTap>>,
}

/// What is known of an engine now.
#[derive(Clone, Debug, Default)]
pub struct EngineState {
    /// How far it has come.
    pub phase: Phase,
    /// What is wrong, in a sentence with the fix.
    pub problem: Option<String>,
    /// What it says of its version.
    pub version: Option<String>,
    /// The model's name in native keys.
    pub model: Option<ModelName>,
    /// The model's name in kthena's keys.
    pub kthena_model: Option<ModelName>,
    /// Its ranks.
    pub owners: Vec<Owner>,
    /// Whether it answered when last asked over HTTP.
    pub answers: bool,
    /// Whether it sleeps.
    pub asleep: bool,
}

/// One engine's line.
#[derive(Debug)]
pub struct EngineBoard {
    /// What it was said to be.
    pub config: EngineConfig,
    state: Mutex<EngineState>,
    /// Its publisher, where Kvasir's own layout is written.
    pub(crate) publisher: PublisherDesk,
    was_followed: AtomicBool,
}

impl EngineBoard {
    /// A line for an engine that nobody has asked yet.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            config,
            state: Mutex::default(),
            publisher: PublisherDesk::default(),
            was_followed: AtomicBool::new(false),
        }
    }

    /// What is known now.
    pub fn state(&self) -> EngineState {
        self.state.lock().clone()
    }

    /// Changes what is known.
    pub fn update(&self, update: impl FnOnce(&mut EngineState)) {
        update(&mut self.state.lock());
    }
}

/// Whether the agent is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Redis was reached and an engine was followed. It stays so: an outage of Redis must not take the pod, and with it
    /// the engine, out of service.
    Ready,
    /// Not yet, for these reasons.
    Waiting(Vec<String>),
    /// The agent is about to end.
    Stopping,
}

/// Everything there is to see.
pub struct Board {
    pub(crate) index: Arc<Index>,
    pub(crate) redis: Redis,
    redis_name: String,
    layout: Layout,
    pub(crate) engines: Vec<Arc<EngineBoard>>,
    pub(crate) kthena: KthenaPods,
    pub(crate) saves: SaveLog,
    /// The number of each owner in the index.
    slots: Mutex<HashMap<EndpointId, OwnerSlot>>,
    /// Owners whose block sizes were found to differ.
    size_conflicts: Mutex<HashSet<EndpointId>>,
    redis_was_reached: AtomicBool,
    stopping: AtomicBool,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("engines", &self.engines.len())
            .field("redis", &self.redis)
            .finish_non_exhaustive()
    }
}

/// One rank with what its parts say of it.
pub(crate) struct OwnerView {
    pub(crate) id: EndpointId,
    pub(crate) name: String,
    pub(crate) stats: OwnerStats,
    pub(crate) published: Option<PublisherStatus>,
}

impl Board {
    /// A board on which nothing has happened.
    pub fn new(config: &AgentConfig, index: Arc<Index>, redis: Redis, kthena: KthenaPods) -> Self {
        Self {
            index,
            redis,
            redis_name: config.redis.to_string(),
            layout: config.layout,
            engines: config.engines.iter().cloned().map(EngineBoard::new).map(Arc::new).collect(),
            kthena,
            saves: SaveLog::default(),
            slots: Mutex::default(),
            size_conflicts: Mutex::default(),
            redis_was_reached: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// The agent is about to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Waits until Redis was reached once. Never ends where that never happens.
    pub async fn reach_redis(&self) {
        self.redis.connected().await;
        self.redis_was_reached.store(true, Ordering::Release);
    }

    /// Whether the agent is ready, and what it waits for.
    pub fn readiness(&self) -> Readiness {
        if self.stopping.load(Ordering::Acquire) {
            return Readiness::Stopping;
        }
        let mut reasons = Vec::new();
        if !self.redis_was_reached.load(Ordering::Acquire) {
            reasons.push("Redis was not reached yet".to_owned());
        }
        // One engine that is down must not take the agent of the others out.
        let followed = self.engines.iter().filter(|engine| self.was_followed(engine)).count();
        if followed == 0 {
            let engines = self.engines.iter().map(|engine| {
                let problem = engine.state().problem;
                let reason = problem.unwrap_or_else(|| "its events are not followed yet".to_owned());
                format!("{}: {reason}", engine.config.pod_name())
            });
            reasons.extend(engines);
        }
        if reasons.is_empty() { Readiness::Ready } else { Readiness::Waiting(reasons) }
    }

    /// Whether all ranks of an engine were followed at the same time once.
    fn was_followed(&self, engine: &EngineBoard) -> bool {
        if engine.was_followed.load(Ordering::Acquire) {
            return true;
        }
        let owners = engine.state().owners;
        let follows = |owner: &Owner| {
            self.index.follower_status(owner.slot).is_some_and(|status| status.link == Link::Following)
        };
        let all = !owners.is_empty() && owners.iter().all(follows);
        if all {
            engine.was_followed.store(true, Ordering::Release);
        }
        all
    }

    /// A number for each owner, the same again for one that comes back.
    pub(crate) fn take_slot(&self, id: &EndpointId) -> OwnerSlot {
        let mut slots = self.slots.lock();
        let next = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        *slots.entry(id.clone()).or_insert(OwnerSlot(next))
    }

    /// Whether a conflict of an owner's block sizes is new.
    pub(crate) fn note_size_conflict(&self, id: &EndpointId) -> bool {
        self.size_conflicts.lock().insert(id.clone())
    }

    /// Every rank that is followed now, engine by engine.
    pub(crate) fn owners(&self) -> Vec<(Arc<EngineBoard>, EngineState, Vec<OwnerView>)> {
        let mut stats: HashMap<OwnerSlot, OwnerStats> =
            self.index.stats().into_iter().map(|stats| (stats.slot, stats)).collect();
        self.engines
            .iter()
            .map(|engine| {
                let state = engine.state();
                let status = engine.publisher.status();
                let mut published: HashMap<EndpointId, PublisherStatus> =
                    status.into_iter().map(|status| (status.owner.clone(), status)).collect();
                let views = state.owners.iter().filter_map(|owner| {
                    Some(OwnerView {
                        id: owner.id.clone(),
                        name: kvasir_coordination::key::owner(&owner.id),
                        stats: stats.remove(&owner.slot)?,
                        published: published.remove(&owner.id),
                    })
                });
                let views = views.collect();
                (Arc::clone(engine), state, views)
            })
            .collect()
    }
}
