//! The state: read by every request, written by whoever knows the endpoints.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use kvasir_core::{
    Candidate, Candidates, Clock, Endpoint, EndpointDirectory, EndpointId, InFlightCost, Load, ModelName,
    OwnerSlot, Role,
};
use parking_lot::Mutex;
use rand::Rng;

use crate::available::available;
use crate::freshness::Freshness;
use crate::health::{Attempt, Standing, Turn};
use crate::in_flight::InFlight;
use crate::live::Live;
use crate::plan::{Changes, Plan, TargetId};
use crate::query::{Destination, NoRoute, Resolved, RouteName, RouteQuery, Routed};
use crate::routes::Listing;
use crate::slots::SlotPool;
use crate::snapshot::{Member, Snapshot};
use crate::status::EndpointStatus;
use crate::target::Target;

/// What the state is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateOptions {
    /// How often engines are scraped. A sample that is older than three intervals (at least 5 s) is not used; what it
    /// shows of others' requests fades from the first to the third.
    pub scrape_interval: Duration,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self { scrape_interval: Duration::from_secs(1) }
    }
}

/// Routes, targets and endpoints with their live numbers. Shared by every request; no call waits for more than a swap of
/// a few pointers.
pub struct State {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) freshness: Freshness,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    /// Held through a swap, so that swaps follow one another.
    slots: Mutex<SlotPool>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("freshness", &self.freshness)
            .field("snapshot", &self.snapshot.load())
            .finish_non_exhaustive()
    }
}

/// Routes, endpoints, swaps.
impl State {
    /// A state without models.
    pub fn new(clock: Arc<dyn Clock>, options: StateOptions) -> Self {
        Self {
            clock,
            freshness: Freshness::of(options.scrape_interval),
            snapshot: ArcSwap::default(),
            slots: Mutex::default(),
        }
    }

    /// Makes `plan` the state. An endpoint that is still where it was, with the same engine, model and start, keeps its
    /// slot and live numbers; one that moved counts as removed and added. Requests in flight go on undisturbed: what was
    /// resolved stays as it was. Contradictions are logged when they are new.
    pub fn replace(&self, plan: Plan) -> Changes {
        let mut slots = self.slots.lock();
        let before = self.snapshot.load_full();
        let (next, changes) = before.next(plan, &mut slots);
        self.snapshot.store(Arc::new(next));
        drop(slots);
        let known: HashSet<&str> = before.conflicts.iter().map(String::as_str).collect();
        for conflict in changes.conflicts.iter().filter(|conflict| !known.contains(conflict.as_str())) {
            tracing::warn!("{conflict}");
        }
        changes
    }

    /// Lets a removed endpoint's slot be given out again. To be called once the block index has forgotten it; a slot
    /// in use is left alone.
    pub fn release_slot(&self, slot: OwnerSlot) {
        self.slots.lock().release(slot);
    }

    /// Where a request goes. Pure but for `rng`, which weights are drawn with; allocates only for a path that a route
    /// changes, and for escapes and capital letters in path and host.
    ///
    /// # Errors
    /// Why it goes nowhere.
    pub fn resolve(&self, query: &RouteQuery<'_>, rng: &mut dyn Rng) -> Result<Routed, NoRoute> {
        let snapshot = self.snapshot.load();
        let mut routed = snapshot.table.resolve(query, rng)?;
        if let Routed::To(resolved) = &mut routed {
            resolved.generation = snapshot.generation;
        }
        Ok(routed)
    }

    /// Whether requests come in by listeners of Gateways, so that a path outside `/v1/` may have a route.
    pub fn in_gateway_mode(&self) -> bool {
        self.snapshot.load().table.is_in_gateway_mode()
    }

    /// The ports of the listeners of all Gateways; `None` outside Gateway mode.
    pub fn gateway_ports(&self) -> Option<BTreeSet<u16>> {
        self.snapshot.load().table.ports()
    }

    /// The target with this id.
    pub fn target(&self, id: &TargetId) -> Option<Arc<Target>> {
        self.snapshot.load().targets.get(id).map(Arc::clone)
    }

    /// The way to one endpoint, whatever model is asked for; `None` for one that serves no target. Looks at all targets:
    /// for rare requests only.
    pub fn resolve_endpoint(&self, id: &EndpointId) -> Option<Resolved> {
        let snapshot = self.snapshot.load();
        let serves = |target: &&Arc<Target>| target.endpoints().any(|endpoint| endpoint.id == *id);
        // Targets are in no order; the least id makes the answer the same each time.
        let target = snapshot.targets.values().filter(serves).min_by_key(|target| &target.id)?;
        let destination = Destination {
            target: Arc::clone(target),
            route: RouteName::Model(Arc::clone(&target.label)),
            timeout: target.timeout,
            deadline: None,
            edits: None,
        };
        let mut resolved = Resolved::new(&Arc::new(destination), None, None);
        resolved.generation = snapshot.generation;
        Some(resolved)
    }

