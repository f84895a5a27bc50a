//! The chart's roles: a router that runs with exactly them does its work, nothing is refused, and nothing is granted that
//! it does not use.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::Settings;
use kvasir_suite::client::{post, send};
use kvasir_suite::cluster::{Account, Call, Cluster, Crds, PodDraft, apply, find, install_crds, shared_data};
use kvasir_suite::router::Router;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::chart::container::settings;
use crate::chart::helm::{Release, chart, named, of_kind};

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
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kthena-router-webhook-certs"},
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
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kthena-router-webhook-certs"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate.cert.pem(), "tls.key": certificate.signing_key.serialize_pem()}});
    apply(&stage.client, &stage.space, &secret.to_string()).await.unwrap();
    stage.perform().await;
    stage.judge();
}

/// A cluster with a release in it, whose router runs here.
struct Stage {
    cluster: Cluster,
    client: Client,
    space: String,
    objects: Vec<Value>,
    /// What the router writes statuses of.
    told: Vec<Value>,
    account: Account,
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
        let mut stage =
            Self { cluster, client, space, objects, told, account, settings, listener, _engine: engine };
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
        until("a request is answered", async || {
            let answer = send(to, post("/v1/chat/completions", body.clone()).unwrap()).await;
            answer.is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        for object in &self.told {
            let what = format!("a status of {} {}", object["kind"], object["metadata"]["name"]);
            until(&what, async || {
                let found = find(&self.client, "models", object).await.unwrap();
                let status = found.map(|found| found.data["status"].clone()).unwrap_or_default();
                // The definition of a GatewayClass comes with a condition that nobody wrote.
                let said = status.to_string();
                (status["conditions"].is_array() || status["parents"].is_array()) && !said.contains("Waiting")
            })
            .await;
        }
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kvasir-router"}});
        until("the lease is held", async || {
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
        if self.told.iter().any(|object| object["kind"] == "Gateway") {
            let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "default"}});
            until("the default Gateway is made", async || {
                find(&self.client, &self.space, &gateway).await.unwrap().is_some()
            })
            .await;
        }
    }

    /// The Secret is full, and every hook trusts somebody.
    async fn certificate_is_trusted(&self) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kthena-router-webhook-certs"}});
        until("the webhook has a certificate", async || {
            let secret = find(&self.client, &self.space, &secret).await.unwrap();
            secret.is_some_and(|secret| {
                secret.data["data"]["tls.crt"].as_str().is_some_and(|text| !text.is_empty())
            })
        })
        .await;
        let configuration = of_kind(&self.objects, "ValidatingWebhookConfiguration").next().unwrap();
        until("every hook trusts its authority", async || {
            let found = find(&self.client, "", configuration).await.unwrap().unwrap();
            let hooks = found.data["webhooks"].as_array().unwrap();
            hooks.iter().all(|hook| hook["clientConfig"]["caBundle"].is_string())
        })
        .await;
    }

    /// Nothing was refused, and every rule was needed.
    fn judge(&self) {
        let user = format!("system:serviceaccount:{}:{RELEASE}", self.space);
        let calls = self.cluster.calls().unwrap();
        let calls: Vec<&Call> = calls.iter().filter(|call| call.user == user).collect();
        assert!(calls.len() > 20, "{calls:#?}");
        let refused: Vec<_> = calls.iter().filter(|call| call.is_refused).collect();
        assert!(refused.is_empty(), "refused to {}: {refused:#?}", self.account.kubeconfig().display());
        let mut unused = Vec::new();
        for role in roles(&self.objects) {
            for grant in role.grants() {
                if !calls.iter().any(|call| grant.is_used_by(call)) {
                    unused.push(format!("{}: {grant:?}", role.name));
                }
            }
        }
        assert!(unused.is_empty(), "granted and not used:\n{}", unused.join("\n"));
    }
}

/// A role that is rendered.
struct Role<'a> {
    name: &'a str,
    /// Its own; `None` for a ClusterRole.
    namespace: Option<&'a str>,
    rules: Vec<PolicyRule>,
}

/// The smallest thing that a role can say.
#[derive(Debug)]
struct Allowed {
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// `None`: whatever the object's name.
    name: Option<String>,
}

impl Allowed {
    fn is_used_by(&self, call: &Call) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == call.namespace)
            && self.group == call.group
            && self.resource == call.resource
            && self.verb == call.verb
            && self.name.as_ref().is_none_or(|name| *name == call.name)
    }
}

impl Role<'_> {
    fn grants(&self) -> Vec<Allowed> {
        let mut grants = Vec::new();
        for rule in &self.rules {
            let names = rule.resource_names.iter().flatten().cloned().map(Some);
            let mut names: Vec<_> = names.collect();
            if names.is_empty() {
                names.push(None);
            }
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        grants.extend(names.iter().map(|name| Allowed {
                            namespace: self.namespace.map(str::to_owned),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
        grants
    }
}

/// The roles of the router, each of which is bound where it counts.
fn roles(objects: &[Value]) -> Vec<Role<'_>> {
    let bindings = objects.iter().filter(|object| object["roleRef"].is_object());
    let bound: BTreeMap<&str, &str> = bindings
        .map(|binding| (binding["roleRef"]["name"].as_str().unwrap(), binding["kind"].as_str().unwrap()))
        .collect();
    let roles = objects.iter().filter(|object| {
        object["rules"].is_array() && object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"))
    });
    let roles: Vec<Role<'_>> = roles
        .map(|role| {
            let (name, namespace) =
                (role["metadata"]["name"].as_str().unwrap(), role["metadata"]["namespace"].as_str());
            let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
            let wide = bound[name] == "ClusterRoleBinding";
            assert_eq!(wide, namespace.is_none(), "{name} is bound for more or less than it is");
            let words = rules.iter().flat_map(|rule| {
                rule.verbs
                    .iter()
                    .chain(rule.resources.iter().flatten())
                    .chain(rule.api_groups.iter().flatten())
            });
            assert!(words.clone().all(|word| !word.contains('*')), "{name} grants whatever there is");
            Role { name, namespace, rules }
        })
        .collect();
    assert!(roles.len() >= 2, "{}", roles.len());
    roles
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + GUARD;
    while !holds().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(POLL).await;
    }
}

fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners: [TcpListener; COUNT] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
