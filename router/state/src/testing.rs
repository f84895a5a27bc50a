//! What the tests of this room share: a clock that stands still, and short plans.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use kvasir_core::{AdapterName, Address, Candidates, Clock, EndpointId, EngineKind, ModelName, Role};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::plan::{ObjectName, TargetId, TargetKind};
use crate::{
    Destination, NoRoute, Plan, PlanEndpoint, PlanModel, Resolved, RouteName, RouteQuery, Routed, State,
    StateOptions,
};

/// A clock that moves when told.
#[derive(Debug)]
pub(crate) struct ManualClock(Mutex<Instant>);

impl ManualClock {
    pub(crate) fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.0.lock()
    }
}

/// A state without models, and its clock.
pub(crate) fn state() -> (Arc<State>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock(Mutex::new(Instant::now())));
    (Arc::new(State::new(Arc::clone(&clock) as _, StateOptions::default())), clock)
}

pub(crate) fn id(pod: &str) -> EndpointId {
    EndpointId::new("default", pod, 8000, 0)
}

pub(crate) fn planned(pod: &str) -> PlanEndpoint {
    PlanEndpoint {
        id: id(pod),
        address: Address::parse(&format!("http://{pod}:8000")).expect("a good URL"),
        engine: EngineKind::Vllm,
        role: Role::Both,
        pin_rank: false,
        labels: BTreeMap::new(),
        started_at: None,
        ready: true,
    }
}

/// One model with these pods; its served name is `served`.
pub(crate) fn model(name: &str, pods: &[&str]) -> PlanModel {
    PlanModel {
        name: name.into(),
        served: "served".into(),
        aliases: Vec::new(),
        adapters: Vec::new(),
        endpoints: pods.iter().map(|pod| planned(pod)).collect(),
        disaggregation: None,
    }
}

pub(crate) fn plan(pods: &[&str]) -> Plan {
    models(vec![model("m", pods)])
}

pub(crate) fn models(models: Vec<PlanModel>) -> Plan {
    Plan { models, ..Plan::default() }
}

/// A chat for `model` at the one door, without headers.
pub(crate) fn chat(model: &str) -> RouteQuery<'_> {
    static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
    RouteQuery {
        port: 8080,
        host: "router",
        method: &Method::POST,
        path: "/v1/chat/completions",
        query: None,
        headers: &NO_HEADERS,
        model: Some(model),
    }
}

/// Where a request goes; a redirect is none of these tests' business.
pub(crate) fn route(state: &State, query: &RouteQuery<'_>) -> Result<Resolved, NoRoute> {
    match state.resolve(query, &mut StdRng::seed_from_u64(1))? {
        Routed::To(resolved) => Ok(resolved),
        Routed::Elsewhere(redirect) => panic!("{redirect:?}"),
    }
}

pub(crate) fn named(state: &State, model: &str) -> Result<Resolved, NoRoute> {
    route(state, &chat(model))
}

/// The candidates of the model of the settings that is served as `served`.
pub(crate) fn candidates(state: &State, served: &ModelName, adapter: Option<&AdapterName>) -> Candidates {
    let id = TargetId { kind: TargetKind::Model, name: ObjectName::new("default", served.as_str()) };
    let Some(target) = state.target(&id) else { return Candidates::default() };
    let route = RouteName::Model(Arc::clone(&target.label));
    let destination = Destination { target, route, timeout: None, deadline: None, edits: None };
    state.candidates(&Resolved::new(&Arc::new(destination), None, adapter.cloned()))
}