    /// Every name clients may use, aliases and adapters included, sorted by its bytes.
    pub fn models(&self) -> Arc<[Listing]> {
        Arc::clone(self.snapshot.load().table.listings())
    }

    /// The endpoint with this id.
    pub fn endpoint(&self, id: &EndpointId) -> Option<Arc<Endpoint>> {
        self.snapshot.load().members.get(id).map(|member| Arc::clone(&member.endpoint))
    }

    /// The endpoint that has this slot now.
    pub fn endpoint_by_slot(&self, slot: OwnerSlot) -> Option<Arc<Endpoint>> {
        self.snapshot.load().by_slot.get(&slot).map(Arc::clone)
    }

    /// Whether new requests may go to this endpoint, as its plan says; false for one that is gone.
    pub fn is_ready(&self, id: &EndpointId) -> bool {
        self.snapshot.load().members.get(id).is_some_and(|member| member.ready)
    }

    /// Whether a frozen endpoint is still there, the same engine in the same slot, and takes new requests. One that
    /// prefills or decodes for others must have its part and its labels still: they say whom it is paired with.
    pub fn still_takes(&self, endpoint: &Endpoint) -> bool {
        let snapshot = self.snapshot.load();
        let plays = |now: &Endpoint| {
            endpoint.role == Role::Both || (now.role == endpoint.role && now.labels == endpoint.labels)
        };
        snapshot.member(endpoint).is_some_and(|member| {
            member.ready && plays(&member.endpoint) && !member.live.draining.load(Ordering::Relaxed)
        })
    }

    /// Every name that blocks are filed and prompts tokenized under.
    pub fn index_models(&self) -> BTreeSet<ModelName> {
        self.snapshot.load().targets.values().map(|target| target.index_model.clone()).collect()
    }

    /// Every endpoint in service, with whether its health is worth an active probe.
    pub fn scrape_targets(&self) -> Vec<(Arc<Endpoint>, bool)> {
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let target =
            |member: &Member| (Arc::clone(&member.endpoint), member.live.standing(now) != Standing::In);
        snapshot.members.values().filter(|member| member.ready).map(target).collect()
    }

    pub(crate) fn live(&self, id: &EndpointId) -> Option<Arc<Live>> {
        self.snapshot.load().members.get(id).map(|member| Arc::clone(&member.live))
    }
}

/// Choosing and running.
impl State {
    /// The endpoints that a request may go to, with their loads, frozen.
    ///
    /// Draining endpoints are never among them. With an adapter, only those that list it, if any does. Of the rest,
    /// those that are out or asleep are left out, unless that would leave nobody. Where prefill and decode are apart,
    /// both rules hold for each part by itself, and the last one also where nobody could be paired otherwise.
    pub fn candidates(&self, resolved: &Resolved) -> Candidates {
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let adapter = resolved.adapter.as_ref();
        let candidate = |member: &Member| {
            let mut load = member.live.load(now, self.freshness);
            if let Some(adapter) = adapter {
                load.adapter = member.live.adapters.read().standing(adapter.as_str(), now, self.freshness);
            }
            Candidate { endpoint: Arc::clone(&member.endpoint), load }
        };
        let apart = resolved.target.disaggregation.as_ref();
        let members = available(snapshot.pool(resolved), adapter, apart, now);
        Candidates::new(members.into_iter().map(candidate).collect())
    }

    /// The load of one endpoint now; zero for one that is gone.
    pub fn load(&self, id: &EndpointId) -> Load {
        self.live(id).map_or_else(Load::default, |live| live.load(self.clock.now(), self.freshness))
    }

    /// Counts one attempt at `endpoint` until the guard is dropped. An endpoint that was removed or replaced since it
    /// was frozen counts for itself only.
    pub fn begin(&self, endpoint: &Endpoint, cost: InFlightCost) -> InFlight {
        let snapshot = self.snapshot.load();
        let live = snapshot.member(endpoint).map_or_else(Arc::default, |member| Arc::clone(&member.live));
        let trial = live.claim_trial(|| self.clock.now());
        InFlight::new(live, cost, trial)
    }

