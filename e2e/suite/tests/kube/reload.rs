//! A router document that changes while the router runs: taken over whole or not at all, without a request that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kvasir_suite::cluster::{Cluster, PodDraft, apply};
use kvasir_suite::echo::{Echo, loopback};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::{Ports, Process, chat, chat_status, json_at, until};

const MODEL: &str = "followed";
const MAP: &str = "router";
const KEY: &str = "routerConfiguration";
const REJECTED: &str = "kvasir_kubernetes_document_rejected";

/// Clients that ask all the time.
const CLIENTS: usize = 4;

const OBJECTS: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: served}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: engine}}, workloadPort: {port: PORT}}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: served}
spec: {modelName: followed, rules: [{targetModels: [{modelServerName: served}]}]}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_is_followed_under_load() {
    let stage = Stage::set(Some(&scoring("least-request"))).await;
    stage.decides_by(&["least-request"]).await;
    let load = Load::begin(stage.router.ports.router);

    stage.write(&scoring("random")).await;
    stage.decides_by(&["random"]).await;
    assert_eq!(
        stage.document().await,
        json!({"config_map": stage.name(), "versions_taken_over": 1, "rejected": null})
    );

    // A factor that kthena's router would end with, in line 5.
    let bad =
        "scheduler:\n  pluginConfig:\n  - name: least-latency\n    args:\n      TTFTTPOTWeightFactor: 2\n";
    stage.write(bad).await;
    let place = format!("ConfigMap {}:5:", stage.name());
    stage.rejects(&place).await;
    stage.decides_by(&["random"]).await;
    let broken = "scheduler:\n  plugins: [\n";
    stage.write(broken).await;
    stage.rejects("failed to parse router config").await;
    stage.decides_by(&["random"]).await;
    assert_eq!(stage.document().await["versions_taken_over"], 1);

    stage.write(&scoring("gpu-usage")).await;
    stage.decides_by(&["gpu-usage"]).await;
    stage.accepts(2).await;

    // It asks a Redis.
    stage.write(&scoring("kvcache-aware")).await;
    stage.rejects("it wants another Redis or coordination, which begins with a restart").await;
    // Nobody followed caches so far.
    stage.write(&scoring("kvasir-cost")).await;
    stage
        .rejects("it asks who holds which blocks, which nobody followed so far; that begins with a restart")
        .await;
    stage.decides_by(&["gpu-usage"]).await;

    stage.delete().await;
    until("the log says that the ConfigMap is gone", async || {
        stage.router.said("is not there; what it last said stays") == 1
    })
    .await;
    stage.decides_by(&["gpu-usage"]).await;
    // What it says is in use already.
    stage.write(&scoring("gpu-usage")).await;
    stage.accepts(2).await;
    stage.write(&scoring("least-request")).await;
    stage.decides_by(&["least-request"]).await;
    stage.accepts(3).await;

    let (answered, failed) = load.end().await;
    assert!(answered > 100, "{answered}");
    assert!(failed.is_empty(), "{answered} answered, {failed:?}");
    assert_eq!(stage.router.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_starts_without_a_good_document_and_goes_back_to_what_it_began_with() {
    let bad = "scheduler: {plugins: {Score: {enabled: [{name: random, weight: heavy}]}}}";
    let stage = Stage::set(Some(bad)).await;
    stage.rejects(&format!("ConfigMap {}:1:", stage.name())).await;
    // What a router does that nobody told anything.
    stage.decides_by(&["kvasir-cost"]).await;
    stage.write(&scoring("random")).await;
    stage.decides_by(&["random"]).await;
    stage.accepts(1).await;
    // Caches are followed, for the first scheduler asked about them.
    stage.write(&scoring("kvasir-cost")).await;
    stage.decides_by(&["kvasir-cost"]).await;
    stage.accepts(2).await;
    assert_eq!(stage.router.stop().await, Some(0));

    // This one asks for a Redis, which is not there; the next does not, and the way back is open.
    let shared = Stage::set(Some(&scoring("kvcache-aware"))).await;
    for (count, plugin) in [(0, "kvcache-aware"), (1, "random"), (2, "kvcache-aware")] {
        shared.write(&scoring(plugin)).await;
        shared.decides_by(&[plugin]).await;
        shared.accepts(count).await;
    }
    assert_eq!(shared.router.stop().await, Some(0));

    let late = Stage::set(None).await;
    late.decides_by(&["kvasir-cost"]).await;
    assert_eq!(late.document().await["rejected"], Value::Null);
    late.write(&scoring("random")).await;
    late.decides_by(&["random"]).await;
    late.accepts(1).await;
    assert_eq!(late.router.stop().await, Some(0));
}

fn scoring(plugin: &str) -> String {
    format!("scheduler:\n  plugins:\n    Score:\n      enabled:\n      - {{name: {plugin}, weight: 1}}\n")
}

/// A router that follows a ConfigMap, over one pod.
struct Stage {
    client: Client,
    space: String,
    router: Process,
    _engine: Echo,
}

impl Stage {
    async fn set(document: Option<&str>) -> Self {
        let cluster = Cluster::shared().await.unwrap();
        let client = cluster.client().await.unwrap();
        let space = cluster.namespace("reload").await.unwrap();
        let engine = Echo::start("engine", (loopback(), 0).into(), Vec::new(), None).await.unwrap();
        let objects = OBJECTS.replace("PORT", &engine.address.port().to_string());
        apply(&client, &space, &objects).await.unwrap();
        let pod = PodDraft::new("engine", &engine.address.ip().to_string()).label("app", "engine");
        pod.create(&client, &space).await.unwrap();
        if let Some(document) = document {
            write(&client, &space, document).await;
        }
        let ports = Ports::free();
        let arguments = [
            "kvasir".to_owned(),
            "--kubernetes=on".to_owned(),
            format!("--listen=127.0.0.1:{}", ports.router),
            format!("--metrics-listen=127.0.0.1:{}", ports.metrics),
            format!("--admin-listen=127.0.0.1:{}", ports.debug),
            format!("--watch-namespace={space}"),
            format!("--config-map={MAP}"),
            "--access-log=false".to_owned(),
            "--drain-settle=0".to_owned(),
        ];
        let environment =
            [("POD_NAMESPACE", space.clone()), ("KUBECONFIG", cluster.kubeconfig().display().to_string())];
        let router = Process::start(ports, &arguments, &environment);
        until("a request is answered", async || chat_status(ports.router, MODEL).await == 200).await;
        Self { client, space, router, _engine: engine }
    }

    /// The ConfigMap, as the router calls it.
    fn name(&self) -> String {
        format!("{}/{MAP}:{KEY}", self.space)
    }

    async fn write(&self, document: &str) {
        write(&self.client, &self.space, document).await;
    }

    async fn delete(&self) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.space);
        maps.delete(MAP, &DeleteParams::default()).await.unwrap();
    }

    /// New requests are placed by these scorers, as their records say.
    async fn decides_by(&self, scorers: &[&str]) {
        until(&format!("requests are placed by {scorers:?}"), async || {
            let answer = chat(self.router.ports.router, MODEL).await.unwrap();
            let id = answer.headers()["x-request-id"].to_str().unwrap();
            let record = json_at(self.router.ports.debug, &format!("/explain/{id}")).await;
            let lines = record["scores"].as_array().cloned().unwrap_or_default();
            lines.iter().map(|line| line["plugin"].as_str().unwrap()).eq(scorers.iter().copied())
        })
        .await;
    }

    /// What the router says of the document.
    async fn document(&self) -> Value {
        json_at(self.router.ports.debug, "/debug/kubernetes").await["router_document"].clone()
    }

    /// The last version was not taken over, and why is said wherever one may look.
    async fn rejects(&self, why: &str) {
        until(&format!("a version is refused: {why}"), async || {
            self.document().await["rejected"].as_str().is_some_and(|text| text.contains(why))
        })
        .await;
        assert_eq!(self.router.metric(REJECTED).await, Some(1.0));
        let log = self.router.log();
        assert!(log.contains("the new version is not taken over, "), "{log}");
        assert!(log.contains(why), "{why}: {log}");
    }

    /// So many versions were taken over, the last one among them.
    async fn accepts(&self, count: u64) {
        until(&format!("{count} versions are taken over"), async || {
            let document = self.document().await;
            document["rejected"].is_null() && document["versions_taken_over"] == count
        })
        .await;
        assert_eq!(self.router.metric(REJECTED).await, Some(0.0));
    }
}

async fn write(client: &Client, space: &str, document: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), space);
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP}, "data": {KEY: document}});
    maps.patch(MAP, &PatchParams::apply("reload").force(), &Patch::Apply(map)).await.unwrap();
}

/// Clients at work.
struct Load {
    stop: CancellationToken,
    answered: Arc<AtomicUsize>,
    clients: JoinSet<Vec<String>>,
}

impl Load {
    fn begin(port: u16) -> Self {
        let (stop, answered) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (stop, answered) = (stop.clone(), Arc::clone(&answered));
            clients.spawn(async move {
                let mut failed = Vec::new();
                while !stop.is_cancelled() {
                    match chat(port, MODEL).await {
                        Some(answer) if answer.status() == 200 => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        other => failed.push(format!("{other:?}")),
                    }
                }
                failed
            });
        }
        Self { stop, answered, clients }
    }

    /// How many were answered, and what the others got.
    async fn end(self) -> (usize, Vec<String>) {
        self.stop.cancel();
        let failed = self.clients.join_all().await.concat();
        (self.answered.load(Ordering::Relaxed), failed)
    }
}
