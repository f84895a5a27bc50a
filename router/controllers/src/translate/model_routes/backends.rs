//! What the targets of ModelRoutes come to: who of them is there, and can be used.

use std::collections::{BTreeSet, HashSet};

use kvasir_api::ModelRouteSpec;
use kvasir_api::model_route::TargetName;
use kvasir_state::plan::{ObjectName, PlanTarget, TargetKind};

use crate::objects::Objects;
use crate::translate::verdicts::{Problem, list, reasons};

/// All that a ModelRoute can name.
#[derive(Debug)]
pub(super) struct Backends<'a> {
    /// The ModelServers that are planned.
    planned: HashSet<(&'a str, &'a str)>,
    objects: &'a Objects,
}

impl<'a> Backends<'a> {
    pub(super) fn of(targets: &'a [PlanTarget], objects: &'a Objects) -> Self {
        let servers = targets.iter().filter(|target| target.id.kind == TargetKind::ModelServer);
        let planned = servers.map(|target| (&*target.id.name.namespace, &*target.id.name.name)).collect();
        Self { planned, objects }
    }

    /// Whether the route sends requests out of the cluster.
    pub(super) fn unsupported(&self, spec: &ModelRouteSpec) -> Option<Problem> {
        let providers: BTreeSet<String> = targets(spec)
            .filter_map(|target| match target {
                TargetName::ExternalModelProvider(name) => Some(format!("{name:?}")),
                TargetName::ModelServer(_) => None,
            })
            .collect();
        let names = Vec::from_iter(providers);
        (!names.is_empty()).then(|| {
            let text = format!(
                "External providers are not available yet: the share of requests for {} is answered with 503, \
                 feature_not_available. Name ModelServers in spec.rules[].targetModels[] instead.",
                list(&names)
            );
            Problem::new(reasons::NOT_SUPPORTED, text)
        })
    }

    /// What the route names in vain.
    pub(super) fn missing(&self, route: &ObjectName, spec: &ModelRouteSpec) -> Vec<Problem> {
        let (mut absent, mut unusable) = (BTreeSet::new(), BTreeSet::new());
        for target in targets(spec) {
            match target {
                TargetName::ModelServer(name) if self.planned.contains(&(&*route.namespace, name)) => {}
                TargetName::ModelServer(name) => {
                    if self.objects.model_servers.contains_key(&beside(route, name)) {
                        unusable.insert(format!("{name:?}"));
                    } else {
                        absent.insert(format!("ModelServer {name:?}"));
                    }
                }
                TargetName::ExternalModelProvider(name) => {
                    if !self.objects.providers.contains_key(&beside(route, name)) {
                        absent.insert(format!("ExternalModelProvider {name:?}"));
                    }
                }
            }
        }
        let told = |names: BTreeSet<String>, tell: &dyn Fn(String) -> String| {
            let names = Vec::from_iter(names);
            (!names.is_empty()).then(|| Problem::new(reasons::BACKEND_NOT_FOUND, tell(list(&names))))
        };
        let namespace = &route.namespace;
        let problems = [
            told(absent, &|names| {
                format!(
                    "Namespace {namespace} does not have {names}: requests that are sent there are answered with \
                     503. Create them, or name others in spec.rules[].targetModels[]."
                )
            }),
            told(unusable, &|names| {
                format!(
                    "Not in use are the ModelServers {names}: requests that are sent there are answered with 503. \
                     Their own status says what to correct."
                )
            }),
        ];
        problems.into_iter().flatten().collect()
    }
}

fn targets(spec: &ModelRouteSpec) -> impl Iterator<Item = TargetName<'_>> {
    spec.rules.iter().flat_map(|rule| &rule.target_models).filter_map(|target| target.name())
}

/// An object of the route's namespace.
fn beside(route: &ObjectName, name: &str) -> ObjectName {
    ObjectName::new(route.namespace.clone(), name)
}