    /// Takes in how an attempt at `endpoint` went. It says nothing of an engine that has taken its place since.
    pub fn report_of(&self, endpoint: &Endpoint, attempt: Attempt) {
        if self.snapshot.load().member(endpoint).is_some() {
            self.report(&endpoint.id, attempt);
        }
    }

    /// Takes in how an attempt went; an endpoint that is gone is ignored.
    pub fn report(&self, endpoint: &EndpointId, attempt: Attempt) {
        if let Some(live) = self.live(endpoint) {
            let turn = live.report(attempt, || self.clock.now());
            log_turn(endpoint, turn, attempt);
        }
    }

    /// Whether a 500 from this endpoint may be its own fault: it drains, sleeps, is out, is not ready, or is gone.
    pub fn unhealthy(&self, id: &EndpointId) -> bool {
        let snapshot = self.snapshot.load();
        let Some(Member { live, ready, .. }) = snapshot.members.get(id) else { return true };
        !ready
            || live.draining.load(Ordering::Relaxed)
            || live.asleep.load(Ordering::Relaxed)
            || live.standing(self.clock.now()) != Standing::In
    }
}

/// Operating and looking.
impl State {
    /// Takes endpoints out of service or back in: the one with this id, or all behind this URL. False when there is
    /// none.
    pub fn drain(&self, id_or_url: &str, draining: bool) -> bool {
        let snapshot = self.snapshot.load();
        let wanted = id_or_url.trim_end_matches('/');
        let mut found = false;
        for member in snapshot.members.values() {
            if member.endpoint.id.to_string() == wanted || member.endpoint.address.url() == wanted {
                found = true;
                if member.live.draining.swap(draining, Ordering::Relaxed) != draining {
                    tracing::info!(endpoint = %member.endpoint.id, draining, "drain switched");
                }
            }
        }
        found
    }

    /// Takes in whether an engine sleeps. A sleeping engine is passed over; what it cached is gone or useless.
    pub fn set_asleep(&self, id: &EndpointId, asleep: bool) {
        if let Some(live) = self.live(id)
            && live.asleep.swap(asleep, Ordering::Relaxed) != asleep
        {
            tracing::info!(endpoint = %id, asleep, "engine sleep changed");
        }
    }

    /// Every endpoint as it stands now, sorted by id.
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let mut members: Vec<_> = snapshot.members.values().collect();
        members.sort_unstable_by(|one, other| one.endpoint.id.cmp(&other.endpoint.id));
        members.into_iter().map(|member| self.status(member, now)).collect()
    }

    fn status(&self, Member { endpoint, live, ready }: &Member, now: Instant) -> EndpointStatus {
        let draining = live.draining.load(Ordering::Relaxed);
        let health = match live.standing(now) {
            _ if !ready => "not_ready",
            _ if draining => "draining",
            _ if live.asleep.load(Ordering::Relaxed) => "asleep",
            Standing::In => "healthy",
            Standing::Out => "ejected",
            Standing::Trial => "trial",
        };
        EndpointStatus {
            id: endpoint.id.clone(),
            url: endpoint.address.url(),
            model: endpoint.model.clone(),
            engine: endpoint.engine,
            role: endpoint.role,
            slot: endpoint.slot,
            health,
            available: *ready && !draining && live.is_available(now),
            draining,
            load: live.load(now, self.freshness),
            own: live.own(),
            sample_age_seconds: live.sample_age(now).map(|age| age.as_secs_f64()),
            scrape_error: live.scrape_error().map(|error| error.to_string()),
            listed_models: live.list(),
            adapters: live.adapters.read().report(),
            requests: live.requests.load(Ordering::Relaxed),
            failures: live.failures(),
        }
    }
}

impl EndpointDirectory for State {
    fn endpoints_of(&self, model: &ModelName) -> Vec<Arc<Endpoint>> {
        let snapshot = self.snapshot.load();
        let Some(pool) = snapshot.by_model.get(model) else { return Vec::new() };
        let members = available(pool, None, None, self.clock.now());
        members.into_iter().map(|member| Arc::clone(&member.endpoint)).collect()
    }
}

fn log_turn(endpoint: &EndpointId, turn: Option<Turn>, attempt: Attempt) {
    match turn {
        Some(Turn::Out(back_off)) => {
            tracing::warn!(%endpoint, ?attempt, seconds = back_off.as_secs(), "endpoint is taken out");
        }
        Some(Turn::Back) => tracing::info!(%endpoint, by = "answer", "endpoint is back"),
        None => {}
    }
}

#[cfg(test)]
mod tests;
