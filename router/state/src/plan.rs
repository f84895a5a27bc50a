//! What the state should be: the input of a swap, and what it changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_core::{AdapterName, Address, Endpoint, EndpointId, EngineKind, ModelName, Role};

/// Every model with its endpoints. Made from the settings, or from Kubernetes objects.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The models, in order: where two claim one name, the first has it.
    pub models: Vec<PlanModel>,
}

/// One model.
#[derive(Clone, Debug)]
pub struct PlanModel {
    /// The name clients use.
    pub name: ModelName,
    /// The name the engines list.
    pub served: ModelName,
    /// Other names clients may use.
    pub aliases: Vec<ModelName>,
    /// Adapters that clients may ask for by name.
    pub adapters: Vec<AdapterName>,
    /// Who serves it. Models with the same served name share their endpoints.
    pub endpoints: Vec<PlanEndpoint>,
}

/// One endpoint.
#[derive(Clone, Debug)]
pub struct PlanEndpoint {
    /// Identity. The same id under two models is one endpoint.
    pub id: EndpointId,
    /// Where it listens.
    pub address: Address,
    /// Which engine it is.
    pub engine: EngineKind,
    /// Its part in prefill/decode serving.
    pub role: Role,
    /// Whether the rank is pinned with `X-data-parallel-rank`.
    pub pin_rank: bool,
    /// Labels, for subset matching.
    pub labels: BTreeMap<String, String>,
}

/// What a swap changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// New owners: their slots hold nothing yet.
    pub added: Vec<Arc<Endpoint>>,
    /// Owners that are gone. Their slots stay taken until they are released, after the index has forgotten them.
    pub removed: Vec<Arc<Endpoint>>,
    /// What the plan says twice and differently; one sentence each, for the log.
    pub conflicts: Vec<String>,
}
