//! The paces of all endpoints, learned from answers: read without a lock, bounded, one prior for the pods of a model.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use kvasir_core::{CycleState, Endpoint, ModelName, Role};
use parking_lot::Mutex;

use super::pace::{Fit, Pace, TRUSTED};
use crate::scorers::life_of;

/// Observations that a fleet's pace rests on, and an endpoint's.
const FLEET_MEMORY: f64 = 512.0;
const ENDPOINT_MEMORY: f64 = 64.0;

/// What the prior counts, in observations: little for a fleet, whose prior is a guess; as many as make the fleet's
/// pace outweigh an endpoint's first few answers.
const FLEET_PRIOR: f64 = 1.0;
const ENDPOINT_PRIOR: f64 = 8.0;

/// A pace up to this many times that of the fleet, or that much below it, is taken to be the fleet's: what is left of
/// noise after 64 observations must not make one of equal pods everybody's favourite.
const ALIKE: f32 = 1.2;

/// A fixed cost this much above the fleet's, seconds, is taken to be the fleet's: an engine step more or less.
const ALIKE_FIXED: f32 = 0.02;

/// An endpoint of which nothing was seen for so many answers of its fleet begins to count as an unseen one, and fully
/// does after twice as many: what made it slow may be over, and nobody would find out.
const STALE: u32 = 2048;

/// Models with a pace of their own. There are as many as settings and objects name; beyond this they share one.
const MOST_MODELS: usize = 4096;

/// Slots in a page, and pages. Together as many as the index numbers.
const PAGE: usize = 256;
const PAGES: usize = 1024;

/// Requests whose work is remembered from their dispatch to their end; of more at once, the oldest teach nothing.
const REQUESTS: usize = 1 << 16;

/// What was seen of the endpoints.
pub(super) struct Fleets {
    models: ArcSwap<HashMap<ModelName, Arc<Fleet>>>,
    /// For models beyond the bound.
    rest: Arc<Fleet>,
    pages: Box<[OnceLock<Box<[Seen]>>]>,
    requests: Box<[Request]>,
    /// Turns taken: one for each request that was sent.
    turns: AtomicU32,
}

/// The endpoints of one model, taken together.
#[derive(Debug)]
pub(super) struct Fleet {
    pace: AtomicU64,
    answers: AtomicU32,
    fit: Mutex<Fit>,
}

/// One endpoint.
#[derive(Debug)]
struct Seen {
    /// Which endpoint the pace is of: slots are given out again.
    owner: AtomicU64,
    pace: AtomicU64,
    /// The fleet's count at its last answer.
    last: AtomicU32,
    /// What the last decision saw there: the work (`f32` bits, no number where it is not known well) above the cycle's
    /// number (its lower 32 bits).
    view: AtomicU64,
    /// Its turn, when a request was last sent there; 0 before the first one.
    sent: AtomicU32,
    fit: Mutex<Fit>,
}

/// One request on its way.
#[derive(Debug, Default)]
struct Request {
    /// As [`Seen::view`].
    work: AtomicU64,
    /// Seconds until the first byte (`f32` bits); 0 until it is here.
    took: AtomicU32,
}

impl Fleets {
    pub(super) fn new() -> Self {
        Self {
            models: ArcSwap::default(),
            rest: Arc::new(Fleet::new()),
            pages: (0..PAGES).map(|_| OnceLock::new()).collect(),
            requests: (0..REQUESTS).map(|_| Request::default()).collect(),
            turns: AtomicU32::new(0),
        }
    }

    /// The fleet of a model; `None` before its first answer.
    pub(super) fn of(&self, model: &ModelName) -> Option<Arc<Fleet>> {
        let models = self.models.load();
        match models.get(model) {
            Some(fleet) => Some(Arc::clone(fleet)),
            None if models.len() >= MOST_MODELS => Some(Arc::clone(&self.rest)),
            None => None,
        }
    }

