//! Follows the names of the models that ModelServers serve, for those who need no more of a cluster.

use std::collections::BTreeSet;

use futures_util::Stream;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use kvasir_api::{ModelServer, Read};
use tokio_util::sync::CancellationToken;

use crate::objects::Objects;
use crate::watch::{self, Store, WatchedKind};

/// Follows `spec.model` of the ModelServers of one namespace, or of all, until told to stop. `on_change` is called with
/// all names when the first full list is there, and with every other set of them after that.
///
/// ModelServers that name no model, or cannot be read, say nothing. While the API server is away, refuses, or does not
/// know the kind, that is named in the log and tried again, and what was said last stays.
///
/// Whose credentials `client` has needs to `list` and `watch` ModelServers.
pub async fn follow(
    client: Client,
    namespace: Option<String>,
    on_change: impl Fn(BTreeSet<String>),
    stop: CancellationToken,
) {
    let api: Api<Read<ModelServer>> = match &namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    stop.run_until_cancelled(tell(|| watcher(api.clone(), watch::config()), on_change)).await;
}

/// Tells what changes in streams of events. Never returns.
async fn tell<S>(start: impl Fn() -> S, on_change: impl Fn(BTreeSet<String>))
where
    S: Stream<Item = watcher::Result<Event<Read<ModelServer>>>>,
{
    let store = Store::new([WatchedKind::ModelServers]);
    let telling = async {
        let mut said = None;
        loop {
            let names = names(&store.work().await.objects);
            if said.as_ref() != Some(&names) {
                on_change(names.clone());
                said = Some(names);
            }
        }
    };
    tokio::join!(watch::follow(&store, start), telling);
}

fn names(objects: &Objects) -> BTreeSet<String> {
    let specs = objects.model_servers.values().filter_map(|server| server.0.as_ref().ok());
    specs.filter_map(|server| server.spec.model.clone()).filter(|model| !model.is_empty()).collect()
}

#[cfg(test)]
mod tests;
