//! The chart's roles: a router that runs with exactly them does its work, nothing is refused, and nothing is granted that
//! it does not use.

mod roles;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

use kube::Client;
use kvasir_controllers::model_names;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::Settings;
use kvasir_suite::client::{post, send};
use kvasir_suite::cluster::{Call, Cluster, Crds, PodDraft, apply, find, install_crds, shared_data};
use kvasir_suite::router::Router;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::chart::container::{container, environment, settings};
use crate::chart::helm::{Release, chart, named, of_kind};
use roles::{judge, refused_to, roles};

/// Leases and certificates take their time.
const GUARD: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const MODEL: &str = "mock-model";
const RELEASE: &str = "kvasir";

/// One object of every kind that a router is told of.
const OBJECTS: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: served}
spec:
  model: mock-model
  inferenceEngine: vLLM
  workloadSelector: {matchLabels: {app: engine}}
  workloadPort: {port: PORT}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: served}
spec:
  modelName: mock-model
  rules: [{targetModels: [{modelServerName: served}]}]
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ExternalModelProvider
metadata: {name: elsewhere}
spec: {baseURL: "https://models.example"}
"#;

const GATEWAY_OBJECTS: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front}
spec:
  gatewayClassName: kthena-router
  listeners: [{name: http, protocol: HTTP, port: LISTENER}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pooled}
spec:
  parentRefs: [{name: front}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: pool}]}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: pool}