    /// The pace to reckon with at `endpoint`, of whose fleet `prior` is the pace and `answers` the count.
    pub(super) fn pace(&self, endpoint: &Endpoint, prior: Pace, answers: u32) -> Pace {
        let Some(seen) = self.seen(endpoint) else { return prior };
        if seen.owner.load(Ordering::Acquire) != life_of(endpoint) {
            return prior;
        }
        let own = Pace::from_bits(seen.pace.load(Ordering::Relaxed));
        // Below 0 where an answer ended since `answers` was read.
        let age = (answers.wrapping_sub(seen.last.load(Ordering::Relaxed)) as i32).max(0);
        let trust = (2.0 - age as f32 / STALE as f32).min(1.0);
        if trust <= 0.0 { prior } else { set_apart(own, prior, trust) }
    }

    /// Notes what a decision saw at a candidate: the whole work before its first token, or no number.
    pub(super) fn saw(&self, endpoint: &Endpoint, cycle: &CycleState, work: f64) {
        if let Some(seen) = self.seen(endpoint) {
            seen.view.store(u64::from((work as f32).to_bits()) << 32 | number_of(cycle), Ordering::Relaxed);
        }
    }

    /// How many requests this router has sent since it last sent one there; `None` where it sent none.
    pub(super) fn since(&self, endpoint: &Endpoint) -> Option<u32> {
        let sent = self.seen(endpoint)?.sent.load(Ordering::Relaxed);
        (sent > 0).then(|| self.turns.load(Ordering::Relaxed).wrapping_sub(sent))
    }

    /// A request leaves for `endpoint`: what the decision saw there is what its answer will be measured by.
    pub(super) fn left(&self, endpoint: &Endpoint, cycle: &CycleState) {
        if let Some(seen) = self.seen(endpoint) {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            seen.sent.store(turn.max(1), Ordering::Relaxed);
        }
        let Some(request) = self.request(cycle).filter(|_| endpoint.role != Role::Decode) else { return };
        let view = self.seen(endpoint).map_or(0, |seen| seen.view.load(Ordering::Relaxed));
        let known = view & u64::from(u32::MAX) == number_of(cycle);
        let work = if known { view } else { u64::from(f32::NAN.to_bits()) << 32 | number_of(cycle) };
        request.took.store(0, Ordering::Relaxed);
        request.work.store(work, Ordering::Release);
    }

    /// Its first byte is here, after `seconds`.
    pub(super) fn began(&self, endpoint: &Endpoint, cycle: &CycleState, seconds: f64) {
        // Only a stream begins with its first token; a prefill endpoint answers with one token.
        let tells = cycle.streamed || endpoint.role == Role::Prefill;
        let Some(request) = self.request(cycle).filter(|_| tells && endpoint.role != Role::Decode) else {
            return;
        };
        if request.work.load(Ordering::Acquire) & u64::from(u32::MAX) == number_of(cycle) {
            request.took.store((seconds as f32).to_bits(), Ordering::Relaxed);
        }
    }

    /// It ended well, so its time counts: a refusal is quick whatever was asked.
    pub(super) fn ended(&self, endpoint: &Endpoint, cycle: &CycleState) {
        let Some(request) = self.request(cycle).filter(|_| endpoint.role != Role::Decode) else { return };
        let bits = request.work.load(Ordering::Acquire);
        let seconds = f32::from_bits(request.took.swap(0, Ordering::Relaxed));
        let work = f32::from_bits((bits >> 32) as u32);
        let own = bits & u64::from(u32::MAX) == number_of(cycle);
        if own && work.is_finite() && seconds.is_finite() && seconds > 0.0 {
            self.learn(endpoint, &cycle.model, f64::from(work), f64::from(seconds));
        }
    }

    fn learn(&self, endpoint: &Endpoint, model: &ModelName, work: f64, seconds: f64) {
        let fleet = self.of(model).unwrap_or_else(|| self.enter(model));
        let (prior, answers) = fleet.learn(work, seconds);
        let Some(seen) = self.seen(endpoint) else { return };
        let owner = life_of(endpoint);
        let mut fit = seen.fit.lock();
        let known = if seen.owner.load(Ordering::Relaxed) == owner {
            Pace::from_bits(seen.pace.load(Ordering::Relaxed))
        } else {
            *fit = Fit::remembering(ENDPOINT_MEMORY);
            prior
        };
        // One stall of a new endpoint in a fleet that is known (it compiles at its first request) is an outlier: else it
        // would be taken to be that slow, and not be chosen until nobody trusts that any more.
        let pace = fit.learn(known, prior, ENDPOINT_PRIOR, work, seconds, answers <= TRUSTED);
        seen.pace.store(pace.to_bits(), Ordering::Relaxed);
        seen.last.store(answers, Ordering::Relaxed);
        seen.owner.store(owner, Ordering::Release);
    }

