//! What the state should be: the input of a swap, and what it changed.

mod http_route;
mod model_route;
mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use kvasir_core::UpstreamTls;
use kvasir_core::{AdapterName, Address, Endpoint, EndpointId, EngineKind, ModelName, Role};

pub use http_route::{
    HeaderChanges, PathChange, PlanAttachment, PlanBackend, PlanFilters, PlanHttpMatch, PlanHttpRoute,
    PlanHttpRule, PlanPath, PlanRedirect, PlanUrlRewrite,
};
pub use model_route::{PlanParent, PlanRoute, PlanRule, PlanTo};
pub use target::{Disaggregation, PlanTarget, RetryPolicy, TargetId, TargetKind};

/// Everything that requests can be routed by. Made from the settings, or from Kubernetes objects. Plain data: whatever
/// can be resolved before a request comes is resolved.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Models of the settings, in order: where two claim one name, the first has it. Each is a target and a route at
    /// once, and comes before the routes below.
    pub models: Vec<PlanModel>,
    /// Who can be chosen by the routes below.
    pub targets: Vec<PlanTarget>,
    /// ModelRoutes, in order of precedence.
    pub routes: Vec<PlanRoute>,
    /// HTTPRoutes, in any order. Only with `gateways`.
    pub http_routes: Vec<PlanHttpRoute>,
    /// Gateways with their listeners, in order: where two listeners of a port claim one host, the first has it. `None`:
    /// not in Gateway mode, every request comes in by the one door.
    pub gateways: Option<Vec<PlanGateway>>,
}

/// The name of an object: `namespace/name`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Namespace; `default` when standalone.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// A name from its parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One model of the settings.
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
    /// How prefill and decode are kept apart; of models with the same served name, the first that says so counts.
    pub disaggregation: Option<Disaggregation>,
}

/// One endpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanEndpoint {
    /// Identity. The same id under two targets is one endpoint.
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
    /// When its newest container started, seconds since 1970; another start is another owner. `None` where nobody tells.
    pub started_at: Option<u64>,
    /// Whether new requests may go there. One that is not ready keeps its number, its live numbers and what is known of
    /// its cache.
    pub ready: bool,
}

/// A Gateway of Gateway API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanGateway {
    /// Its name.
    pub id: ObjectName,
    /// The listeners that are served.
    pub listeners: Vec<PlanListener>,
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanListener {
    /// Its name, unique in its Gateway.
    pub name: Arc<str>,
    /// TCP port.
    pub port: u16,
    /// A host, or `*.` and a suffix; `None` takes what no other listener of the port takes.
    pub hostname: Option<Arc<str>>,
}

/// What a swap changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// New owners: their slots hold nothing yet.
    pub added: Vec<Arc<Endpoint>>,
    /// Owners that are gone. Their slots stay taken until they are released, after the index has forgotten them.
    pub removed: Vec<Arc<Endpoint>>,
    /// What the plan says twice and differently, or in vain; one sentence each, for the log.
    pub conflicts: Vec<String>,
}
