//! InferencePools to targets. What their status says depends on the Gateways whose routes name them, and is said there.

use kvasir_api::{InferencePool, InferencePoolSpec};
use kvasir_core::{EngineKind, ModelName, Role};
use kvasir_state::plan::{ObjectName, PlanTarget, TargetId};

use super::Translation;
use super::endpoints::{self, Served};
use super::pods::PodIndex;
use super::precedence::oldest_first;
use super::verdicts::Problem;
use crate::objects::{Objects, PodFacts};

/// The label by which the inference extension tells engines apart.
const ENGINE_LABEL: &str = "inference.networking.k8s.io/engine-type";

/// What a pool asks for whose pods speak something else than HTTP/1.1.
const APP_PROTOCOL: &str = "an appProtocol other than http";

/// Plans every pool that can be read. Its pods are served whether or not a ModelServer selects them.
pub(super) fn translate(objects: &Objects, pods: &PodIndex<'_>, translation: &mut Translation) {
    for (name, read) in oldest_first(&objects.inference_pools) {
        match &read.0 {
            Ok(InferencePool { spec, .. }) => {
                let selected = pods.select(&name.namespace, &spec.selector.match_labels);
                translation.plan.targets.push(plan(name, spec, &selected));
            }
            Err(error) => translation.skipped.push((name.clone(), Problem::unreadable(error).text)),
        }
    }
}

/// The model's name stays as the client wrote it. The pool's own name is where nobody says which model its pods serve;
/// the state files endpoints of a ModelServer under that one's name.
fn plan(name: &ObjectName, spec: &InferencePoolSpec, selected: &[(&ObjectName, &PodFacts)]) -> PlanTarget {
    let ports = spec.target_ports.iter().map(|port| port.number).filter(|port| *port > 0);
    let of_pod = |(pod, facts): &(&ObjectName, &PodFacts)| {
        let engine = engine(facts);
        let of_port = |port| {
            endpoints::of_pod(pod, facts, Served { port, engine, role: Role::Both }).collect::<Vec<_>>()
        };
        ports.clone().flat_map(of_port).collect::<Vec<_>>()
    };
    let id = TargetId::inference_pool(name.namespace.clone(), name.name.clone());
    let endpoints = selected.iter().flat_map(of_pod).collect();
    PlanTarget {
        refused: spec.app_protocol.as_deref().filter(|said| *said != "http").map(|_| APP_PROTOCOL),
        ..PlanTarget::new(id, ModelName::from(&*name.name), endpoints)
    }
}

/// Most engines of pools are vLLM, so a pod that does not say is taken for one.
fn engine(facts: &PodFacts) -> EngineKind {
    match facts.labels.get(ENGINE_LABEL) {
        Some(said) if said.eq_ignore_ascii_case("sglang") => EngineKind::Sglang,
        _ => EngineKind::Vllm,
    }
}

#[cfg(test)]
mod tests;
