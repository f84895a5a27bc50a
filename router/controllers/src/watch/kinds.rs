//! The kinds that are watched: what of each object is kept, and which change of it matters.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kvasir_api::gateway::{Gateway, GatewayClass, HttpRoute, ReferenceGrant};
use kvasir_api::{ExternalModelProvider, InferencePool, ModelRoute, ModelServer, Read};
use kvasir_state::plan::ObjectName;
use serde::de::DeserializeOwned;

use crate::objects::{Kind, Objects, PodFacts};
use crate::status::StatusKind;
use crate::translate::Options;

/// What `kubectl apply` leaves behind: a copy of the whole object in an annotation.
const APPLIED_COPY: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind that is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WatchedKind {
    /// kthena's routes.
    ModelRoutes,
    /// kthena's model servers.
    ModelServers,
    /// kthena's providers.
    Providers,
    /// Pods.
    Pods,
    /// Classes of Gateways.
    GatewayClasses,
    /// Gateways.
    Gateways,
    /// Routes of Gateway API.
    HttpRoutes,
    /// What objects of other namespaces may name.
    ReferenceGrants,
    /// Pools of the inference extension.
    InferencePools,
    /// Namespaces.
    Namespaces,
}

impl WatchedKind {
    /// The kinds that these options ask for.
    pub fn wanted(options: &Options) -> Vec<Self> {
        let mut kinds = vec![Self::ModelRoutes, Self::ModelServers, Self::Providers, Self::Pods];
        if options.gateway_api {
            kinds.extend([Self::GatewayClasses, Self::Gateways]);
            if options.inference_extension {
                // Grants are about the pools that HTTPRoutes name.
                kinds.extend([
                    Self::HttpRoutes,
                    Self::ReferenceGrants,
                    Self::InferencePools,
                    Self::Namespaces,
                ]);
            }
        }
        kinds
    }

    /// The resource with its group, as access rules name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ModelRoutes => "modelroutes.networking.serving.volcano.sh",
            Self::ModelServers => "modelservers.networking.serving.volcano.sh",
            Self::Providers => "externalmodelproviders.networking.serving.volcano.sh",
            Self::Pods => "pods",
            Self::GatewayClasses => "gatewayclasses.gateway.networking.k8s.io",
            Self::Gateways => "gateways.gateway.networking.k8s.io",
            Self::HttpRoutes => "httproutes.gateway.networking.k8s.io",
            Self::ReferenceGrants => "referencegrants.gateway.networking.k8s.io",
            Self::InferencePools => "inferencepools.inference.networking.k8s.io",
            Self::Namespaces => "namespaces",
        }
    }

    /// What follows where objects of this kind are not shown to the router; `None`: it waits for them. kthena reads no
    /// grants, so its roles do not have them; who may not read any is granted nothing.
    pub(crate) fn without(self) -> Option<&'static str> {
        (self == Self::ReferenceGrants).then_some("no route may name a pool of another namespace until then")
    }
}

/// How an object that is watched is kept.
pub(crate) trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// What tells one object from another.
    type Key: Ord + Clone + Send;
    /// What of it is kept.
    type Kept: Send + Sync;
    /// Its kind.
    const KIND: WatchedKind;

    fn key(&self) -> Self::Key;
    fn keep(self) -> Self::Kept;
    fn shelf(objects: &Objects) -> &BTreeMap<Self::Key, Arc<Self::Kept>>;
    fn shelf_mut(objects: &mut Objects) -> &mut BTreeMap<Self::Key, Arc<Self::Kept>>;

    /// Whether a translation of `new` would say what one of `old` says.
    fn means_the_same(old: &Self::Kept, new: &Self::Kept) -> bool;

    /// Whose status is to be looked at again when such an object changes without another meaning.
    fn with_status(_key: &Self::Key) -> Option<(StatusKind, ObjectName)> {
        None
    }
}

/// A kind whose objects are kept whole.
pub(crate) trait Placed:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    const WATCHED: WatchedKind;
    const STATUS: Option<StatusKind>;
    fn place(objects: &Objects) -> &Kind<Self>;
    fn place_mut(objects: &mut Objects) -> &mut Kind<Self>;
}

macro_rules! placed {
    ($($kind:ty: $watched:ident, $status:expr, $field:ident;)*) => {$(
        impl Placed for $kind {
            const WATCHED: WatchedKind = WatchedKind::$watched;
            const STATUS: Option<StatusKind> = $status;

            fn place(objects: &Objects) -> &Kind<Self> {
                &objects.$field
            }

            fn place_mut(objects: &mut Objects) -> &mut Kind<Self> {
                &mut objects.$field
            }
        }
    )*};
}

placed! {
    ModelRoute: ModelRoutes, Some(StatusKind::ModelRoute), model_routes;
    ModelServer: ModelServers, Some(StatusKind::ModelServer), model_servers;
    ExternalModelProvider: Providers, Some(StatusKind::ExternalModelProvider), providers;
    GatewayClass: GatewayClasses, Some(StatusKind::GatewayClass), gateway_classes;
    Gateway: Gateways, Some(StatusKind::Gateway), gateways;
    HttpRoute: HttpRoutes, Some(StatusKind::HttpRoute), http_routes;
    ReferenceGrant: ReferenceGrants, None, reference_grants;
    InferencePool: InferencePools, Some(StatusKind::InferencePool), inference_pools;
}

