//! kthena's own manifests, applied to our definitions and to kthena's, and routed as its documents say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kvasir_suite::client::{post, send};
use kvasir_suite::cluster::{Cluster, Crds, PodDraft, apply, documents, install_crds, shared_data};
use kvasir_suite::echo::{Echo, loopback};
use kvasir_suite::router::Router;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::crds::KINDS;
use crate::routers::{free_port, watching};

/// Where kthena's router lives in its manifests.
const HOME: &str = "kthena-system";
/// The port of its example of a Gateway.
const GATEWAY_PORT: u16 = 8081;

const SEEN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(25);

/// A cluster with the manifests in it, and a pod for each ModelServer.
struct Fleet {
    cluster: Cluster,
    client: Client,
    /// Labels by the name of the pod; the namespace is that of its ModelServer.
    pods: BTreeMap<String, BTreeMap<String, String>>,
    servers: BTreeMap<String, Value>,
    engines: Vec<Echo>,
}

/// What becomes of requests for a model.
enum Goes {
    /// To the pods of this ModelServer, by this name.
    To(&'static str, &'static str),
    /// To the decode pod of this ModelServer, by this name.
    Paired(&'static str, &'static str),
    /// The router says that it cannot.
    Refused,
    /// Nobody knows it.
    Unknown,
}

type Asked = (&'static str, &'static [(&'static str, &'static str)], Goes);

/// What `examples/*.yaml` mean without Gateways.
fn examples() -> Vec<Asked> {
    const SMALL: &str = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B";
    const LARGE: &str = "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B";
    let mut asked: Vec<Asked> = vec![
        ("Llama-3.1", &[], Goes::To("llama", "meta-llama/Llama-3.1-8B-Instruct")),
        ("deepseek-simple", &[], Goes::To("deepseek-r1-1-5b", SMALL)),
        ("deepseek-multi-models", &[], Goes::To("deepseek-r1-1-5b", SMALL)),
        ("deepseek-multi-models", &[("user-type", "premium")], Goes::To("deepseek-r1-7b", LARGE)),
        ("deepseek-multi-models", &[("User-Type", "premium")], Goes::To("deepseek-r1-7b", LARGE)),
        ("deepseek-multi-models", &[("user-type", "Premium")], Goes::To("deepseek-r1-1-5b", SMALL)),
        ("lora-A", &[], Goes::To("deepseek-r1-7b", "lora-A")),
        ("lora-B", &[], Goes::To("deepseek-r1-7b", "lora-B")),
        ("deepseek-r1-with-rate-limit", &[], Goes::Refused),
        ("deepseek-r1-with-global-rate-limit", &[], Goes::Refused),
        // It has parentRefs, and there are no Gateways.
        ("deepseek-binding-gateway", &[], Goes::Unknown),
        // No route names the engine's own name.
        (SMALL, &[], Goes::Unknown),
    ];
    asked.extend(disaggregated());
    asked
}

