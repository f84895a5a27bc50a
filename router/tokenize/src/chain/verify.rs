//! The probes at run time: each version of an engine that appears behind a model is compared with the local tokenizer
//! once, in the background.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kvasir_core::{Endpoint, EngineKind, InferenceRequest};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::link::{self, Backend, Link};
use super::model::ModelChain;
use super::proof::{Proof, Verdict};
use super::second_chance::SECOND_LOOK;
use crate::local::SharedTokenizer;
use crate::pool::Pool;
use crate::probe::{self, Difference, EngineUrls, ProbeReport, ProbeTarget};

/// Pause before the first look; a fleet that starts together with the router needs a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Pause between looks for a new version, once one was compared.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Engines asked for their version in one look; others have their turn in the next.
const ENGINES_PER_LOOK: usize = 4;

/// Versions that are remembered: more than a rolling update ever has.
const MOST_VERSIONS: usize = 8;

/// Stands for the version of an engine that tells none.
const UNKNOWN_VERSION: &str = "unknown";

/// What the probes proved about a model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProbeStatus {
    /// Over all versions: one that differs makes the model differ.
    pub proof: Proof,
    /// Each version of an engine that was compared, latest last.
    pub versions: Vec<VersionStatus>,
}

/// What the probes proved about one version of an engine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct VersionStatus {
    /// As the engine tells it.
    pub engine_version: String,
    /// The outcome.
    pub proof: Proof,
    /// Probes with equal ids.
    pub equal: usize,
    /// Probes that had no ids on one side.
    pub skipped: usize,
    /// The first probe with other ids.
    pub difference: Option<ProbeDifference>,
}

/// A probe with other ids. The text of a probe is fixed, so its ids tell nothing of anybody's prompts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProbeDifference {
    /// Which probe.
    pub probe: &'static str,
    /// Where.
    #[serde(flatten)]
    pub at: Difference,
}

/// The memory of what was compared.
#[derive(Debug, Default)]
pub struct Verification {
    versions: Mutex<Vec<VersionStatus>>,
    /// Held while a look is under way, so that two do not ask the same engine.
    looking: tokio::sync::Mutex<()>,
}

impl Verification {
    /// What is known.
    pub fn status(&self) -> ProbeStatus {
        let versions = self.versions.lock().clone();
        let any = |proof| versions.iter().any(|version| version.proof == proof);
        let proof = match (any(Proof::Differs), any(Proof::Exact)) {
            (true, _) => Proof::Differs,
            (false, true) => Proof::Exact,
            (false, false) => Proof::Unverified,
        };
        ProbeStatus { proof, versions }
    }

    /// Makes every version one that was not compared yet: the tokenizer is another one.
    pub fn forget(&self) {
        self.versions.lock().clear();
    }

    fn knows(&self, version: &str) -> bool {
        self.versions.lock().iter().any(|known| known.engine_version == version)
    }

    /// Whether it is the first.
    fn enter(&self, version: &str, report: &ProbeReport) -> bool {
        let difference = report.differences().next().map(|(probe, at)| ProbeDifference { probe, at });
        let mut versions = self.versions.lock();
        let first = versions.is_empty();
        if versions.len() >= MOST_VERSIONS {
            versions.remove(0);
        }
        versions.push(VersionStatus {
            engine_version: version.to_owned(),
            proof: report.proof(),
            equal: report.equal(),
            skipped: report.probed.len() - report.equal() - report.differences().count(),
            difference,
        });
        first
    }
}

/// Looks again and again as long as the model exists. Begun once.
pub fn watch(model: &Arc<ModelChain>, runtime: &tokio::runtime::Handle) {
    if !model.watched.swap(true, Ordering::Relaxed) && !model.links.is_empty() {
        runtime.spawn(look_repeatedly(Arc::downgrade(model), Arc::clone(&model.wake)));
    }
}

async fn look_repeatedly(model: Weak<ModelChain>, wake: Arc<Notify>) {
    let mut pause = FIRST_PAUSE;
    loop {
        // Whether it is time or there is news makes no difference.
        let _ = tokio::time::timeout(pause, wake.notified()).await;
        let Some(model) = model.upgrade() else { return };
        model.verify().await;
        let settled = !model.verification.status().versions.is_empty();
        pause = match (model.has_demoted(), settled) {
            (true, _) => SECOND_LOOK,
            (false, true) => LOOK_INTERVAL,
            (false, false) => (pause * 2).min(LOOK_INTERVAL),
        };
    }
}

