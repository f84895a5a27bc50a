//! The cluster that the other cases stand on: it outlives its API server, keeps its rules, and leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, WatchEvent, WatchParams};
use kvasir_suite::cluster::{
    Cluster, Grant, PodDraft, apply, delete, delete_pod, restart_containers, set_phase, set_ready,
};
use kvasir_suite::{GUARD, eventually};

const READER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: harness-reader}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: harness-writer}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [mine], verbs: [get, delete]}
"#;

const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}, data: {key: value}}";

#[tokio::test]
async fn a_pod_lives_and_ends_as_told() {
    let cluster = Cluster::shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    let space = cluster.namespace("pods").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &space);
    let draft = PodDraft::new("one", "10.1.0.1").second_address("fd00::5").label("app", "engine").port(8000);
    let made = draft.ready(false).create(&client, &space).await.unwrap();
    assert_eq!(ready_and_phase(&made), ("False".to_owned(), "Running".to_owned()));
    let status = made.status.unwrap();
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.1"));
    assert_eq!(status.pod_ips.unwrap().get(1).map(|address| address.ip.clone()), Some("fd00::5".to_owned()));

    let ready = set_ready(&client, &space, "one", true).await.unwrap();
    assert_eq!(ready_and_phase(&ready), ("True".to_owned(), "Running".to_owned()));
    let failed = set_phase(&client, &space, "one", "Failed").await.unwrap();
    assert_eq!(ready_and_phase(&failed), ("True".to_owned(), "Failed".to_owned()));
    set_phase(&client, &space, "one", "Running").await.unwrap();
    let at: Timestamp = "2030-01-02T03:04:05Z".parse().unwrap();
    let again = restart_containers(&client, &space, "one", at).await.unwrap();
    let container = again.status.unwrap().container_statuses.unwrap().remove(0);
    assert_eq!(container.restart_count, 1);
    assert_eq!(container.state.unwrap().running.unwrap().started_at.unwrap().0, at);

    delete_pod(&client, &space, "one", 600).await.unwrap();
    let ending = pods.get("one").await.unwrap();
    assert!(ending.metadata.deletion_timestamp.is_some(), "a pod with time to end in terminates first");
    assert_eq!(ready_and_phase(&ending).0, "True", "a kubelet has said nothing yet");
    delete_pod(&client, &space, "one", 0).await.unwrap();
    assert!(pods.get_opt("one").await.unwrap().is_none());
}

#[tokio::test]
async fn an_account_may_do_what_its_roles_say_and_no_more() {
    let cluster = Cluster::shared().await.unwrap();
    let admin = cluster.client().await.unwrap();
    let space = cluster.namespace("account").await.unwrap();
    apply(&admin, &space, READER).await.unwrap();
    apply(&admin, &space, MAP).await.unwrap();
    let grants = [Grant::ClusterRole("harness-reader"), Grant::Role("harness-writer")];
    let account = cluster.account(&space, "router", &grants).await.unwrap();
    let client = account.client().await.unwrap();
    Api::<Pod>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &space);
    assert!(maps.get_opt("mine").await.unwrap().is_some());
    for refused in [
        maps.get("other").await.map(drop),
        maps.list(&ListParams::default()).await.map(drop),
        Api::<Pod>::namespaced(client.clone(), &space)
            .delete("any", &DeleteParams::default())
            .await
            .map(drop),
    ] {
        let Err(kube::Error::Api(status)) = refused else { panic!("not refused: {refused:?}") };
        assert_eq!(status.code, 403, "{status:?}");
    }
    delete(&admin, &space, MAP).await.unwrap();
    assert!(maps.get_opt("mine").await.unwrap().is_none());
    // What is not there need not be deleted.
    delete(&admin, &space, MAP).await.unwrap();
}

#[tokio::test]
async fn an_outage_keeps_the_data_and_ends_the_watches() {
    let mut cluster = Cluster::start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let first = apply(&client, "default", MAP).await.unwrap().remove(0);
    let old_version = first.metadata.resource_version.unwrap();
    // This happens before the next API server is there to see it.
    apply(&client, "default", &MAP.replace("mine", "later")).await.unwrap();
    let address = cluster.url();
    cluster.kill();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    assert!(maps.get("mine").await.is_err(), "the API server is dead");
    cluster.restart().await.unwrap();
    assert_eq!(cluster.url(), address);
    let map = maps.get("mine").await.unwrap();
    assert_eq!(map.data.unwrap().get("key").map(String::as_str), Some("value"));
    let watch = maps.watch(&WatchParams::default(), &old_version).await.unwrap();
    let mut watch = Box::pin(watch);
    let first = tokio::time::timeout(GUARD, watch.next()).await.unwrap();
    assert!(matches!(&first, Some(Ok(WatchEvent::Error(status))) if status.code == 410), "{first:?}");

    cluster.pause().unwrap();
    let asked = tokio::time::timeout(Duration::from_millis(300), maps.get("mine")).await;
    assert!(asked.is_err(), "a paused API server says nothing: {asked:?}");
    cluster.resume().unwrap();
    tokio::time::timeout(GUARD, maps.get("mine")).await.unwrap().unwrap();

    let processes = cluster.processes();
    let folder = cluster.folder().to_owned();
    drop(cluster);
    eventually("its processes are gone", || {
        processes.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
    assert!(!folder.exists(), "{} is left", folder.display());
}

fn ready_and_phase(pod: &Pod) -> (String, String) {
    let status = pod.status.clone().unwrap();
    let conditions = status.conditions.unwrap();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap();
    (ready.status, status.phase.unwrap())
}
