//! Statuses on a real API server: ours keep what a router says, kthena's drop it without an error.

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use kvasir_api::conditions::{Condition, Time, types, values};
use kvasir_api::{ExternalModelProvider, ModelRoute, ModelServer};
use kvasir_suite::cluster::{Cluster, apply};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::crds::kthenas;

const OBJECTS: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: case}
spec: {modelName: m, rules: []}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: case}
spec: {inferenceEngine: vLLM, workloadSelector: {}, workloadPort: {port: 8000}}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ExternalModelProvider
metadata: {name: case}
spec: {baseURL: "https://models.example"}
"#;

#[tokio::test]
async fn ours_keep_a_status() {
    let (client, space) = prepared(Cluster::shared().await.unwrap()).await;
    assert!(keeps::<ModelRoute>(&client, &space).await);
    assert!(keeps::<ModelServer>(&client, &space).await);
    assert!(keeps::<ExternalModelProvider>(&client, &space).await);
}

#[tokio::test]
async fn kthenas_drop_a_status_without_an_error() {
    let Some(cluster) = kthenas().await else { return };
    let (client, space) = prepared(cluster).await;
    assert!(!keeps::<ModelRoute>(&client, &space).await);
    assert!(!keeps::<ModelServer>(&client, &space).await);
    assert!(keeps::<ExternalModelProvider>(&client, &space).await, "providers have had a status all along");
}

#[tokio::test]
async fn a_status_changes_no_generation_and_a_spec_changes_no_status() {
    let (client, space) = prepared(Cluster::shared().await.unwrap()).await;
    let routes: Api<ModelRoute> = Api::namespaced(client, &space);
    routes.patch_status("case", &PatchParams::default(), &Patch::Merge(status("Invalid"))).await.unwrap();
    let patch = json!({"spec": {"loraAdapters": ["adapter"]}, "status": {"conditions": []}});
    let route = routes.patch("case", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(route.metadata.generation, Some(2));
    let status = route.status.unwrap();
    assert_eq!(status.conditions.len(), 1);
    assert_eq!(status.conditions[0].observed_generation, Some(1));
}

async fn prepared(cluster: &Cluster) -> (Client, String) {
    let (client, space) = (cluster.client().await.unwrap(), cluster.namespace("status").await.unwrap());
    apply(&client, &space, OBJECTS).await.unwrap();
    (client, space)
}

fn status(reason: &str) -> Value {
    let condition = Condition {
        type_: types::ACCEPTED.to_owned(),
        status: values::FALSE.to_owned(),
        reason: reason.to_owned(),
        message: "what to change".to_owned(),
        observed_generation: Some(1),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    };
    json!({"status": {"observedGeneration": 1, "conditions": [condition]}})
}

/// Writes a status in every way there is, which must all pass; whether it is there afterwards.
async fn keeps<K>(client: &Client, space: &str) -> bool
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    K::DynamicType: Default,
{
    let objects: Api<K> = Api::namespaced(client.clone(), space);
    let mut kept = Vec::new();

    objects.patch_status("case", &PatchParams::default(), &Patch::Merge(status("Merged"))).await.unwrap();
    kept.push(reason(&objects).await.as_deref() == Some("Merged"));

    let object = objects.get("case").await.unwrap();
    let mut written = serde_json::to_value(object).unwrap();
    written["status"] = status("Replaced")["status"].clone();
    let object: K = serde_json::from_value(written).unwrap();
    objects.replace_status("case", &PostParams::default(), &object).await.unwrap();
    kept.push(reason(&objects).await.as_deref() == Some("Replaced"));

    let mut applied = status("Applied");
    applied["apiVersion"] = K::api_version(&K::DynamicType::default()).into();
    applied["kind"] = K::kind(&K::DynamicType::default()).into();
    let params = PatchParams::apply("kvasir-router").force();
    objects.patch_status("case", &params, &Patch::Apply(applied)).await.unwrap();
    kept.push(reason(&objects).await.as_deref() == Some("Applied"));

    assert!(kept.iter().all(|is_kept| *is_kept == kept[0]), "{kept:?}");
    kept[0]
}

/// The reason of the only condition.
async fn reason<K>(objects: &Api<K>) -> Option<String>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let found = serde_json::to_value(objects.get("case").await.unwrap()).unwrap();
    found.pointer("/status/conditions/0/reason").and_then(Value::as_str).map(str::to_owned)
}
