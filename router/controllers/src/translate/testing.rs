//! What the tests of translation share: objects from YAML, and ways to look at what came of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use kvasir_api::Read;
use kvasir_core::Clock;
use kvasir_state::plan::{ObjectName, PlanRoute, PlanTarget, TargetKind};
use kvasir_state::{NoRoute, RouteQuery, Routed, State, StateOptions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Options, Translation};
use crate::objects::{Kind, Objects, PodFacts};
use crate::status::{Said, Status, StatusKind, Verdict};

/// The objects of a YAML text, sorted by kind. An object without a namespace is in `default`; `apiVersion` may be left
/// out; documents of other kinds are passed over.
pub(crate) fn objects(yaml: &str) -> Objects {
    // A name such as `y` or `n` is a name.
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(yaml, options).unwrap_or_else(|error| panic!("{error}"));
    let mut objects = Objects::default();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        add(&mut objects, document);
    }
    objects
}

/// Adds one object; one of its name is replaced.
pub(crate) fn add(objects: &mut Objects, document: Value) {
    let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "ModelRoute" => enter(&mut objects.model_routes, document),
        "ModelServer" => enter(&mut objects.model_servers, document),
        "ExternalModelProvider" => enter(&mut objects.providers, document),
        "GatewayClass" => enter(&mut objects.gateway_classes, document),
        "Gateway" => enter(&mut objects.gateways, document),
        "HTTPRoute" => enter(&mut objects.http_routes, document),
        "ReferenceGrant" => enter(&mut objects.reference_grants, document),
        "InferencePool" => enter(&mut objects.inference_pools, document),
        "Namespace" => {
            let read: k8s_openapi::api::core::v1::Namespace = read(document);
            objects
                .namespaces
                .insert(read.name_any().into(), Arc::new(read.metadata.labels.unwrap_or_default()));
        }
        "Pod" => {
            let pod: Pod = read(document);
            objects.pods.insert(name_of(&pod, true), Arc::new(PodFacts::of(&pod)));
        }
        _ => {}
    }
}

fn read<K: DeserializeOwned>(document: Value) -> K {
    serde_json::from_value(document).unwrap_or_else(|error| panic!("{error}"))
}

fn enter<K>(kind: &mut Kind<K>, document: Value)
where
    K: DeserializeOwned + Resource<DynamicType = ()>,
{
    let namespaced = K::kind(&()) != "GatewayClass";
    let object: Read<K> = read(document);
    kind.insert(name_of(&object, namespaced), Arc::new(object));
}

fn name_of<K: Resource>(object: &K, namespaced: bool) -> ObjectName {
    let namespace = match object.meta().namespace.as_deref() {
        Some(namespace) => namespace,
        None if namespaced => "default",
        None => "",
    };
    ObjectName::new(namespace, object.name_any())
}