/// The models whose ModelServers have prefill and decode pods.
fn disaggregated() -> Vec<Asked> {
    const SMALL: &str = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B";
    [
        ("deepseek-r1-1-5b-pd-disaggregation", "deepseek-r1-1-5b-pd-disaggregation", SMALL),
        ("deepseek-ai/DeepSeekV2", "deepseek-v2", "deepseek-ai/DeepSeekV2"),
        ("deepseek-r1-1-5b-pd-multinode", "deepseek-r1-1-5b-pd-multinode", SMALL),
        ("deepseek-r1-1-5b-sglang-pd-disaggregation", "deepseek-r1-1-5b-sglang-pd-disaggregation", SMALL),
        ("deepseek_v4", "deepseekv4-pd", "deepseek_v4"),
    ]
    .map(|(model, server, served)| (model, [].as_slice(), Goes::Paired(server, served)))
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn kthenas_manifests_route_by_our_definitions() {
    all_of(Crds::Ours).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kthenas_manifests_route_by_kthenas_definitions() {
    all_of(Crds::Kthenas).await;
}

async fn all_of(definitions: Crds) {
    let Some(folder) = shared_data("examples") else { return };
    let mut fleet = Fleet::new(definitions).await;
    // Some of `e2e` are other versions of what the examples have; these come at the end.
    for part in [".", "other", "e2e/new"] {
        fleet.apply_all(&folder, part).await;
    }
    fleet.make_pods().await;
    let mut wrong = fleet.without_gateways().await;
    wrong.extend(fleet.with_gateways().await);
    if definitions == Crds::Ours {
        wrong.extend(fleet.statuses().await);
    }
    fleet.apply_all(&folder, "e2e").await;
    wrong.extend(fleet.canary_of_one_name().await);
    assert!(wrong.is_empty(), "{definitions:?}:\n{}", wrong.join("\n"));
}

impl Fleet {
    async fn new(definitions: Crds) -> Self {
        let cluster = Cluster::start().await.unwrap();
        let client = cluster.client().await.unwrap();
        install_crds(&client, definitions).await.unwrap();
        install_crds(&client, Crds::GatewayApi).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in ["dev", HOME] {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let (pods, servers, engines) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { cluster, client, pods, servers, engines }
    }

    /// Applies the objects of a folder that are of kinds we know. `e2e/new` are those of `e2e` whose names are new.
    async fn apply_all(&mut self, folder: &Path, part: &str) {
        let (folder, only_new) = (folder.join(part.trim_end_matches("/new")), part.ends_with("/new"));
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .collect();
        files.sort();
        for file in files {
            for document in documents(&std::fs::read_to_string(&file).unwrap()).unwrap() {
                let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap().to_owned();
                let (kind, name) = (text("/kind"), text("/metadata/name"));
                let known = self.servers.contains_key(&name) || name == "deepseek-rate-limit";
                if !KINDS.contains(&kind.as_str()) || (only_new && known) {
                    continue;
                }
                apply(&self.client, "default", &document.to_string()).await.unwrap();
                if kind == "ModelServer" {
                    self.servers.insert(name, document);
                }
            }
        }
    }

    /// A pod for each ModelServer, with exactly the labels that it selects; two, with their roles, where it has roles.
    async fn make_pods(&mut self) {
        for (name, server) in self.servers.clone() {
            let spec = &server["spec"];
            let groups = &spec["workloadSelector"]["pdGroup"];
            let base = labels(&spec["workloadSelector"]["matchLabels"]);
            let roles = ["prefillLabels", "decodeLabels"].map(|role| labels(&groups[role]));
            let drafts: Vec<(String, BTreeMap<String, String>)> = if groups.is_null() {
                vec![(name.clone(), base)]
            } else {
                let group = [(groups["groupKey"].as_str().unwrap().to_owned(), "0".to_owned())];
                let with = |role: &BTreeMap<String, String>| {
                    base.clone().into_iter().chain(role.clone()).chain(group.clone()).collect()
                };
                vec![(format!("{name}-p"), with(&roles[0])), (format!("{name}-d"), with(&roles[1]))]
            };
            let port = u16::try_from(spec["workloadPort"]["port"].as_u64().unwrap()).unwrap();
            for (pod, labels) in drafts {
                let address = SocketAddr::from((loopback(), port));
                self.engines.push(Echo::start(&pod, address, Vec::new(), None).await.unwrap());
                let mut draft = PodDraft::new(&pod, &address.ip().to_string()).port(port);
                for (name, value) in &labels {
                    draft = draft.label(name, value);
                }
                let namespace = server["metadata"]["namespace"].as_str().unwrap_or("default");
                draft.create(&self.client, namespace).await.unwrap();
                self.pods.insert(pod, labels);
            }
        }
        assert!(self.pods.len() > 10, "{:?}", self.pods.keys());
    }

    async fn router(&self, gateways: bool) -> Router {
        let mut settings = watching(self.cluster.kubeconfig(), HOME);
        settings.listen.set_port(free_port());
        let kubernetes = settings.kubernetes.as_mut().unwrap();
        kubernetes.watch_namespace = None;
        kubernetes.gateway_api = gateways;
        kubernetes.inference_extension = gateways;
        Router::start(settings).await.unwrap()
    }

    /// The pods that a ModelServer selects, by their labels.
    fn selected(&self, server: &str) -> BTreeSet<&str> {
        let wanted = labels(&self.servers[server]["spec"]["workloadSelector"]["matchLabels"]);
        let has_all = |labels: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
        };
        self.pods.iter().filter(|(_, labels)| has_all(labels)).map(|(pod, _)| pod.as_str()).collect()
    }

    async fn without_gateways(&self) -> Vec<String> {
        let router = self.router(false).await;
        let mut wrong = Vec::new();
        for (model, headers, goes) in examples() {
            wrong.extend(self.holds(router.inference, model, headers, &goes).await);
        }
        let split = [("deepseek-r1-1-5b-v1", 70.0), ("deepseek-r1-1-5b-v2", 30.0)];
        wrong.extend(shares(router.inference, "deepseek-subset", &split).await);
        router.stop().await.unwrap();
        wrong
    }

    /// `Gateway.yaml`, `ModelRoute-binding-gateway.yaml`, `HTTPRoute.yaml`, `InferencePool.yaml`.
    async fn with_gateways(&self) -> Vec<String> {
        let router = self.router(true).await;
        let mut wrong = Vec::new();
        let model = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B";
        let pool = |name: &'static str| Goes::To("deepseek-r1-1-5b", name);
        for (model, goes) in [
            ("deepseek-binding-gateway", Goes::To("deepseek-r1-1-5b", model)),
            ("unregistered", pool("unregistered")),
            // Without parentRefs it serves the Gateways of `default`, where there are none; the HTTPRoute takes it.
            ("deepseek-simple", pool("deepseek-simple")),
            ("lora-A", pool("lora-A")),
        ] {
            wrong.extend(self.holds(router.inference, model, &[], &goes).await);
        }
        let at_gateway = SocketAddr::from(([127, 0, 0, 1], GATEWAY_PORT));
        for model in ["deepseek-binding-gateway", "unregistered"] {
            wrong.extend(self.holds(at_gateway, model, &[], &Goes::Unknown).await);
        }
        router.stop().await.unwrap();
        wrong
    }

    /// The variants of the end-to-end tests: both parts of the canary serve one name.
    async fn canary_of_one_name(&self) -> Vec<String> {
        let router = self.router(false).await;
        let split = [("deepseek-r1-1-5b-v1", 70.0), ("deepseek-r1-1-5b-v2", 30.0)];
        let mut wrong = Vec::from_iter(shares(router.inference, "deepseek-subset", &split).await);
        let told = ask(router.inference, "deepseek-subset", &[]).await.1;
        if told["model"] != "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B" {
            wrong.push(format!("the canary of one name is asked for {}", told["model"]));
        }
        let refused = Goes::Refused;
        wrong.extend(self.holds(router.inference, "deepseek-r1-with-rate-limit", &[], &refused).await);
        router.stop().await.unwrap();
        wrong
    }

    /// Whether requests for a model come to go where they should.
    async fn holds(
        &self,
        to: SocketAddr,
        model: &str,
        headers: &[(&str, &str)],
        goes: &Goes,
    ) -> Option<String> {
        let deadline = Instant::now() + SEEN;
        loop {
            let (status, told) = ask(to, model, headers).await;
            let code = told.pointer("/error/code").and_then(Value::as_str);
            let fits = match goes {
                Goes::To(server, upstream) => {
                    let pod = told["pod"].as_str().unwrap_or_default();
                    status == 200 && self.selected(server).contains(pod) && told["model"] == *upstream
                }
                Goes::Paired(server, upstream) => {
                    let pod = told["pod"].as_str().unwrap_or_default();
                    status == 200 && pod == format!("{server}-d") && told["model"] == *upstream
                }
                Goes::Refused => (status, code) == (503, Some("feature_not_available")),
                Goes::Unknown => (status, code) == (404, Some("model_not_found")),
            };
            if fits {
                return None;
            }
            if Instant::now() > deadline {
                return Some(format!("{model} {headers:?} at port {}: found {status} {told}", to.port()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Every ModelServer says that it is in use.
    async fn statuses(&self) -> Vec<String> {
        let router = self.router(false).await;
        let mut wrong = Vec::new();
        for (name, server) in &self.servers {
            let namespace = server["metadata"]["namespace"].as_str().unwrap_or("default");
            let api: Api<kvasir_api::ModelServer> = Api::namespaced(self.client.clone(), namespace);
            let deadline = Instant::now() + SEEN;
            loop {
                let status = api.get(name).await.unwrap().status.unwrap_or_default();
                let accepted = status.conditions.iter().find(|condition| condition.type_ == "Accepted");
                if accepted.is_some_and(|condition| condition.reason == "Accepted") {
                    break;
                }
                if Instant::now() > deadline {
                    wrong.push(format!("ModelServer {name}: expected Accepted, found {status:?}"));
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
        }
        router.stop().await.unwrap();
        wrong
    }
}

fn labels(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
}

/// The status and the body; no connection is status 0.
async fn ask(to: SocketAddr, model: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    let mut request = post("/v1/chat/completions", body.to_string()).unwrap();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    match send(to, request).await {
        Ok(answer) => (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap_or_default()),
        Err(error) => (0, json!({"error": error.to_string()})),
    }
}

/// Whether the pods get their percentages of 300 requests, give or take ten.
async fn shares(to: SocketAddr, model: &str, wanted: &[(&str, f64)]) -> Option<String> {
    const REQUESTS: usize = 300;
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..REQUESTS {
        let (status, told) = ask(to, model, &[]).await;
        let pod = told["pod"].as_str().map_or_else(|| status.to_string(), str::to_owned);
        *counted.entry(pod).or_default() += 1;
    }
    let percent = |pod: &str| counted.get(pod).copied().unwrap_or(0) as f64 * 100.0 / REQUESTS as f64;
    let off = wanted.iter().any(|(pod, share)| (percent(pod) - share).abs() > 10.0);
    (off || counted.len() != wanted.len()).then(|| format!("{model}: {wanted:?} became {counted:?}"))
}