impl<K: Placed> Watched for Read<K> {
    type Key = ObjectName;
    type Kept = Self;
    const KIND: WatchedKind = K::WATCHED;

    fn key(&self) -> ObjectName {
        name_of(self.meta())
    }

    fn keep(mut self) -> Self {
        let meta = self.meta_mut();
        meta.managed_fields = None;
        meta.annotations = meta.annotations.take().filter(|all| all.keys().any(|name| name != APPLIED_COPY));
        if let Some(annotations) = &mut meta.annotations {
            annotations.remove(APPLIED_COPY);
        }
        self
    }

    fn shelf(objects: &Objects) -> &Kind<K> {
        K::place(objects)
    }

    fn shelf_mut(objects: &mut Objects) -> &mut Kind<K> {
        K::place_mut(objects)
    }

    fn means_the_same(old: &Self, new: &Self) -> bool {
        // The generation counts changes of everything but metadata and status. Without one nothing is known.
        let (before, after) = (old.meta(), new.meta());
        after.generation.is_some()
            && before.generation == after.generation
            && before.uid == after.uid
            && before.labels == after.labels
            && before.annotations == after.annotations
            && before.deletion_timestamp.is_some() == after.deletion_timestamp.is_some()
            && old.0.is_ok() == new.0.is_ok()
    }

    fn with_status(key: &ObjectName) -> Option<(StatusKind, ObjectName)> {
        K::STATUS.map(|kind| (kind, key.clone()))
    }
}

impl Watched for Pod {
    type Key = ObjectName;
    type Kept = PodFacts;
    const KIND: WatchedKind = WatchedKind::Pods;

    fn key(&self) -> ObjectName {
        name_of(&self.metadata)
    }

    fn keep(self) -> PodFacts {
        PodFacts::of(&self)
    }

    fn shelf(objects: &Objects) -> &BTreeMap<ObjectName, Arc<PodFacts>> {
        &objects.pods
    }

    fn shelf_mut(objects: &mut Objects) -> &mut BTreeMap<ObjectName, Arc<PodFacts>> {
        &mut objects.pods
    }

    fn means_the_same(old: &PodFacts, new: &PodFacts) -> bool {
        old == new
    }
}

impl Watched for Namespace {
    type Key = Arc<str>;
    type Kept = BTreeMap<String, String>;
    const KIND: WatchedKind = WatchedKind::Namespaces;

    fn key(&self) -> Arc<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    fn keep(self) -> BTreeMap<String, String> {
        self.metadata.labels.unwrap_or_default()
    }

    fn shelf(objects: &Objects) -> &BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>> {
        &objects.namespaces
    }

    fn shelf_mut(objects: &mut Objects) -> &mut BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>> {
        &mut objects.namespaces
    }

    fn means_the_same(old: &Self::Kept, new: &Self::Kept) -> bool {
        old == new
    }
}

/// The name of an object; the namespace is empty for kinds that have none.
pub(crate) fn name_of(meta: &ObjectMeta) -> ObjectName {
    ObjectName::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// How many objects of a kind there are, and how many of them cannot be read.
pub(super) fn count(objects: &Objects, kind: WatchedKind) -> (usize, usize) {
    fn of<K: Placed>(objects: &Objects) -> (usize, usize) {
        let all = K::place(objects);
        (all.len(), all.values().filter(|object| object.0.is_err()).count())
    }
    match kind {
        WatchedKind::ModelRoutes => of::<ModelRoute>(objects),
        WatchedKind::ModelServers => of::<ModelServer>(objects),
        WatchedKind::Providers => of::<ExternalModelProvider>(objects),
        WatchedKind::Pods => (objects.pods.len(), 0),
        WatchedKind::GatewayClasses => of::<GatewayClass>(objects),
        WatchedKind::Gateways => of::<Gateway>(objects),
        WatchedKind::HttpRoutes => of::<HttpRoute>(objects),
        WatchedKind::ReferenceGrants => of::<ReferenceGrant>(objects),
        WatchedKind::InferencePools => of::<InferencePool>(objects),
        WatchedKind::Namespaces => (objects.namespaces.len(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_httproutes_need_is_watched_with_them() {
        let wanted = |gateway_api, inference_extension| {
            let options = Options { gateway_api, inference_extension, ..Options::default() };
            WatchedKind::wanted(&options)
        };
        assert_eq!(wanted(false, true).len(), 4);
        let gateways = wanted(true, false);
        assert!(gateways.contains(&WatchedKind::Gateways) && gateways.len() == 6, "{gateways:?}");
        assert!(wanted(true, true).contains(&WatchedKind::ReferenceGrants));
        assert!(!gateways.contains(&WatchedKind::ReferenceGrants), "nobody may name a pool");
    }
}
