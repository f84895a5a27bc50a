//! One engine: asked until it answers, followed while it is what it was, asked again when it may be another.

mod following;
mod hearing;
pub mod plan;
mod readings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_coordination::publish::{PublishedOwner, load_resume_state};
use kvasir_core::{BlockSize, Clock, EndpointId, OwnerSlot, SideClient};
use kvasir_kvcache::{EventTap, KvEventsSource};
use kvasir_upstream::{Discovery, discover};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::board::{Board, EngineBoard, Owner, Phase};
use crate::kthena_pod::RankTap;
use crate::publishing::{self, Publishing};
use crate::resume::{self, ResumeState};
use following::{Followed, Rank};
use hearing::Hearing;
use plan::{Found, Plan, plan};
use readings::{Readings, read};

/// For one question to an engine.
const ASK: Duration = Duration::from_secs(2);

/// Waits between questions to an engine that does not answer: doubled from the first to the last, for ever.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// How often an engine that is followed is asked what it is: a restart with other flags keeps its address.
const ASK_ANEW: Duration = Duration::from_secs(30);

/// When block sizes are compared for the first time: a moment after events and metrics were read.
const COMPARE: Duration = Duration::from_secs(5);

/// How long a saved state is waited for. Without Redis the engine's own replay must do.
const RESUME: Duration = Duration::from_secs(3);

/// Owners of one engine have numbers from its own range on, so that no two engines share one.
pub(crate) const MOST_RANKS: u32 = 1024;

/// What all engines' tasks work with.
pub(crate) struct Tools {
    pub(crate) board: Arc<Board>,
    pub(crate) client: Arc<dyn SideClient>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Kvasir's own layout, where it is written.
    pub(crate) publishing: Option<Publishing>,
    pub(crate) scrape_interval: Duration,
    pub(crate) lease: Duration,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("publishing", &self.publishing).finish_non_exhaustive()
    }
}

/// One engine's task.
pub(crate) struct EngineTask {
    tools: Arc<Tools>,
    number: usize,
    board: Arc<EngineBoard>,
    stop: CancellationToken,
}

impl EngineTask {
    pub(crate) fn new(
        tools: Arc<Tools>,
        number: usize,
        board: Arc<EngineBoard>,
        stop: CancellationToken,
    ) -> Self {
        Self { tools, number, board, stop }
    }

    /// Runs until the stop. The owners stay in the index: what they hold is still to be published.
    pub(crate) async fn run(self) {
        while let Some(plan) = self.wait_for_plan().await {
            let (followed, owners) = self.follow(&plan).await;
            tokio::select! {
                () = self.watch(&plan) => {}
                () = self.publish(owners) => {}
            }
            followed.end().await;
            if self.stop.is_cancelled() {
                let states = resume::save(&self.tools.board, &self.board, None).await;
                self.board.publisher.close(states).await;
                return;
            }
            tracing::info!(pod = %self.board.config.pod_name(), "the engine is not what it was; followed anew");
            self.give_up().await;
        }
    }

    /// Ends what is published, and forgets what was followed.
    pub(crate) async fn give_up(&self) {
        self.board.publisher.close(0).await;
        self.forget();
    }

    /// Begins to publish what is followed, once it has been read, and tells from then on whether the engine is heard; never
    /// ends. It is waited no longer than what an earlier agent published is believed.
    async fn publish(&self, owners: Vec<PublishedOwner>) {
        let index = &self.tools.board.index;
        let ranks: Vec<_> = owners.iter().map(|owner| (owner.id.clone(), owner.slot)).collect();
        let slots: Vec<OwnerSlot> = owners.iter().map(|owner| owner.slot).collect();
        let mut hearing = Hearing::new(ranks, self.tools.lease, Instant::now());
        publishing::read(index, &slots, self.tools.lease).await;
        // What the replay told of an engine that sleeps is what it held before.
        self.heed(&read(self.tools.client.as_ref(), &self.board.config, ASK).await);
        if let Some(publishing) = &self.tools.publishing {
            publishing.begin(owners, &self.board.publisher);
        }
        for tap in self.board.state().owners.iter().filter_map(|owner| owner.tap.as_ref()) {
            tap.open();
        }
        hearing.keep_telling(index, |owner, heard| self.board.publisher.set_heard(owner, heard)).await;
    }

