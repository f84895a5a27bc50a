//! Watches: one per kind, each of them keeping its part of the store.

mod follow;
mod kinds;
mod patience;
mod store;
mod trouble;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client, Resource};
use kvasir_api::gateway::{Gateway, GatewayClass, HttpRoute, ReferenceGrant};
use kvasir_api::{ExternalModelProvider, InferencePool, ModelRoute, ModelServer, Read};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use follow::follow;
pub use kinds::WatchedKind;
pub(crate) use kinds::{Placed, Watched};
pub(crate) use patience::Patience;
pub use store::KindStatus;
pub(crate) use store::{Store, Work};
pub(crate) use trouble::{Trouble, causes};

/// How long one watch lasts, seconds. An API server ends watches after 5 to 10 minutes by itself.
const WATCH_LASTS: u32 = 290;
/// How many objects are asked for at once.
const PAGE: u32 = 500;

/// How every watch is asked for.
pub(crate) fn config() -> Config {
    Config::default().timeout(WATCH_LASTS).page_size(PAGE)
}

/// What every watch needs.
#[derive(Clone)]
pub(crate) struct Watches {
    /// Who is asked.
    pub(crate) client: Client,
    /// The one namespace that counts; `None` for all.
    pub(crate) namespace: Option<String>,
    /// Where everything is kept.
    pub(crate) store: Arc<Store>,
    /// Where the tasks run.
    pub(crate) tasks: TaskTracker,
    /// When they end.
    pub(crate) stop: CancellationToken,
}

impl Watches {
    /// Begins to watch a kind.
    pub(crate) fn start(&self, kind: WatchedKind) {
        match kind {
            WatchedKind::ModelRoutes => self.namespaced::<Read<ModelRoute>>(),
            WatchedKind::ModelServers => self.namespaced::<Read<ModelServer>>(),
            WatchedKind::Providers => self.namespaced::<Read<ExternalModelProvider>>(),
            WatchedKind::Pods => self.namespaced::<Pod>(),
            WatchedKind::GatewayClasses => self.whole::<Read<GatewayClass>>(),
            WatchedKind::Gateways => self.namespaced::<Read<Gateway>>(),
            WatchedKind::HttpRoutes => self.namespaced::<Read<HttpRoute>>(),
            WatchedKind::ReferenceGrants => self.namespaced::<Read<ReferenceGrant>>(),
            WatchedKind::InferencePools => self.namespaced::<Read<InferencePool>>(),
            WatchedKind::Namespaces => self.whole::<Namespace>(),
        }
    }

    fn namespaced<W: Watched + Resource<Scope = NamespaceResourceScope>>(&self) {
        let client = self.client.clone();
        self.spawn::<W>(match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        });
    }

    fn whole<W: Watched + Resource<Scope = ClusterResourceScope>>(&self) {
        self.spawn::<W>(Api::all(self.client.clone()));
    }

    fn spawn<W: Watched>(&self, api: Api<W>) {
        let (store, stop) = (Arc::clone(&self.store), self.stop.clone());
        self.tasks.spawn(async move {
            let watch = follow::<W, _>(&store, || watcher(api.clone(), config()));
            stop.run_until_cancelled(watch).await;
        });
    }
}
