//! Everything that is watched, as it was last seen.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kvasir_api::gateway::{Gateway, GatewayClass, HttpRoute, ReferenceGrant};
use kvasir_api::{ExternalModelProvider, InferencePool, ModelRoute, ModelServer, Read};
use kvasir_state::plan::ObjectName;

/// The objects of one kind by name; the namespace is empty for kinds that have none. Those that cannot be read are among
/// them, so that their status can say why.
pub type Kind<K> = BTreeMap<ObjectName, Arc<Read<K>>>;

/// Everything that is watched. Kinds that are not watched stay empty.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// kthena's routes.
    pub model_routes: Kind<ModelRoute>,
    /// kthena's model servers.
    pub model_servers: Kind<ModelServer>,
    /// kthena's providers.
    pub providers: Kind<ExternalModelProvider>,
    /// Pods, as far as they decide about routing.
    pub pods: BTreeMap<ObjectName, Arc<PodFacts>>,
    /// Classes of Gateways.
    pub gateway_classes: Kind<GatewayClass>,
    /// Gateways.
    pub gateways: Kind<Gateway>,
    /// HTTPRoutes.
    pub http_routes: Kind<HttpRoute>,
    /// What objects of other namespaces may name.
    pub reference_grants: Kind<ReferenceGrant>,
    /// Pools of the inference extension.
    pub inference_pools: Kind<InferencePool>,
    /// Labels of namespaces by their name.
    pub namespaces: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
}

/// What of a pod decides about routing. A pod is large, and most of it does not.
#[derive(Clone, PartialEq, Debug)]
pub struct PodFacts {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Data-parallel ranks served behind its port, as its annotation `kvasir.io/data-parallel-ranks` says; else 1.
    pub ranks: u32,
    /// Whether a request's rank is chosen by header, as its annotation `kvasir.io/data-parallel-pinned` says; `None`
    /// leaves it to what is known of the engine.
    pub pin_ranks: Option<bool>,
    /// Its address; `None` before it has one.
    pub ip: Option<IpAddr>,
    /// Whether requests may go there: it runs, its condition `Ready` is true, and it is not being deleted.
    pub ready: bool,
    /// Whether it is over: deleted, failed or completed. Nothing of it is kept then.
    pub gone: bool,
    /// Its containers, those of `initContainers` and so sidecars apart.
    pub containers: Box<[ContainerFacts]>,
}

/// What of a container decides about routing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerFacts {
    /// The ports that its spec names.
    pub ports: Box<[u16]>,
    /// When it started, seconds since 1970; `None` while it does not run.
    pub started_at: Option<u64>,
}
