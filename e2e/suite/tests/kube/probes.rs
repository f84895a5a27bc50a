//! Whether the router takes traffic, as probes see it: not before it has seen everything once, and from then on whatever
//! becomes of the API server.

use kvasir_suite::cluster::{Cluster, Crds, PodDraft, apply, delete, install_crds, shared_data};
use kvasir_suite::echo::{Echo, loopback};
use serde_json::{Value, json};

use crate::process::{Ports, Process, chat, chat_status, get, json_at, until};

const MODEL: &str = "probed";

const OBJECTS: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: served}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: engine}}, workloadPort: {port: PORT}}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: served}
spec: {modelName: probed, rules: [{targetModels: [{modelServerName: served}]}]}
"#;

const PROVIDERS: &str = "externalmodelproviders.networking.serving.volcano.sh";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_missing_is_named_until_it_is_there() {
    let stage = Stage::set().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": PROVIDERS}});
    delete(&stage.cluster.client().await.unwrap(), "", &definition.to_string()).await.unwrap();
    let router = stage.router(&[]);
    let port = router.ports.router;
    let first_plan = "kubernetes: the first plan";
    let expected = json!([first_plan, format!("kubernetes: the first list of {PROVIDERS}")]);
    until("only one kind is waited for", async || json_at(port, "/readyz").await["pending"] == expected)
        .await;
    is_not_ready(port).await;
    let kinds = json_at(router.ports.debug, "/debug/kubernetes").await["kinds"].clone();
    let kind = kinds.as_array().unwrap().iter().find(|kind| kind["name"] == PROVIDERS).unwrap();
    let trouble = format!("the API server does not know {PROVIDERS}: install its CustomResourceDefinition");
    assert_eq!((&kind["listed"], &kind["trouble"]), (&json!(false), &json!(trouble)));
    assert_eq!(router.said(&trouble), 1);
    assert_eq!(router.metric("kvasir_kubernetes_synced").await, Some(0.0));

    install_crds(&stage.cluster.client().await.unwrap(), Crds::Ours).await.unwrap();
    until("it is ready", async || is_ready(port).await).await;
    assert_eq!(json_at(port, "/readyz").await, json!({"message": "router is ready"}));
    assert_eq!(chat_status(port, MODEL).await, 200);
    assert_eq!(router.metric("kvasir_kubernetes_synced").await, Some(1.0));
    assert_eq!(router.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_away_keeps_a_new_router_waiting_and_an_old_one_not() {
    let mut stage = Stage::set().await;
    let old = stage.router(&[]);
    until("the first router is ready", async || is_ready(old.ports.router).await).await;
    assert_eq!(chat_status(old.ports.router, MODEL).await, 200);

    stage.cluster.kill();
    // With a document that it cannot read either.
    let new = stage.router(&["--config-map=router"]);
    until("its ports are open", async || get(new.ports.router, "/healthz").await.is_some()).await;
    until("both see that nobody answers", async || {
        is_in_trouble(old.ports.debug).await && is_in_trouble(new.ports.debug).await
    })
    .await;
    is_not_ready(new.ports.router).await;
    assert!(new.said("cannot be read yet") == 1, "{}", new.log());
    assert!(is_ready(old.ports.router).await, "what was known once counts");
    assert_eq!(json_at(old.ports.router, "/readyz").await, json!({"message": "router is ready"}));
    assert_eq!(chat_status(old.ports.router, MODEL).await, 200);
    assert_eq!(old.metric("kvasir_kubernetes_watch_up{kind=\"pods\"}").await, Some(0.0));

    stage.cluster.restart().await.unwrap();
    until("the new router is ready", async || is_ready(new.ports.router).await).await;
    assert_eq!(chat_status(new.ports.router, MODEL).await, 200);
    until("the old one watches again", async || !is_in_trouble(old.ports.debug).await).await;
    assert!(is_ready(old.ports.router).await);
    for router in [old, new] {
        assert_eq!(router.stop().await, Some(0));
    }
}

/// Gateways are kinds like others, but for grants: see there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_are_waited_for_where_they_count() {
    if shared_data("crds").is_none() {
        return;
    }
    let stage = Stage::set().await;
    let flags = ["--enable-gateway-api=true", "--enable-gateway-api-inference-extension=true"];
    let router = stage.router(&flags);
    let port = router.ports.router;
    let kinds = [
        "gatewayclasses.gateway.networking.k8s.io",
        "gateways.gateway.networking.k8s.io",
        "httproutes.gateway.networking.k8s.io",
        "inferencepools.inference.networking.k8s.io",
    ];
    let mut expected = vec!["kubernetes: the first plan".to_owned()];
    expected.extend(kinds.map(|kind| format!("kubernetes: the first list of {kind}")));
    until("only Gateways are waited for", async || {
        json_at(port, "/readyz").await["pending"] == json!(expected)
    })
    .await;
    is_not_ready(port).await;
    install_crds(&stage.cluster.client().await.unwrap(), Crds::GatewayApi).await.unwrap();
    until("it is ready", async || is_ready(port).await).await;
    until("the Gateway takes requests in", async || chat_status(port, MODEL).await == 200).await;
    assert_eq!(router.stop().await, Some(0));
}

/// A cluster of its own, with a pod and a route to it.
struct Stage {
    cluster: Cluster,
    _engine: Echo,
}

impl Stage {
    async fn set() -> Self {
        let cluster = Cluster::start().await.unwrap();
        let client = cluster.client().await.unwrap();
        install_crds(&client, Crds::Ours).await.unwrap();
        let engine = Echo::start("engine", (loopback(), 0).into(), Vec::new(), None).await.unwrap();
        let objects = OBJECTS.replace("PORT", &engine.address.port().to_string());
        apply(&client, "default", &objects).await.unwrap();
        let pod = PodDraft::new("engine", &engine.address.ip().to_string()).label("app", "engine");
        pod.create(&client, "default").await.unwrap();
        Self { cluster, _engine: engine }
    }

    fn router(&self, flags: &[&str]) -> Process {
        let ports = Ports::free();
        let mut arguments = vec![
            "kvasir".to_owned(),
            "--kubernetes=on".to_owned(),
            format!("--listen=127.0.0.1:{}", ports.router),
            format!("--metrics-listen=127.0.0.1:{}", ports.metrics),
            format!("--admin-listen=127.0.0.1:{}", ports.debug),
            "--drain-settle=0".to_owned(),
        ];
        arguments.extend(flags.iter().copied().map(str::to_owned));
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        Process::start(ports, &arguments, &[("KUBECONFIG", kubeconfig)])
    }
}

async fn is_ready(port: u16) -> bool {
    get(port, "/readyz").await.is_some_and(|answer| answer.status() == 200)
}

/// Alive, not ready, and clients are asked to come again.
async fn is_not_ready(port: u16) {
    assert_eq!(get(port, "/healthz").await.unwrap().status(), 200);
    let answer = get(port, "/readyz").await.unwrap();
    assert_eq!(answer.status(), 503);
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(body["message"], "router is not ready");
    let answer = chat(port, MODEL).await.unwrap();
    assert_eq!(answer.status(), 503);
    let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    let body: Value = serde_json::from_slice(answer.body()).unwrap();
    assert!(body["error"]["message"].is_string(), "{body}");
}

async fn is_in_trouble(debug_port: u16) -> bool {
    let kinds = json_at(debug_port, "/debug/kubernetes").await["kinds"].clone();
    kinds.as_array().is_some_and(|kinds| kinds.iter().any(|kind| !kind["trouble"].is_null()))
}
