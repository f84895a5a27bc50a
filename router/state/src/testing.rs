//! What the tests of this room share: a clock that stands still, and short plans.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Address, Clock, EndpointId, EngineKind, Role};
use parking_lot::Mutex;

use crate::{Plan, PlanEndpoint, PlanModel, State, StateOptions};

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
    }
}

pub(crate) fn plan(pods: &[&str]) -> Plan {
    Plan { models: vec![model("m", pods)] }
}
