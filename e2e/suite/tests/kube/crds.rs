//! Our definitions beside kthena's own on two real API servers: what one takes, the other takes, and keeps alike.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kube::Client;
use kube::api::DynamicObject;
use kvasir_suite::cluster::{Cluster, Crds, apply, apply_into, documents, install_crds, shared_data};
use serde_json::Value;
use tokio::sync::OnceCell;

/// The kinds that the definitions beside the checkout define.
pub const KINDS: [&str; 7] = [
    "ModelRoute",
    "ModelServer",
    "ExternalModelProvider",
    "Gateway",
    "HTTPRoute",
    "ReferenceGrant",
    "InferencePool",
];

/// Objects that kthena's schemas take although they look wrong; users may have them.
const ODD: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: without-spec}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ExternalModelProvider
metadata: {name: without-spec}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: odd-policy}
spec:
  inferenceEngine: vLLM
  workloadSelector: {}
  workloadPort: {port: 8000}
  kvConnector: {}
  trafficPolicy: {timeout: soon, retry: {attempts: -1}}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: adapters-alone}
spec:
  loraAdapters: [one]
  rules: [{targetModels: [{modelServerName: any, weight: 0}]}]
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: no-rules}
spec: {modelName: m, rules: []}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: odd-matches}
spec:
  modelName: m
  rateLimit: {inputTokensPerUnit: 1, global: {}}
  parentRefs: [{name: gateway, sectionName: http}]
  rules:
  - modelMatch: {headers: {x-user: {exact: a, prefix: b, regex: "("}}, uri: {}, body: {}}
    targetModels: [{modelServerName: any, externalModelProviderName: ""}]
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ExternalModelProvider
metadata: {name: defaults}
spec:
  baseURL: https://models.example
  auth: {secretRef: {key: token}}
"#;

/// A cluster with kthena's definitions in place of ours, shared by all cases. Nothing where they are not beside the
/// checkout.
pub async fn kthenas() -> Option<&'static Cluster> {
    static KTHENAS: OnceCell<Cluster> = OnceCell::const_new();
    shared_data("crds")?;
    let made = KTHENAS.get_or_init(|| async {
        let cluster = Cluster::start().await.unwrap();
        let client = cluster.client().await.unwrap();
        install_crds(&client, Crds::Kthenas).await.unwrap();
        install_crds(&client, Crds::GatewayApi).await.unwrap();
        cluster
    });
    Some(made.await)
}

#[tokio::test]
async fn every_known_manifest_applies_to_both_and_is_kept_alike() {
    let (Some(theirs), Some(folder)) = (kthenas().await, shared_data("examples")) else { return };
    let sides = [Side::new(Cluster::shared().await.unwrap()).await, Side::new(theirs).await];
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for file in yaml_files(&folder) {
        let text = std::fs::read_to_string(&file).unwrap();
        for document in documents(&text).unwrap() {
            let kind = document["kind"].as_str().unwrap().to_owned();
            if KINDS.contains(&kind.as_str()) {
                seen.insert(kind);
                wrong
                    .extend(compare(&sides, &document).await.map(|why| format!("{}: {why}", file.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let expected = ["Gateway", "HTTPRoute", "InferencePool", "ModelRoute", "ModelServer"];
    assert_eq!(seen, expected.map(str::to_owned).into(), "the manifests are of other kinds than they were");
}

#[tokio::test]
async fn what_looks_wrong_and_is_taken_by_kthena_is_taken_by_ours() {
    let ours = Side::new(Cluster::shared().await.unwrap()).await;
    let kept = apply(&ours.client, &ours.namespace, ODD).await.unwrap();
    assert_eq!(kept.len(), 7);
    assert_eq!(kept[5].data["spec"]["rateLimit"]["unit"], "second");
    assert_eq!(kept[5].data["spec"]["parentRefs"][0]["kind"], "Gateway");
    assert_eq!(kept[5].data["spec"]["rules"][0]["targetModels"][0]["weight"], 100);
    let Some(theirs) = kthenas().await else { return };
    let sides = [ours, Side::new(theirs).await];
    for document in documents(ODD).unwrap() {
        assert_eq!(compare(&sides, &document).await, None);
    }
}

/// One cluster, and a namespace of the case's own in it.
struct Side {
    client: Client,
    namespace: String,
}

impl Side {
    async fn new(cluster: &Cluster) -> Self {
        Self {
            client: cluster.client().await.unwrap(),
            namespace: cluster.namespace("definitions").await.unwrap(),
        }
    }
}

/// Applies a document to both sides; what is wrong about it, if anything.
async fn compare(sides: &[Side; 2], document: &Value) -> Option<String> {
    let text = document.to_string();
    let [ours, theirs] = sides;
    let ours = apply_into(&ours.client, &ours.namespace, &text).await;
    let theirs = apply_into(&theirs.client, &theirs.namespace, &text).await;
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => {
            let (ours, theirs) = (specs(&ours), specs(&theirs));
            (ours != theirs).then(|| format!("ours keeps {ours:?}\ntheirs keeps {theirs:?}"))
        }
        (ours, theirs) => Some(format!("ours {:?}\ntheirs {:?}", ours.err(), theirs.err())),
    }
}

fn specs(objects: &[DynamicObject]) -> Vec<&Value> {
    objects.iter().map(|object| &object.data["spec"]).collect()
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    found
}
