//! Who can be chosen by a route.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{ConnectorKind, Endpoint, ModelName, UpstreamTls};

use super::{ObjectName, PlanEndpoint};

/// What kind of object a target is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TargetKind {
    /// A model of the settings.
    Model,
    /// A ModelServer.
    ModelServer,
    /// An InferencePool.
    InferencePool,
}

impl TargetKind {
    /// kthena's word for it, as in the label `backend_type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model | Self::ModelServer => "model_server",
            Self::InferencePool => "inference_pool",
        }
    }
}

/// Which target.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId {
    /// The kind of object.
    pub kind: TargetKind,
    /// Its name; for a model of the settings, `default` and its served name.
    pub name: ObjectName,
}

impl TargetId {
    /// The ModelServer `namespace/name`.
    pub fn model_server(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind: TargetKind::ModelServer, name: ObjectName::new(namespace, name) }
    }

    /// The InferencePool `namespace/name`.
    pub fn inference_pool(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind: TargetKind::InferencePool, name: ObjectName::new(namespace, name) }
    }
}

impl fmt::Debug for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}

/// A set of endpoints that serve one model, and how to speak to them.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanTarget {
    /// Identity.
    pub id: TargetId,
    /// The name that the engines are called by: it replaces the client's, an adapter's name apart. `None` keeps it.
    pub served: Option<ModelName>,
    /// The model's name as key of the block index and of the tokenizers: `served`, or what the route calls it. Where
    /// `served` is `None` and the endpoints are filed under another name by another target, that name is used.
    pub index_model: ModelName,
    /// Who serves it, ready or not.
    pub endpoints: Vec<PlanEndpoint>,
    /// How prefill and decode are kept apart; `None` where every endpoint does both.
    pub disaggregation: Option<Disaggregation>,
    /// How long one attempt may take up to the answer's header, connecting included. `None`: the router's own limits.
    pub timeout: Option<Duration>,
    /// Whether to try again. `None`: the router's own rules.
    pub retry: Option<RetryPolicy>,
    /// How the endpoints are spoken to over TLS; `None` leaves each to its address. An endpoint of several targets is
    /// spoken to in one way, that of the first target that says so.
    pub tls: Option<UpstreamTls>,
    /// What it asks for that cannot be done: requests for it are refused with this.
    pub refused: Option<&'static str>,
}

impl PlanTarget {
    /// A target without policies.
    pub fn new(id: TargetId, index_model: ModelName, endpoints: Vec<PlanEndpoint>) -> Self {
        let (served, disaggregation, timeout, retry, tls, refused) = (None, None, None, None, None, None);
        Self { id, served, index_model, endpoints, disaggregation, timeout, retry, tls, refused }
    }
}

/// Prefill on one endpoint, decode on another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disaggregation {
    /// The label whose value puts prefill and decode endpoints into one group. An endpoint without it is in no group
    /// and gets nothing. `None`: all are one group.
    pub group_key: Option<Arc<str>>,
    /// How the KV cache is handed over.
    pub connector: ConnectorKind,
}

impl Disaggregation {
    /// The group of `endpoint`; `None` for one that is in none. Where all are one group, its name is empty.
    pub fn group_of<'a>(&self, endpoint: &'a Endpoint) -> Option<&'a str> {
        match &self.group_key {
            None => Some(""),
            Some(key) => endpoint.labels.get(&**key).map(String::as_str).filter(|value| !value.is_empty()),
        }
    }
}

/// How often, and how soon, to try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// Further attempts that one request may have.
    pub attempts: u32,
    /// The pause before each.
    pub interval: Duration,
}
