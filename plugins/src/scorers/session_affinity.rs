//! `session-affinity`: keeps a conversation at the endpoint that served it last.
//!
//! A conversation has the name that its client gives it in a header, or else in the body. When an answer was relayed to
//! its end, the conversation is bound to that endpoint. `score = 100` for the bound endpoint and no opinion on the
//! others. Prefill and decode endpoints have bindings of their own. A binding ends after `ttl` of silence, and with the
//! life of its endpoint: one that restarted has lost its cache.
//!
//! Where the bound endpoint is overloaded there is no opinion at all, and the next success elsewhere moves the binding.
//! It is overloaded with `maxWaitingRequests` waiting in its engine, or with more than 8 requests and more than
//! `maxInFlightRatio` times the mean of the other candidates.
//!
//! A conversation that is not bound here may be bound in another replica, or was before a restart. For it each candidate
//! gets from 0 to 1 point by a hash of the conversation and the endpoint's name, which is the same everywhere
//! (rendezvous hashing): replicas agree without a word, and an endpoint that comes or goes moves only its own share. One
//! point decides between equals and hardly anything else.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `headerName` | X-Session-ID | looked at first |
//! | `bodyFields` | none | dotted paths into the JSON body, such as `user`, `metadata.session_id`; the first with a value |
//! | `ttl` | 30m | 1s to 168h |
//! | `maxSessions` | 100000 | 1 to 10000000 |
//! | `maxInFlightRatio` | 2 | 1 to 1000 |
//! | `maxWaitingRequests` | 10 | at least 1 |
//!
//! ```yaml
//! scheduler:
//!   pluginConfig:
//!     - name: session-affinity
//!       args: {headerName: X-Session-ID, bodyFields: [user, metadata.session_id], ttl: 30m}
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: kvasir-cost, weight: 1}
//!         - {name: session-affinity, weight: 1}
//! ```

mod bindings;

use std::sync::Arc;

use kvasir_core::{
    Candidates, Clock, CycleState, Endpoint, InFlightCost, Load, Phase, PlacementObserver, Plugin, Role,
    Scorer, Scores, Usage,
};
use kvasir_settings::resolved::SessionAffinityArgs;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::bindings::Bindings;
use super::life_of;

/// Given to the bound endpoint.
const BOUND: f64 = 100.0;

/// An engine batches so many requests at next to no cost, however idle the others are.
const BATCHED: u32 = 8;

/// What rendezvous hashing may give: less than a point of any whole-numbered scorer.
const PREFERRED: f64 = 1.0;

/// The scorer, which is also the observer that binds.
pub struct SessionAffinity {
    /// Where whole requests, and answers of requests that were prefilled elsewhere, are served.
    decode: Bindings,
    prefill: Bindings,
    most_in_flight_ratio: f64,
    most_waiting: u32,
    clock: Arc<dyn Clock>,
}

impl SessionAffinity {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "session-affinity";

    /// With its arguments; nobody is bound yet.
    pub fn new(args: &SessionAffinityArgs, clock: Arc<dyn Clock>) -> Self {
        Self {
            decode: Bindings::new(args.max_sessions, args.ttl),
            prefill: Bindings::new(args.max_sessions, args.ttl),
            most_in_flight_ratio: args.max_in_flight_ratio,
            most_waiting: args.max_waiting_requests,
            clock,
        }
    }

    /// Conversations that are remembered as bound, for decoding and for prefill.
    pub fn sessions(&self) -> (usize, usize) {
        (self.decode.len(), self.prefill.len())
    }

    fn is_overloaded(&self, pool: &Candidates, load: &Load) -> bool {
        let (count, sum) = pool.kept().fold((0_u32, 0_u64), |(count, sum), (_, candidate)| {
            (count + 1, sum + u64::from(requests(&candidate.load)))
        });
        let own = requests(load);
        let others = (sum - u64::from(own)) as f64 / f64::from(count.saturating_sub(1).max(1));
        let waiting = load.sample.map_or(0, |sample| sample.waiting);
        let crowded = own > BATCHED && f64::from(own) > self.most_in_flight_ratio * others;
        waiting >= self.most_waiting || (count > 1 && crowded)
    }
}

impl std::fmt::Debug for SessionAffinity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionAffinity")
            .field("most_in_flight_ratio", &self.most_in_flight_ratio)
            .field("most_waiting", &self.most_waiting)
            .finish_non_exhaustive()
    }
}

impl Plugin for SessionAffinity {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for SessionAffinity {
    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        let Some(session) = session_of(cycle) else { return };
        let bindings = if pool.phase() == Phase::Prefill { &self.prefill } else { &self.decode };
        let bound = bindings.endpoint(session, self.clock.now());
        let found = pool.kept().find(|(_, candidate)| Some(life_of(&candidate.endpoint)) == bound);
        match found {
            Some((_, candidate)) if self.is_overloaded(pool, &candidate.load) => {}
            Some((index, _)) => {
                if let Some(slot) = out.get_mut(index) {
                    *slot = Some(BOUND);
                }
            }
            None => super::fill(pool, out, |_, candidate| Some(preference(session, &candidate.endpoint))),
        }
    }
}

impl PlacementObserver for SessionAffinity {
    fn dispatched(&self, _: &CycleState, _: &Endpoint, _: InFlightCost) {}

    fn completed(&self, cycle: &CycleState, endpoint: &Endpoint, _: Option<&Usage>) {
        let Some(session) = session_of(cycle) else { return };
        let bindings = if endpoint.role == Role::Prefill { &self.prefill } else { &self.decode };
        bindings.bind(session, life_of(endpoint), self.clock.now());
    }

    fn failed(&self, _: &CycleState, _: &Endpoint) {}
}

/// The conversation with this model: another model's endpoints are others.
fn session_of(cycle: &CycleState) -> Option<u64> {
    cycle.session.map(|session| xxh3_64_with_seed(cycle.model.as_str().as_bytes(), session.0))
}

fn requests(load: &Load) -> u32 {
    load.in_flight.saturating_add(load.foreign())
}

/// From 0 to [`PREFERRED`], by names alone.
fn preference(session: u64, endpoint: &Endpoint) -> f64 {
    let id = &endpoint.id;
    let place = u64::from(id.port) << 32 | u64::from(id.rank);
    let pod =
        xxh3_64_with_seed(id.pod.as_bytes(), xxh3_64_with_seed(id.namespace.as_bytes(), session ^ place));
    // The upper 53 bits fit a float's mantissa.
    (pod >> 11) as f64 / (1_u64 << 53) as f64 * PREFERRED
}

#[cfg(test)]
mod tests;