spec:
  selector: {matchLabels: {app: engine}}
  targetPorts: [{number: PORT}]
  endpointPickerRef: {name: unused, port: {number: 9002}}
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: grant}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}]
  to: [{group: inference.networking.k8s.io, kind: InferencePool}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_of_all_namespaces_is_granted_what_it_uses() {
    let mut stage = Stage::set(|release| {
        let document = chart().join("ci/kthena-names.yaml");
        release.values(&document).set("fullnameOverride=")
    })
    .await;
    stage.perform().await;
    // With an empty Secret there is a certificate to be made again, this time in its place.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": stage.certificate_secret()},
        "type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}});
    apply(&stage.client, &stage.space, &secret.to_string()).await.unwrap();
    stage.perform().await;
    stage.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_of_one_namespace_is_granted_what_it_uses() {
    let certificate = rcgen::generate_simple_self_signed(["kvasir-webhook.system.svc".to_owned()]).unwrap();
    let bundle = json!(k8s_openapi::ByteString(certificate.cert.pem().into_bytes()));
    let bundle = bundle.as_str().unwrap();
    let mut stage = Stage::set(|release| {
        release
            .set("router.watchNamespace=models")
            .set("global.certManagementMode=manual")
            .set(format!("global.webhook.caBundle={bundle}"))
    })
    .await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": stage.certificate_secret()},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate.cert.pem(), "tls.key": certificate.signing_key.serialize_pem()}});
    apply(&stage.client, &stage.space, &secret.to_string()).await.unwrap();
    stage.perform().await;
    stage.judge();
}

#[tokio::test]
async fn a_tokenizer_service_is_granted_what_it_uses() {
    let cluster = Cluster::start_audited().await.unwrap();
    let client = cluster.client().await.unwrap();
    install_crds(&client, Crds::Ours).await.unwrap();
    for name in ["models", "one", "all"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        apply(&client, "", &namespace.to_string()).await.unwrap();
    }
    apply(&client, "models", OBJECTS.split("---").next().unwrap().replace("PORT", "8000").as_str())
        .await
        .unwrap();
    for (space, watched) in [("one", "models"), ("all", "")] {
        let release = Release::new(space, space)
            .values(&chart().join("ci/tokenizer-standalone.yaml"))
            .set(format!("tokenizerService.watchNamespace={watched}"));
        apply(&client, space, &release.template().unwrap()).await.unwrap();
        let objects = release.objects();
        let name = format!("{space}-kvasir-tokenizer");
        let account = cluster.account(space, &name, &[]).await.unwrap();
        let roles = roles(&objects);
        for role in &roles {
            account.is_granted(role.namespace.unwrap_or("default"), &role.rules).await.unwrap();
        }
        let container = container(named(&objects, "Deployment", &name).unwrap(), "tokenizer");
        let watched = environment(container)["WATCH_NAMESPACE"].clone().filter(|name| !name.is_empty());
        let (tell, mut told) = tokio::sync::watch::channel(BTreeSet::new());
        let stop = CancellationToken::new();
        let on_change = move |names| drop(tell.send_replace(names));
        let client = account.client().await.unwrap();
        tokio::spawn(model_names::follow(client, watched, on_change, stop.clone()));
        let heard = told.wait_for(|names| names.contains(MODEL));
        tokio::time::timeout(GUARD, heard).await.unwrap().unwrap();
        let asks_to_watch = |call: &Call| call.user == user(space, &name) && call.verb == "watch";
        while !cluster.calls().unwrap().iter().any(asks_to_watch) {
            sleep(POLL).await;
        }
        stop.cancel();
        judge(&roles, &user(space, &name), &cluster.calls().unwrap());
    }
}

/// A cluster with a release in it, whose router runs here.
struct Stage {
    cluster: Cluster,
    client: Client,
    space: String,
    objects: Vec<Value>,
    /// What the router writes statuses of.
    told: Vec<Value>,
    settings: Settings,
    listener: u16,
    _engine: Engine,
}

impl Stage {
    async fn set(values: impl FnOnce(Release) -> Release) -> Self {
        let cluster = Cluster::start_audited().await.unwrap();
        let client = cluster.client().await.unwrap();
        install_crds(&client, Crds::Ours).await.unwrap();
        let has_gateways = shared_data("crds").is_some();
        for name in ["models", "system"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            apply(&client, "", &namespace.to_string()).await.unwrap();
        }
        let space = "system".to_owned();
        let engine =
            Engine::start(EngineConfig { model: MODEL.to_owned(), ..EngineConfig::default() }).await.unwrap();
        let [listener, main, metrics, admin, webhook] = free_ports();
        let mut text = OBJECTS.to_owned();
        let mut release = Release::new(RELEASE, &space)
            .set(format!("router.port={main},router.metrics.port={metrics},router.debugPort={admin}"))
            .set(format!("router.webhook.port={webhook}"));
        if has_gateways {
            install_crds(&client, Crds::GatewayApi).await.unwrap();
            text = format!("{text}---{GATEWAY_OBJECTS}");
            release = release.set("router.gatewayAPI.enabled=true,router.gatewayAPI.inferenceExtension=true");
        }
        let release = values(release);
        let text = text.replace("PORT", &engine.address().port().to_string());
        let text = text.replace("LISTENER", &listener.to_string());
        // First: nobody answers for the webhook where this API server looks for its Service.
        apply(&client, "models", &text).await.unwrap();
        let pod = PodDraft::new("engine", "127.0.0.1").label("app", "engine");
        pod.create(&client, "models").await.unwrap();
        let objects = release.objects();
        apply(&client, &space, &release.template().unwrap()).await.unwrap();
        let account = cluster.account(&space, RELEASE, &[]).await.unwrap();
        for role in roles(&objects) {
            account.is_granted(role.namespace.unwrap_or("default"), &role.rules).await.unwrap();
        }
        let deployment = named(&objects, "Deployment", RELEASE).unwrap();
        let mut settings = settings(&objects, deployment, &space, Some(account.kubeconfig()));
        settings.access_log.enabled = false;
        settings.drain_settle = Duration::ZERO;
        let told = kvasir_suite::cluster::documents(&text).unwrap();
        let told = told.into_iter().filter(|object| object["kind"] != "ReferenceGrant").collect();
        let mut stage = Self { cluster, client, space, objects, told, settings, listener, _engine: engine };
        if has_gateways {
            stage.told.push(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": {"name": "kthena-router"}}));
        } else {
            stage.listener = main;
        }
        stage
    }

    /// The router does its work, and ends.
    async fn perform(&mut self) {
        let router = Router::start(self.settings.clone()).await.unwrap();
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}).to_string();
        let to = SocketAddr::from(([127, 0, 0, 1], self.listener));
        self.until("a request is answered", async || {
            let answer = send(to, post("/v1/chat/completions", body.clone()).unwrap()).await;
            answer.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        for object in &self.told {
            let what = format!("a status of {} {}", object["kind"], object["metadata"]["name"]);
            self.until(&what, async || {
                let found = find(&self.client, "models", object).await.unwrap();
                let status = found.map(|found| found.data["status"].clone()).unwrap_or_default();
                // The definition of a GatewayClass comes with a condition that nobody wrote.
                let said = status.to_string();
                (status["conditions"].is_array() || status["parents"].is_array()) && !said.contains("Waiting")
            })
            .await;
        }
        let name = &self.settings.kubernetes.as_ref().unwrap().lease_name;
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        self.until("the lease is held", async || {
            let lease = find(&self.client, &self.space, &lease).await.unwrap();
            lease.is_some_and(|lease| {
                lease.data["spec"]["holderIdentity"].as_str().is_some_and(|name| !name.is_empty())
            })
        })
        .await;
        self.default_gateway_is_made().await;
        self.certificate_is_trusted().await;
        router.stop().await.unwrap();
    }

    async fn default_gateway_is_made(&self) {
        let kubernetes = self.settings.kubernetes.as_ref().unwrap();
        let is_watched = kubernetes.watch_namespace.as_ref().is_none_or(|namespace| *namespace == self.space);
        if is_watched && self.told.iter().any(|object| object["kind"] == "Gateway") {
            let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "default"}});
            self.until("the default Gateway is made", async || {
                find(&self.client, &self.space, &gateway).await.unwrap().is_some()
            })
            .await;
        }
    }

    /// The name of the Secret with the webhook's certificate.
    fn certificate_secret(&self) -> &str {
        &self
            .settings
            .kubernetes
            .as_ref()
            .and_then(|kubernetes| kubernetes.webhook.as_ref())
            .unwrap()
            .secret_name
    }

    /// The Secret is full, and every hook trusts somebody.
    async fn certificate_is_trusted(&self) {
        let name = self.certificate_secret();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        self.until("the webhook has a certificate", async || {
            let secret = find(&self.client, &self.space, &secret).await.unwrap();
            secret.is_some_and(|secret| {
                secret.data["data"]["tls.crt"].as_str().is_some_and(|text| !text.is_empty())
            })
        })
        .await;
        let configuration = of_kind(&self.objects, "ValidatingWebhookConfiguration").next().unwrap();
        self.until("every hook trusts its authority", async || {
            let found = find(&self.client, "", configuration).await.unwrap().unwrap();
            let hooks = found.data["webhooks"].as_array().unwrap();
            hooks.iter().all(|hook| hook["clientConfig"]["caBundle"].is_string())
        })
        .await;
    }

    /// Nothing was refused, and every rule was needed.
    fn judge(&self) {
        judge(&roles(&self.objects), &user(&self.space, RELEASE), &self.cluster.calls().unwrap());
    }

    /// Waits. What was refused meanwhile may say why it waits for ever.
    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + GUARD;
        while !holds().await {
            if Instant::now() > deadline {
                let calls = self.cluster.calls().unwrap();
                let user = user(&self.space, RELEASE);
                panic!("never happened: {what}; refused: {:#?}", refused_to(&user, calls.iter()));
            }
            sleep(POLL).await;
        }
    }
}

fn user(space: &str, account: &str) -> String {
    format!("system:serviceaccount:{space}:{account}")
}

fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners: [TcpListener; COUNT] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