/// A ready pod of the namespace `default` as YAML; `labels` as in `app: a, version: v1`.
pub(crate) fn pod(name: &str, ip: &str, labels: &str) -> String {
    format!(
        "---
kind: Pod
metadata: {{name: {name}, labels: {{{labels}}}}}
spec: {{containers: [{{name: engine}}]}}
status:
  phase: Running
  podIP: \"{ip}\"
  conditions: [{{type: Ready, status: \"True\"}}]
  containerStatuses:
  - {{name: engine, ready: true, restartCount: 0, image: i, imageID: i,
     state: {{running: {{startedAt: \"2026-01-01T00:00:00Z\"}}}}}}
"
    )
}

/// An object's name from `namespace/name`.
pub(crate) fn named(name: &str) -> ObjectName {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    ObjectName::new(namespace, name)
}

/// Translates a YAML text as a router without Gateways would.
pub(crate) fn translate(yaml: &str) -> Translation {
    super::translate(&objects(yaml), &Options::default())
}

/// Translates a YAML text as a router with Gateways and pools would.
pub(crate) fn translate_in_gateway_mode(yaml: &str) -> Translation {
    let options = Options { gateway_api: true, inference_extension: true, ..Options::default() };
    super::translate(&objects(yaml), &options)
}

/// The status of one object.
pub(crate) fn status<'a>(translation: &'a Translation, kind: StatusKind, name: &str) -> &'a Status {
    let name = named(name);
    let mut found = translation.statuses.iter().filter(|status| status.kind == kind && status.name == name);
    let status = found.next().unwrap_or_else(|| panic!("{kind:?} {name} has no status"));
    assert!(found.next().is_none(), "{kind:?} {name} has two statuses");
    status
}

/// One condition of an object whose status is a list of conditions.
pub(crate) fn verdict<'a>(
    translation: &'a Translation,
    kind: StatusKind,
    name: &str,
    condition: &str,
) -> &'a Verdict {
    let Said::Conditions(verdicts) = &status(translation, kind, name).said else {
        panic!("{name} has no plain conditions")
    };
    verdicts
        .iter()
        .find(|verdict| verdict.kind == condition)
        .unwrap_or_else(|| panic!("{name} has no condition {condition}"))
}

/// The planned ModelServer.
pub(crate) fn server<'a>(translation: &'a Translation, name: &str) -> &'a PlanTarget {
    target(translation, TargetKind::ModelServer, name)
}

/// The planned target of a kind.
pub(crate) fn target<'a>(translation: &'a Translation, kind: TargetKind, name: &str) -> &'a PlanTarget {
    let name = named(name);
    let mut targets = translation.plan.targets.iter();
    targets
        .find(|target| target.id.kind == kind && target.id.name == name)
        .unwrap_or_else(|| panic!("{kind:?} {name} is not planned"))
}

/// The planned ModelRoute.
pub(crate) fn route<'a>(translation: &'a Translation, name: &str) -> &'a PlanRoute {
    let name = named(name);
    let mut routes = translation.plan.routes.iter();
    routes.find(|route| route.id == name).unwrap_or_else(|| panic!("route {name} is not planned"))
}

/// A clock that stands still.
#[derive(Debug)]
struct Stopped(Instant);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.0
    }
}

/// A state with the plan; it must find no contradiction.
pub(crate) fn state(translation: &Translation) -> State {
    let (state, conflicts) = state_and_conflicts(translation);
    assert_eq!(conflicts, Vec::<String>::new());
    state
}

/// A state with the plan, and what it finds contradictory.
pub(crate) fn state_and_conflicts(translation: &Translation) -> (State, Vec<String>) {
    let state = State::new(Arc::new(Stopped(Instant::now())), StateOptions::default());
    let changes = state.replace(translation.plan.clone());
    (state, changes.conflicts)
}

/// A request, as far as routes look at it.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    /// The body's `model`.
    pub(crate) model: &'a str,
    /// The path.
    pub(crate) path: &'a str,
    /// Headers in order.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// The port that it came in by.
    pub(crate) port: u16,
    /// The seed of the weighted choice.
    pub(crate) seed: u64,
}

impl<'a> Asked<'a> {
    /// A chat for a model, at the one door.
    pub(crate) fn for_model(model: &'a str) -> Self {
        Self { model, path: "/v1/chat/completions", headers: &[], port: 8080, seed: 1 }
    }

    /// The name of the target, or in a few words why there is none.
    pub(crate) fn goes_to(&self, state: &State) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            let name: http::HeaderName = name.parse().unwrap_or_else(|_| panic!("{name:?} is no header"));
            headers.append(name, value.parse().unwrap_or_else(|_| panic!("{value:?} is no value")));
        }
        let query = RouteQuery {
            port: self.port,
            host: "router",
            method: &Method::POST,
            path: self.path,
            query: None,
            headers: &headers,
            model: Some(self.model),
        };
        match state.resolve(&query, &mut StdRng::seed_from_u64(self.seed)) {
            Ok(Routed::To(resolved)) => resolved.target.id.name.name.to_string(),
            Ok(Routed::Elsewhere(redirect)) => format!("redirect to {}", redirect.location),
            Err(NoRoute::Refused { what, .. }) => format!("refused: {what}"),
            Err(NoRoute::NoMatch) => "no match".to_owned(),
            Err(NoRoute::NoListener) => "no listener".to_owned(),
            Err(NoRoute::NoTarget { .. }) => "no target".to_owned(),
            Err(NoRoute::NoBackend { .. }) => "no backend".to_owned(),
        }
    }
}

/// Labels from pairs.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