impl ModelChain {
    /// One look: engines with a version that was not compared yet are compared with the local tokenizer, and sources
    /// that are demoted may have a second chance.
    pub async fn verify(&self) {
        let Ok(_looking) = self.verification.looking.try_lock() else { return };
        self.notice_loads();
        self.compare_new_versions().await;
        self.reconsider().await;
    }

    async fn compare_new_versions(&self) {
        let Some((link, slot)) = self.local() else { return };
        let Ok(tokenizer) = slot.get() else { return };
        for endpoint in self.engines_of_this_look() {
            // One that cannot be reached has its turn later.
            let asked = probe::engine_version(&self.client, &endpoint.address, endpoint.engine).await;
            let Ok(version) = asked else { continue };
            let version = version.unwrap_or_else(|| UNKNOWN_VERSION.to_owned());
            if self.verification.knows(&version) {
                continue;
            }
            let report = self.compare(&endpoint, &tokenizer).await;
            // The files may have changed meanwhile. What the former tokenizer gave says nothing about this one, which is
            // compared next.
            if !slot.get().is_ok_and(|now| Arc::ptr_eq(&now, &tokenizer)) {
                self.wake.notify_one();
                return;
            }
            if report.answered() {
                self.note(link, &version, &report);
            }
        }
    }

    async fn compare(&self, endpoint: &Endpoint, tokenizer: &SharedTokenizer) -> ProbeReport {
        let for_sglang = endpoint.engine == EngineKind::Sglang;
        let ours = |request: InferenceRequest| {
            let tokenizer = Arc::clone(tokenizer);
            async move {
                let encoded = link::encode_in_pool(Pool::process(), tokenizer, request, for_sglang).await;
                encoded.map(|prompt| prompt.ids)
            }
        };
        probe::run(&self.client, &self.probe_target(endpoint, tokenizer.prints_the_date()), ours).await
    }

    /// How an engine is probed.
    pub(super) fn probe_target(&self, endpoint: &Endpoint, dated: bool) -> ProbeTarget {
        let port = match endpoint.engine {
            EngineKind::Vllm => self.tokens().vllm_port,
            EngineKind::Sglang => self.tokens().sglang_port,
        };
        ProbeTarget {
            urls: EngineUrls::of(endpoint, port),
            engine: endpoint.engine,
            model: self.name().clone(),
            dated,
        }
    }

    /// Counts every probe as a comparison. A version that was not there before is a new chance for a demoted source.
    fn note(&self, link: &Link, version: &str, report: &ProbeReport) {
        if !self.verification.enter(version, report) && link.record.is_demoted() {
            link.record.reset();
        }
        let (equal, different) = (report.equal(), report.differences().count());
        let demoted = link.record.note_look(equal, different) == Verdict::Demoted;
        match report.differences().next() {
            None => {
                tracing::info!(model = %self.name(), engine_version = version, equal, "tokens: the engine's probes agree");
            }
            Some((probe, at)) => tracing::warn!(
                model = %self.name(),
                engine_version = version,
                equal,
                different,
                first = probe,
                position = at.position,
                "tokens: the engine has other ids than the local tokenizer. Is it the tokenizer and the chat template of the model that is served? `kvasir tokens check` tells more"
            ),
        }
        if demoted {
            self.demoted(link);
        }
    }

    /// Some of the model's engines, others each time, each address once.
    pub(super) fn engines_of_this_look(&self) -> Vec<Arc<Endpoint>> {
        let mut endpoints = self.directory.endpoints_of(self.name());
        let mut seen = std::collections::HashSet::new();
        endpoints.retain(|endpoint| seen.insert(endpoint.address.url()));
        let first = self.turn.fetch_add(ENGINES_PER_LOOK, Ordering::Relaxed) % endpoints.len().max(1);
        endpoints.rotate_left(first);
        endpoints.truncate(ENGINES_PER_LOOK);
        endpoints
    }

    /// The local source with its slot.
    pub(super) fn local(&self) -> Option<(&Link, &Arc<super::local_slot::LocalSlot>)> {
        self.links.iter().find_map(|link| match &link.backend {
            Backend::Local(slot) => Some((link, slot)),
            Backend::Remote(_) => None,
        })
    }
}

#[cfg(test)]
mod tests;