    fn enter(&self, model: &ModelName) -> Arc<Fleet> {
        let fleet = Arc::new(Fleet::new());
        let mut entered = Arc::clone(&fleet);
        self.models.rcu(|models| match models.get(model) {
            Some(known) => {
                entered = Arc::clone(known);
                HashMap::clone(models)
            }
            None if models.len() >= MOST_MODELS => {
                entered = Arc::clone(&self.rest);
                HashMap::clone(models)
            }
            None => {
                entered = Arc::clone(&fleet);
                let mut models = HashMap::clone(models);
                models.insert(model.clone(), Arc::clone(&fleet));
                models
            }
        });
        entered
    }

    /// The endpoint's entry. Pages are made as slots come into use.
    fn seen(&self, endpoint: &Endpoint) -> Option<&Seen> {
        let slot = endpoint.slot.0 as usize;
        let page = self.pages.get(slot / PAGE)?.get_or_init(|| (0..PAGE).map(|_| Seen::new()).collect());
        page.get(slot % PAGE)
    }

    fn request(&self, cycle: &CycleState) -> Option<&Request> {
        self.requests.get(cycle.number as usize % REQUESTS)
    }
}

impl std::fmt::Debug for Fleets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleets").field("models", &self.models.load().len()).finish_non_exhaustive()
    }
}

impl Fleet {
    fn new() -> Self {
        Self {
            pace: AtomicU64::new(Pace::UNSEEN.to_bits()),
            answers: AtomicU32::new(0),
            fit: Mutex::new(Fit::remembering(FLEET_MEMORY)),
        }
    }

    /// The pace, and how many answers were seen.
    pub(super) fn known(&self) -> (Pace, u32) {
        (Pace::from_bits(self.pace.load(Ordering::Relaxed)), self.answers.load(Ordering::Relaxed))
    }

    fn learn(&self, work: f64, seconds: f64) -> (Pace, u32) {
        let mut fit = self.fit.lock();
        let (known, answers) = self.known();
        let pace = fit.learn(known, Pace::UNSEEN, FLEET_PRIOR, work, seconds, answers < TRUSTED);
        self.pace.store(pace.to_bits(), Ordering::Relaxed);
        self.answers.store(answers.wrapping_add(1), Ordering::Relaxed);
        (pace, answers.wrapping_add(1))
    }
}

impl Seen {
    fn new() -> Self {
        Self {
            owner: AtomicU64::new(0),
            pace: AtomicU64::new(Pace::UNSEEN.to_bits()),
            last: AtomicU32::new(0),
            view: AtomicU64::new(0),
            sent: AtomicU32::new(0),
            fit: Mutex::new(Fit::remembering(ENDPOINT_MEMORY)),
        }
    }
}

/// The lower half of a cycle's number.
fn number_of(cycle: &CycleState) -> u64 {
    cycle.number & u64::from(u32::MAX)
}

/// The endpoint's own pace where it plainly differs from that of its fleet, else the fleet's; between the two there is a
/// slope, so that a small change of what was learned is a small change of the choice.
fn set_apart(own: Pace, fleet: Pace, trust: f32) -> Pace {
    let above = own.fixed - fleet.fixed;
    let fixed = fleet.fixed + (above.abs() - ALIKE_FIXED).max(0.0).copysign(above) * trust;
    let ratio = own.each / fleet.each;
    if (1.0 / ALIKE..=ALIKE).contains(&ratio) {
        return Pace { fixed, each: fleet.each };
    }
    let (distance, alike) = (ratio.ln(), ALIKE.ln());
    let counted = (2.0 * (distance.abs() - alike)).min(distance.abs()).copysign(distance);
    Pace { fixed, each: fleet.each * (counted * trust).exp() }
}

#[cfg(test)]
mod tests;
