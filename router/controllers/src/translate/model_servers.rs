//! ModelServers to targets, with their status.

mod disaggregation;
mod overlap;
mod policy;

use std::collections::HashMap;

use kube::Resource;
use kvasir_api::model_route::TargetName;
use kvasir_api::model_server::{InferenceEngine, WorkloadPort};
use kvasir_api::{FieldError, ModelRoute, ModelServer, Read, validate_model_server};
use kvasir_core::{EngineKind, ModelName};
use kvasir_state::plan::{ObjectName, PlanTarget, TargetId};

use super::Translation;
use super::endpoints::{self, Served};
use super::pods::PodIndex;
use super::precedence::oldest_first;
use super::verdicts::{self, Problem, reasons};
use crate::objects::{Kind, Objects, PodFacts};
use crate::status::StatusKind;
use overlap::Overlaps;

/// Plans every ModelServer that can be used, the oldest first: where two speak of one endpoint, the older counts.
pub(super) fn translate(objects: &Objects, pods: &PodIndex<'_>, translation: &mut Translation) {
    let names = RouteNames::of(&objects.model_routes);
    let mut overlaps = Overlaps::default();
    for (name, read) in oldest_first(&objects.model_servers) {
        let said = match usable(read) {
            Ok(server) => {
                let labels = server.spec.workload_selector.as_ref().map(|selector| &selector.match_labels);
                let selected = labels.map(|labels| pods.select(&name.namespace, labels)).unwrap_or_default();
                let own = disaggregation::note(&server.spec).map(str::to_owned);
                let notes = own.into_iter().chain(overlaps.enter(name, server, &selected));
                let fine = notes.fold("In use.".to_owned(), |fine, note| format!("{fine} {note}"));
                translation.plan.targets.push(plan(name, server, &selected, &names));
                vec![
                    verdicts::accepted(&[], fine),
                    verdicts::resolved_refs(
                        missing_pods(name, server, &selected).as_slice(),
                        "The selector matches pods.",
                    ),
                ]
            }
            Err(problem) => {
                translation.skipped.push((name.clone(), problem.text.clone()));
                vec![verdicts::accepted(&[problem], "")]
            }
        };
        let generation = read.meta().generation;
        translation.statuses.push(verdicts::status(StatusKind::ModelServer, name, generation, said));
    }
}

/// What routes call the models behind ModelServers.
#[derive(Debug)]
struct RouteNames<'a>(HashMap<(&'a str, &'a str), &'a str>);

impl<'a> RouteNames<'a> {
    /// The oldest route that names a model says its name.
    fn of(routes: &'a Kind<ModelRoute>) -> Self {
        let mut names = HashMap::new();
        for (route, read) in oldest_first(routes) {
            let Ok(ModelRoute { spec, .. }) = &read.0 else { continue };
            let Some(model) = spec.named_model() else { continue };
            for target in spec.rules.iter().flat_map(|rule| &rule.target_models) {
                if let Some(TargetName::ModelServer(server)) = target.name() {
                    names.entry((&*route.namespace, server)).or_insert(model);
                }
            }
        }
        Self(names)
    }

    fn of_server(&self, server: &ObjectName) -> Option<&'a str> {
        self.0.get(&(&*server.namespace, &*server.name)).copied()
    }
}

/// The object, if it can be read and breaks no rule.
fn usable(read: &Read<ModelServer>) -> Result<&ModelServer, Problem> {
    let server = read.0.as_ref().map_err(Problem::unreadable)?;
    let mut errors = validate_model_server(server);
    if server.spec.workload_port.port == 0 {
        errors.push(FieldError::invalid("spec.workloadPort.port", 0, "must be from 1 to 65535"));
    }
    errors.extend(policy::errors(server));
    if errors.is_empty() { Ok(server) } else { Err(Problem::breaks(&errors)) }
}

fn plan(
    name: &ObjectName,
    server: &ModelServer,
    selected: &[(&ObjectName, &PodFacts)],
    names: &RouteNames<'_>,
) -> PlanTarget {
    let spec = &server.spec;
    let served = served_name(server).map(ModelName::from);
    let index_model = served.clone().unwrap_or_else(|| names.of_server(name).unwrap_or(&name.name).into());
    let groups = disaggregation::groups(spec);
    let WorkloadPort { port, .. } = spec.workload_port;
    let engine = engine(spec.inference_engine);
    let of_pod = |(pod, facts): &(&ObjectName, &PodFacts)| {
        let role = disaggregation::role(groups, &facts.labels);
        endpoints::of_pod(pod, facts, Served { port, engine, role }).collect::<Vec<_>>()
    };
    let id = TargetId::model_server(name.namespace.clone(), name.name.clone());
    PlanTarget {
        served,
        disaggregation: disaggregation::plan(spec),
        timeout: policy::timeout(spec),
        retry: policy::retry(spec),
        tls: policy::tls(server),
        ..PlanTarget::new(id, index_model, selected.iter().flat_map(of_pod).collect())
    }
}

/// The name that the engines are called by. An empty one would name no model, and is read as none.
fn served_name(server: &ModelServer) -> Option<&str> {
    server.spec.model.as_deref().filter(|model| !model.is_empty())
}

fn engine(engine: InferenceEngine) -> EngineKind {
    match engine {
        InferenceEngine::Vllm => EngineKind::Vllm,
        InferenceEngine::SgLang => EngineKind::Sglang,
    }
}

/// Free of counts: a status that is written anew with every pod that comes or goes would wear out the API server.
fn missing_pods(
    name: &ObjectName,
    server: &ModelServer,
    selected: &[(&ObjectName, &PodFacts)],
) -> Option<Problem> {
    let namespace = &name.namespace;
    if selected.is_empty() {
        let text = format!(
            "spec.workloadSelector.matchLabels matches no pod of namespace {namespace}. Give the pods these labels, \
             or select the labels that they have."
        );
        return Some(Problem::new(reasons::NO_PODS, text));
    }
    let groups = disaggregation::groups(&server.spec)?;
    (!disaggregation::can_pair(groups, selected)).then(|| {
        let text = format!(
            "No two of the selected pods of namespace {namespace} can be paired: one with pdGroup.prefillLabels and \
             one with pdGroup.decodeLabels must have the same value of the label {}.",
            groups.group_key
        );
        Problem::new(reasons::NO_PODS, text)
    })
}

#[cfg(test)]
mod tests;
