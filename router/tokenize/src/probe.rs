//! Probes: a fixed set of requests whose ids tell one tokenizer and template from another. An engine's ids for them are
//! compared with ours, so that a model is known to be exact, or not, before its first real request.

mod ask;
mod requests;

use std::future::Future;
use std::sync::Arc;

use kvasir_core::{EngineKind, InferenceRequest, ModelName, SideClient, TokenizeError};
use serde::Serialize;

use crate::chain::Proof;

pub use ask::{EngineUrls, Via, engine_version};
pub use requests::{Probe, probes};

use ask::Answer;

/// The engine to compare with.
#[derive(Clone, Debug)]
pub struct ProbeTarget {
    /// Where it listens.
    pub urls: EngineUrls,
    /// Which engine it is.
    pub engine: EngineKind,
    /// The model's served name.
    pub model: ModelName,
    /// Whether the template prints the date, which the probes then set: midnight must not look like a wrong template.
    pub dated: bool,
}

/// Where two lists of ids part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// Number of equal ids before.
    pub position: usize,
    /// The engine's id there; none when its list ended.
    pub engine: Option<u32>,
    /// Ours; none when our list ended.
    pub ours: Option<u32>,
    /// Ids in the engine's list.
    pub engine_count: usize,
    /// Ids in ours.
    pub our_count: usize,
}

impl Difference {
    /// The first one; none between equal lists.
    pub fn between(engine: &[u32], ours: &[u32]) -> Option<Self> {
        if engine == ours {
            return None;
        }
        let position = engine.iter().zip(ours).take_while(|(a, b)| a == b).count();
        Some(Self {
            position,
            engine: engine.get(position).copied(),
            ours: ours.get(position).copied(),
            engine_count: engine.len(),
            our_count: ours.len(),
        })
    }
}

/// What came of one probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Equal ids.
    Equal {
        /// How many.
        ids: usize,
        /// Who told the engine's.
        via: Via,
    },
    /// Other ids.
    Differs {
        /// Where.
        difference: Difference,
        /// Who told the engine's.
        via: Via,
    },
    /// The engine refuses such requests (no tools, no system message): nothing to compare.
    Refused,
    /// The engine has ids and we have none; such requests go on without tokens.
    Declined {
        /// Why, in our words.
        reason: String,
    },
    /// The engine could not be asked.
    Unavailable {
        /// What happened.
        reason: String,
    },
}

/// One probe with its outcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Probed {
    /// The probe's name.
    pub probe: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

/// All outcomes at one engine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProbeReport {
    /// In the order they were asked.
    pub probed: Vec<Probed>,
}

impl ProbeReport {
    /// Probes with equal ids.
    pub fn equal(&self) -> usize {
        self.probed.iter().filter(|one| matches!(one.outcome, Outcome::Equal { .. })).count()
    }

    /// Probes with other ids: name and difference.
    pub fn differences(&self) -> impl Iterator<Item = (&'static str, Difference)> {
        self.probed.iter().filter_map(|one| match one.outcome {
            Outcome::Differs { difference, .. } => Some((one.probe, difference)),
            _ => None,
        })
    }

    /// Whether the engine could be asked at all.
    pub fn answered(&self) -> bool {
        !self.probed.is_empty()
            && self.probed.iter().all(|one| !matches!(one.outcome, Outcome::Unavailable { .. }))
    }

    /// What the probes prove.
    pub fn proof(&self) -> Proof {
        match (self.differences().count(), self.equal()) {
            (1.., _) => Proof::Differs,
            (0, 1..) => Proof::Exact,
            (0, 0) => Proof::Unverified,
        }
    }
}

/// Asks an engine for every probe and compares with `ours`. Ends early at an engine that cannot be asked.
pub async fn run<F, Ids>(client: &Arc<dyn SideClient>, target: &ProbeTarget, ours: F) -> ProbeReport
where
    F: Fn(InferenceRequest) -> Ids,
    Ids: Future<Output = Result<Vec<u32>, TokenizeError>>,
{
    let mut report = ProbeReport::default();
    for probe in probes() {
        let request = probe.request(&target.model, target.dated);
        let outcome = match ask::ids(client, target, &request).await {
            Answer::Ids(engine, via) => match ours(request).await {
                Ok(ids) => match Difference::between(&engine, &ids) {
                    None => Outcome::Equal { ids: ids.len(), via },
                    Some(difference) => Outcome::Differs { difference, via },
                },
                Err(error) => Outcome::Declined { reason: error.to_string() },
            },
            Answer::Refused => Outcome::Refused,
            Answer::Failed(reason) => Outcome::Unavailable { reason },
        };
        let ends = matches!(outcome, Outcome::Unavailable { .. });
        report.probed.push(Probed { probe: probe.name, outcome });
        if ends {
            break;
        }
    }
    report
}

#[cfg(test)]
mod tests;