    /// Asks until there is something to follow; `None` at the stop.
    async fn wait_for_plan(&self) -> Option<Plan> {
        let mut wait = ASK_AGAIN.0;
        let mut said = None;
        loop {
            let found = self.ask().await?;
            self.board.update(|state| {
                state.version = found.engine_version.clone();
                state.answers = !found.served_models.is_empty();
            });
            let (phase, problem) = match plan(&self.board.config, &found) {
                Found::Plan(plan) => return Some(plan),
                Found::NoEvents(problem) => (Phase::NoEvents, problem),
                Found::Waiting(problem) => (Phase::Waiting, problem),
            };
            if said.as_ref() != Some(&problem) {
                tracing::info!(pod = %self.board.config.pod_name(), "{problem}");
            }
            said = Some(problem.clone());
            self.board.update(|state| (state.phase, state.problem) = (phase, Some(problem)));
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
            }
            wait = (wait * 2).min(ASK_AGAIN.1);
        }
    }

    async fn ask(&self) -> Option<Discovery> {
        let config = &self.board.config;
        tokio::select! {
            () = self.stop.cancelled() => None,
            found = discover(self.tools.client.as_ref(), &config.address, config.kind, ASK) => Some(found),
        }
    }

    /// Starts a follower for each rank.
    async fn follow(&self, plan: &Plan) -> (Followed, Vec<PublishedOwner>) {
        let mut followed = Followed::new(self.stop.child_token());
        let mut owners = Vec::new();
        let mut states = self.resume_states(plan.sources.iter().map(|source| self.owner_id(source))).await;
        for source in &plan.sources {
            let state = states.remove(&self.owner_id(source));
            owners.extend(self.follow_rank(plan, source, state, &mut followed));
        }
        let published = owners.iter().map(|owner: &Owner| PublishedOwner {
            id: owner.id.clone(),
            slot: owner.slot,
            model: plan.model.clone(),
            engine: self.board.config.kind,
            adapters: plan.adapters.clone(),
        });
        let published = published.collect();
        let note = self.name_note(plan);
        if let Some(note) = &note {
            tracing::warn!(pod = %self.board.config.pod_name(), "{note}");
        }
        tracing::info!(
            pod = %self.board.config.pod_name(), model = %plan.model, kthena_model = %plan.kthena_model,
            ranks = owners.len(), "the engine's events are followed"
        );
        self.board.update(|state| {
            state.phase = Phase::Following;
            state.problem = note;
            state.model = Some(plan.model.clone());
            state.kthena_model = Some(plan.kthena_model.clone());
            state.owners = owners;
        });
        (followed, published)
    }

    /// What a user should know who gave a name that the engine does not serve.
    fn name_note(&self, plan: &Plan) -> Option<String> {
        (plan.model != plan.kthena_model).then(|| {
            format!(
                "the engine does not serve {:?}; native keys have {:?}, kthena's keys the given name",
                plan.kthena_model.as_str(),
                plan.model.as_str()
            )
        })
    }

    fn owner_id(&self, source: &KvEventsSource) -> EndpointId {
        let config = &self.board.config;
        let (namespace, pod) = (Arc::clone(&config.namespace), Arc::clone(&config.pod));
        EndpointId::new(namespace, pod, config.address.port, source.rank.unwrap_or(0))
    }

    fn follow_rank(
        &self,
        plan: &Plan,
        source: &KvEventsSource,
        state: Option<ResumeState>,
        followed: &mut Followed,
    ) -> Option<Owner> {
        let (board, config) = (&self.tools.board, &self.board.config);
        let id = self.owner_id(source);
        if id.rank >= MOST_RANKS {
            tracing::warn!(owner = %id, "more ranks than an engine can have; not followed");
            return None;
        }
        let number = u32::try_from(self.number).ok()?.checked_mul(MOST_RANKS)?.checked_add(id.rank)?;
        let slot = board.take_slot(&id);
        if let Err(error) = board.index.register(slot, &plan.model, source.to_string()) {
            tracing::error!(owner = %id, %error, "the owner is not followed");
            return None;
        }
        tracing::info!(owner = %id, %source, "following");
        let (resume_from, ledger) = state.map_or((None, None), |state| (Some(state.owner), state.kthena));
        let pod = board.kthena.pod(config, &plan.kthena_model);
        let tap = pod.map(|pod| Arc::new(RankTap::new(pod, number, ledger)));
        let rank = Rank {
            id: id.clone(),
            slot,
            source: source.clone(),
            index: Arc::clone(&board.index),
            clock: Arc::clone(&self.tools.clock),
            tap: tap.clone().map(|tap| tap as _),
        };
        followed.start(rank, resume_from);
        Some(Owner { id, slot, tap })
    }

    /// What an earlier agent knew of the ranks, as far as Redis tells it in time.
    async fn resume_states(&self, ids: impl Iterator<Item = EndpointId>) -> HashMap<EndpointId, ResumeState> {
        let mut states = HashMap::new();
        if self.tools.publishing.is_none() {
            return states;
        }
        let redis = &self.tools.board.redis;
        let load = async {
            redis.connected().await;
            for id in ids {
                match load_resume_state(redis, &id, RESUME).await {
                    Ok(None) => {}
                    Ok(Some(bytes)) => match ResumeState::from_bytes(&bytes) {
                        Ok(state) => drop(states.insert(id, state)),
                        Err(reason) => tracing::warn!(owner = %id, reason, "the saved state is not used"),
                    },
                    Err(error) => tracing::warn!(owner = %id, %error, "the saved state cannot be read"),
                }
            }
        };
        let loaded = tokio::select! {
            () = self.stop.cancelled() => Ok(()),
            loaded = tokio::time::timeout(RESUME, load) => loaded,
        };
        if loaded.is_err() {
            tracing::warn!(
                pod = %self.board.config.pod_name(),
                "Redis does not tell what an earlier agent saved; the engine's own replay must do"
            );
        }
        states
    }

    /// Reads the engine's metrics, and asks it now and then whether it is still what it was. Returns when it is not, and
    /// at the stop.
    async fn watch(&self, plan: &Plan) {
        let mut ticks = tokio::time::interval(self.tools.scrape_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ask_at = Instant::now() + ASK_ANEW;
        let mut compare_at = Instant::now() + COMPARE;
        let mut last = Readings::answering();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let config = &self.board.config;
            let now = tokio::select! {
                () = self.stop.cancelled() => return,
                now = read(self.tools.client.as_ref(), config, ASK) => now,
            };
            self.heed(&now);
            // It may have been restarted with other flags.
            if now.answers && !last.answers {
                ask_at = Instant::now();
            }
            last = now;
            if Instant::now() >= compare_at {
                compare_at = Instant::now() + ASK_ANEW;
                self.note_sizes();
            }
            if Instant::now() >= ask_at {
                ask_at = Instant::now() + ASK_ANEW;
                let Some(found) = self.ask().await else { return };
                if self.is_another(plan, &found) {
                    return;
                }
            }
        }
    }

    /// Whether the engine has become another one. One that does not answer, or not in full, is still the same: its
    /// events tell what it holds.
    fn is_another(&self, plan: &Plan, found: &Discovery) -> bool {
        if found.served_models.is_empty() {
            return false;
        }
        match plan::plan(&self.board.config, found) {
            Found::Plan(now) => {
                now.model != plan.model
                    || now.kthena_model != plan.kthena_model
                    || now.sources != plan.sources
            }
            Found::NoEvents(_) => true,
            Found::Waiting(_) => false,
        }
    }

    /// Takes in what the metrics say.
    fn heed(&self, now: &Readings) {
        let board = &self.tools.board;
        let state = self.board.state();
        for owner in &state.owners {
            if let Some((blocks, size)) = now.capacity(owner.id.rank)
                && let Some(size) = BlockSize::new(size)
            {
                board.index.set_capacity(owner.slot, blocks, size);
                if let Some(tap) = &owner.tap {
                    tap.set_capacity(blocks);
                }
            }
            // A sleeping engine has given its cache up without an event (fault case KVE-08). What it held before may still
            // come by replay, where it slept before we came.
            if now.asleep && board.index.holds(owner.slot) {
                board.index.reset(owner.slot);
                if let Some(tap) = &owner.tap {
                    tap.forget();
                }
            }
        }
        self.board.update(|state| (state.answers, state.asleep) = (now.answers, now.asleep));
    }

    /// Says once that metrics and events tell different block sizes; the metric stays.
    fn note_sizes(&self) {
        let owners = self.board.state().owners;
        let conflicts = self.tools.board.index.stats().into_iter().filter_map(|stats| {
            let owner = owners.iter().find(|owner| owner.slot == stats.slot)?;
            Some((owner.id.clone(), stats.block_size_conflict?))
        });
        for (id, (told, seen)) in conflicts {
            if self.tools.board.note_size_conflict(&id) {
                tracing::warn!(
                    owner = %id, told = u32::from(told), seen = u32::from(seen),
                    "the engine's metrics and its events tell different block sizes; the events are believed"
                );
            }
        }
    }

    /// Takes back what was published of an engine that has become another one.
    fn forget(&self) {
        let board = &self.tools.board;
        for owner in self.board.state().owners {
            if let Some(tap) = &owner.tap {
                tap.reset();
            }
            board.saves.forget(&owner.id);
            board.index.forget(owner.slot);
        }
        self.board.update(|state| {
            state.owners = Vec::new();
            state.phase = Phase::Waiting;
        });
    }
}
