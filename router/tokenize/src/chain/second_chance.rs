//! A demoted source is compared with the engines again and again: it is trusted anew when it is seen to have changed.
//!
//! Probes do not show every fault: a source may agree on all of them and yet be contradicted by real requests, and some
//! engines can only be compared with themselves. So agreement alone proves little. What counts is a change: the probes
//! differed before and agree now, or the engines have another version. Where neither can be seen, requests put the
//! source to the test after a while; three of them then go without knowledge of caches at worst.

use std::time::{Duration, Instant};

use kvasir_core::{Endpoint, EngineKind, InferenceRequest, TokenizeError};

use super::link::{Backend, Link, encode_in_pool};
use super::model::ModelChain;
use super::proof::Proof;
use crate::pool::Pool;
use crate::probe;

/// Pause between comparisons of a demoted source.
pub const SECOND_LOOK: Duration = Duration::from_secs(15);

/// After this long requests test a source that probes tell nothing of. Twice as long after each time.
const FIRST_TRIAL: Duration = Duration::from_secs(60);

/// Longest pause before a source that was demoted several times has another chance.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// Most time for a remote source's answer to a probe. Nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a demoted source.
#[derive(Debug, Default)]
pub struct Suspicion {
    since: Option<Instant>,
    /// Whether the probes have differed since then.
    differed: bool,
    /// The engines' version at the first comparison.
    version: Option<String>,
    /// How often it was trusted anew.
    chances: u32,
    /// Seen changes do not count before this: something keeps changing.
    rests_until: Option<Instant>,
}

impl Suspicion {
    /// It has just been demoted, perhaps not for the first time.
    pub fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.differed = false;
        self.version = None;
    }

    /// Whether it should be trusted anew after what was seen now.
    fn weigh(&mut self, version: Option<String>, proof: Proof, now: Instant) -> bool {
        let other_version = self.version.is_some() && version.is_some() && self.version != version;
        if self.version.is_none() {
            self.version = version;
        }
        let trial = self.since.is_none_or(|since| now >= since + self.pause(FIRST_TRIAL));
        let trusted = match proof {
            Proof::Differs => {
                self.differed = true;
                false
            }
            Proof::Exact => self.differed || other_version || trial,
            Proof::Unverified => other_version || trial,
        };
        if !trusted || self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        self.chances = self.chances.saturating_add(1);
        self.rests_until = Some(now + self.pause(SECOND_LOOK));
        true
    }

    fn pause(&self, first: Duration) -> Duration {
        first.saturating_mul(1 << self.chances.min(16)).min(LONGEST_PAUSE)
    }
}

impl ModelChain {
    /// Whether a source is not asked any more.
    pub(super) fn has_demoted(&self) -> bool {
        self.links.iter().any(|link| link.record.is_demoted())
    }

    /// Compares every demoted source with some of the engines.
    pub(super) async fn reconsider(&self) {
        for link in self.links.iter().filter(|link| link.record.is_demoted()) {
            let (mut all, mut version) = (Proof::Unverified, None);
            let generation = self.local().map(|(_, slot)| slot.generation());
            for endpoint in self.engines_of_this_look() {
                let asked = probe::engine_version(&self.client, &endpoint.address, endpoint.engine).await;
                if let Ok(found) = asked {
                    version = version.or(found);
                }
                all = match (all, self.probe(link, &endpoint).await) {
                    (Proof::Differs, _) | (_, Proof::Differs) => Proof::Differs,
                    (Proof::Unverified, proof) => proof,
                    (proof, _) => proof,
                };
            }
            // Probes of a tokenizer that has just been replaced say nothing of the one that is there now.
            if self.local().map(|(_, slot)| slot.generation()) != generation {
                continue;
            }
            let trusted = link.suspicion.lock().weigh(version, all, self.now());
            if trusted {
                link.record.reset();
                tracing::info!(
                    model = %self.name(),
                    source = link.source().as_str(),
                    "tokens: a source that was contradicted is asked again"
                );
            }
        }
    }

    async fn probe(&self, link: &Link, endpoint: &Endpoint) -> Proof {
        let for_sglang = endpoint.engine == EngineKind::Sglang;
        let ours = |request: InferenceRequest| async move {
            match &link.backend {
                Backend::Local(slot) => {
                    let encoded = encode_in_pool(Pool::process(), slot.get()?, request, for_sglang);
                    encoded.await.map(|prompt| prompt.ids)
                }
                Backend::Remote(remote) => {
                    remote.encode(&request, Pool::process(), PATIENCE).await.map_err(TokenizeError::from)
                }
            }
        };
        // Without a tokenizer here both sides are asked within one moment, and an argument too many makes some refuse.
        let local = self.local().and_then(|(_, slot)| slot.get().ok());
        let dated = local.is_some_and(|tokenizer| tokenizer.prints_the_date());
        let target = self.probe_target(endpoint, dated);
        let report = probe::run(&self.client, &target, ours).await;
        if report.answered() { report.proof() } else { Proof::Unverified }
    }
}
