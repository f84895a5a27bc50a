//! The numbers of one endpoint that change with every request and every scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::{AdapterStanding, EngineSample, Load, SampleError, SharedLoad};
use parking_lot::{Mutex, RwLock};

use crate::adapters::AdapterMemory;
use crate::freshness::Freshness;
use crate::health::{Attempt, Health, Standing, Turn};
use crate::status::FailureCounts;

/// A scrape and when it ended.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    sample: EngineSample,
    at: Instant,
}

/// Live numbers; those of requests are this router's own where they do not say otherwise. Counters are relaxed: each is right by itself, and no decision needs two of them at one instant.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) in_flight: AtomicU32,
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) decoding: AtomicU32,
    peers_in_flight: AtomicU32,
    peers_prefill_tokens: AtomicU64,
    peers_decoding: AtomicU32,
    pub(crate) requests: AtomicU64,
    pub(crate) draining: AtomicBool,
    pub(crate) asleep: AtomicBool,
    /// Whether the one request that may try an endpoint that is out is on its way.
    pub(crate) in_trial: AtomicBool,
    /// Whether `health` is worth a look: the endpoint is out.
    out: AtomicBool,
    health: Mutex<Health>,
    sampled: RwLock<Option<Sampled>>,
    scrape_error: RwLock<Option<SampleError>>,
    /// Sorted; `None` until the engine has told.
    listed: RwLock<Option<Arc<[String]>>>,
    pub(crate) adapters: RwLock<AdapterMemory>,
    connect_failures: AtomicU64,
    status_failures: AtomicU64,
    first_byte_timeouts: AtomicU64,
    deaths: AtomicU64,
}

impl Live {
    /// The load at `now`: ours and the peers', with the last sample while it is fresh. No adapter is asked for.
    pub(crate) fn load(&self, now: Instant, freshness: Freshness) -> Load {
        let (own, peers) = (self.own(), self.peers());
        let age = |sampled: &Sampled| now.saturating_duration_since(sampled.at);
        let sampled = self.sampled.read().filter(|sampled| freshness.trusts(age(sampled)));
        Load {
            in_flight: own.in_flight.saturating_add(peers.in_flight),
            prefill_tokens: own.prefill_tokens.saturating_add(peers.prefill_tokens),
            decoding: own.decoding.saturating_add(peers.decoding),
            peers_in_flight: peers.in_flight,
            sample: sampled.map(|sampled| sampled.sample),
            foreign_faded: sampled.map_or(0.0, |sampled| freshness.faded(age(&sampled))),
            adapter: AdapterStanding::Unknown,
        }
    }

    /// What this router has in flight.
    pub(crate) fn own(&self) -> SharedLoad {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        SharedLoad {
            in_flight,
            prefill_tokens: self.prefill_tokens.load(Ordering::Relaxed),
            decoding: self.decoding.load(Ordering::Relaxed).min(in_flight),
        }
    }

    /// What the other replicas have in flight, as last told.
    pub(crate) fn peers(&self) -> SharedLoad {
        let in_flight = self.peers_in_flight.load(Ordering::Relaxed);
        SharedLoad {
            in_flight,
            prefill_tokens: self.peers_prefill_tokens.load(Ordering::Relaxed),
            decoding: self.peers_decoding.load(Ordering::Relaxed).min(in_flight),
        }
    }

    /// Takes in what the other replicas have in flight.
    pub(crate) fn set_peers(&self, load: SharedLoad) {
        self.peers_in_flight.store(load.in_flight, Ordering::Relaxed);
        self.peers_prefill_tokens.store(load.prefill_tokens, Ordering::Relaxed);
        self.peers_decoding.store(load.decoding, Ordering::Relaxed);
    }

    /// Age of the last good sample.
    pub(crate) fn sample_age(&self, now: Instant) -> Option<Duration> {
        self.sampled.read().map(|sampled| now.saturating_duration_since(sampled.at))
    }

    /// Takes in a scrape. A failed one leaves the last sample to grow old.
    pub(crate) fn sampled(&self, result: Result<EngineSample, SampleError>, now: Instant) {
        match result {
            Ok(sample) => {
                *self.sampled.write() = Some(Sampled { sample, at: now });
                *self.scrape_error.write() = None;
            }
            Err(error) => *self.scrape_error.write() = Some(error),
        }
    }

    /// What failed in the last scrape.
    pub(crate) fn scrape_error(&self) -> Option<SampleError> {
        self.scrape_error.read().clone()
    }

    /// Takes in a model list.
    pub(crate) fn listed(&self, mut models: Vec<String>) {
        models.sort_unstable();
        *self.listed.write() = Some(models.into());
    }

    /// The models and adapters that the engine lists.
    pub(crate) fn list(&self) -> Option<Arc<[String]>> {
        self.listed.read().clone()
    }

    /// Whether the engine lists `name`.
    pub(crate) fn lists(&self, name: &str) -> bool {
        let listed = self.listed.read();
        listed
            .as_ref()
            .is_some_and(|models| models.binary_search_by(|model| model.as_str().cmp(name)).is_ok())
    }

    /// Where the endpoint stands, sleep and drain apart.
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        if !self.out.load(Ordering::Relaxed) {
            return Standing::In;
        }
        self.health.lock().standing(now)
    }

    /// Whether requests may go there now.
    pub(crate) fn is_available(&self, now: Instant) -> bool {
        !self.asleep.load(Ordering::Relaxed)
            && match self.standing(now) {
                Standing::In => true,
                Standing::Out => false,
                Standing::Trial => !self.in_trial.load(Ordering::Relaxed),
            }
    }

    /// Claims the one trial of an endpoint that is out; false when there is none to claim.
    pub(crate) fn claim_trial(&self, now: impl FnOnce() -> Instant) -> bool {
        self.out.load(Ordering::Relaxed)
            && self.health.lock().standing(now()) == Standing::Trial
            && !self.in_trial.swap(true, Ordering::Relaxed)
    }

    /// Takes in how an attempt went.
    pub(crate) fn report(&self, attempt: Attempt, now: impl FnOnce() -> Instant) -> Option<Turn> {
        let counter = match attempt {
            Attempt::Ok => None,
            Attempt::ConnectFailed => Some(&self.connect_failures),
            Attempt::Status5xx(_) => Some(&self.status_failures),
            Attempt::FirstByteTimeout => Some(&self.first_byte_timeouts),
            Attempt::DiedAfterSend => Some(&self.deaths),
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.change_health(|health| health.report(attempt, now()))
    }

    /// Takes in an active probe.
    pub(crate) fn probed(&self, healthy: bool, now: Instant) -> Option<Turn> {
        self.change_health(|health| health.probed(healthy, now))
    }

    fn change_health(&self, change: impl FnOnce(&mut Health) -> Option<Turn>) -> Option<Turn> {
        let mut health = self.health.lock();
        let turn = change(&mut health);
        // Under the lock, so that two changes cannot leave the older one's word behind.
        if let Some(turn) = turn {
            self.out.store(matches!(turn, Turn::Out(_)), Ordering::Relaxed);
            // A trial that has been answered may stream on for minutes; the next trial does not wait for its end.
            self.in_trial.store(false, Ordering::Relaxed);
        }
        turn
    }

    /// Failed attempts so far.
    pub(crate) fn failures(&self) -> FailureCounts {
        FailureCounts {
            connect: self.connect_failures.load(Ordering::Relaxed),
            status_5xx: self.status_failures.load(Ordering::Relaxed),
            first_byte_timeout: self.first_byte_timeouts.load(Ordering::Relaxed),
            died_after_send: self.deaths.load(Ordering::Relaxed),
        }
    }
}
