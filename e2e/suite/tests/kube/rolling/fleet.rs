//! Pods with mock engines, a router over them, and a load that counts every request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::Api;
use kvasir_api::ModelRoute;
use kvasir_core::EndpointId;
use kvasir_mock_engine::{Engine, EngineConfig, EventsConfig, EventsEndpoint};
use kvasir_probe::{Amount, LoadConfig, LoadMode, LoadReport, Progress, Workload, run_load_watched};
use kvasir_suite::client::{post, send};
use kvasir_suite::cluster::{Cluster, PodDraft, apply, delete_pod};
use kvasir_suite::echo::loopback;
use kvasir_suite::router::Router;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::routers::watching;

const MODEL: &str = "org/model";
const PORT: u16 = 8000;
/// A name that clients get with the change.
const LATER: &str = "later";

/// Clients of a kind.
const CLIENTS: usize = 6;

/// Decisions that are remembered: all of a test, so that one that failed can be looked at.
const DECISIONS: usize = 200_000;

/// Ten times and more what any wait should take on a busy machine.
const GUARD: Duration = Duration::from_secs(30);

const SERVER: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelServer
metadata: {name: server}
spec:
  model: org/model
  inferenceEngine: vLLM
  workloadSelector: {matchLabels: {app: engine}}
  workloadPort: {port: 8000}
---
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: route}
spec: {modelName: org/model, rules: [{targetModels: [{modelServerName: server}]}]}
"#;

const CHANGED: &str = r#"
apiVersion: networking.serving.volcano.sh/v1alpha1
kind: ModelRoute
metadata: {name: route}
spec: {modelName: org/model, loraAdapters: [later], rules: [{targetModels: [{modelServerName: server}]}]}
"#;

pub struct Fleet {
    pub client: Client,
    pub space: String,
    pub router: Router,
    pub engines: BTreeMap<String, Engine>,
}

impl Fleet {
    /// `pod-0` and so on, ready, and a router that has seen them.
    pub async fn start(cluster: &Cluster, kubeconfig: &Path, pods: usize) -> Self {
        let client = cluster.client().await.unwrap();
        let space = cluster.namespace("rolling").await.unwrap();
        apply(&client, &space, SERVER).await.unwrap();
        let mut settings = watching(kubeconfig, &space);
        settings.decision_ring = DECISIONS;
        let router = Router::start(settings).await.unwrap();
        let mut fleet = Self { client, space, router, engines: BTreeMap::new() };
        for number in 0..pods {
            fleet.add(&format!("pod-{number}"), true).await;
        }
        until("the router knows the pods", || fleet.engines.keys().all(|pod| fleet.is_ready(pod))).await;
        fleet
    }

    /// A pod with an engine that has an adapter, publishes its events, and takes about 20 ms for an answer.
    pub async fn add(&mut self, name: &str, is_ready: bool) {
        let address = SocketAddr::from((loopback(), PORT));
        let events = EventsEndpoint::Bind(SocketAddr::new(address.ip(), 0));
        let config = EngineConfig {
            listen: address,
            model: MODEL.to_owned(),
            adapters: vec![LATER.to_owned()],
            decode_us_per_token: 2_000.0,
            answer_tokens: 8,
            events: Some(EventsConfig { endpoint: events, ..EventsConfig::default() }),
            ..EngineConfig::default()
        };
        self.engines.insert(name.to_owned(), Engine::start(config).await.unwrap());
        let draft = PodDraft::new(name, &address.ip().to_string()).label("app", "engine").ready(is_ready);
        draft.create(&self.client, &self.space).await.unwrap();
    }

    /// The engine of a pod that goes its own way from here.
    pub fn take(&mut self, name: &str) -> Engine {
        self.engines.remove(name).unwrap()
    }

    /// A pod goes, another comes, and the route gets another name. The engine of the pod that went lives on until it is
    /// dropped.
    pub async fn change(&mut self) -> Engine {
        delete_pod(&self.client, &self.space, "pod-0", 0).await.unwrap();
        self.add("late", true).await;
        apply(&self.client, &self.space, CHANGED).await.unwrap();
        self.take("pod-0")
    }

    /// Whether the router routes by the change, as far as it tells.
    pub fn knows_the_changes(&self) -> bool {
        let names = self.router.gateway.state.models();
        self.is_ready("late") && !self.is_ready("pod-0") && names.iter().any(|name| name.id == LATER)
    }

    /// Waits until the router routes by the change.
    pub async fn until_changed(&self, guard: Duration) {
        let deadline = Instant::now() + guard;
        until_by("the router knows the changes", deadline, || self.knows_the_changes()).await;
        until_by("the new pod serves", deadline, || asked(&self.engines["late"]) > 0).await;
        let body = format!(r#"{{"model":"{LATER}","messages":[{{"role":"user","content":"hello"}}]}}"#);
        let answer = send(self.router.inference, post("/v1/chat/completions", body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200, "{answer:?}");
    }

    /// Waits until the changed route says that it is in use.
    pub async fn until_said(&self, guard: Duration) {
        let deadline = Instant::now() + guard;
        let routes: Api<ModelRoute> = Api::namespaced(self.client.clone(), &self.space);
        loop {
            let route = routes.get("route").await.unwrap();
            let generation = route.metadata.generation;
            let said = route.status.unwrap_or_default();
            if said.conditions.iter().any(|condition| condition.observed_generation == generation) {
                return;
            }
            assert!(Instant::now() < deadline, "the status was never written: {said:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the load reaches every pod.
    pub async fn until_all_serve(&self) {
        until("every pod serves", || self.engines.values().all(|engine| asked(engine) > 0)).await;
    }

    /// Whether the router says that it cannot watch pods.
    pub fn is_cut_off(&self) -> bool {
        self.router.metric("kvasir_kubernetes_watch_up{kind=\"pods\"}") == Some(0.0)
    }

    /// The attempts of requests whose last attempt gave no answer, for a report.
    pub fn failures(&self) -> String {
        let records = self.router.gateway.ring.latest(DECISIONS);
        let failed = records
            .iter()
            .filter(|record| record.attempts.last().is_some_and(|attempt| attempt.status != Some(200)));
        let told = failed.take(5).map(|record| {
            let candidates: Vec<String> =
                record.candidates.iter().map(|candidate| candidate.endpoint.to_string()).collect();
            format!("\n{:?} of the candidates {candidates:?}", record.attempts)
        });
        told.collect()
    }

    /// Whether an engine of ours is one that the router may ask.
    pub fn serves(&self, engine: &Engine) -> bool {
        let pod = self.engines.iter().find(|(_, one)| one.address() == engine.address());
        pod.is_some_and(|(name, _)| self.is_ready(name))
    }

    fn is_ready(&self, pod: &str) -> bool {
        self.router.gateway.state.is_ready(&EndpointId::new(self.space.as_str(), pod, PORT, 0))
    }
}

/// How many requests an engine remembers: all, up to some hundreds.
pub fn asked(engine: &Engine) -> usize {
    engine.requests().iter().filter(|request| request.path == "/v1/chat/completions").count()
}

/// What a load cost its clients.
pub struct Cost {
    pub requests: u64,
    pub lost: u64,
    pub errors: String,
    pub median_ms: f64,
    pub longest_ms: f64,
}

/// The probe, at work.
pub struct Load {
    stop: CancellationToken,
    running: Vec<JoinHandle<LoadReport>>,
}

impl Load {
    /// Clients that wait for their answers: as many for each that is said to stream or not.
    pub fn start(router: &Router, streams: &[bool]) -> Self {
        let stop = CancellationToken::new();
        let url = format!("http://{}", router.inference);
        let running = streams.iter().zip(0..).map(|(stream, seed)| {
            let mut config = LoadConfig::new(&url, MODEL, Workload::Short);
            config.target.stream = *stream;
            config.target.max_tokens = 8;
            config.target.timeout = GUARD;
            config.mode = LoadMode::Closed { concurrency: CLIENTS };
            config.amount = Amount::Duration(Duration::from_secs(600));
            config.seed = seed;
            let stop = stop.clone();
            tokio::spawn(async move {
                run_load_watched(config, stop, Arc::new(Progress::default())).await.unwrap()
            })
        });
        let running = running.collect();
        Self { stop, running }
    }

    /// Ends the clients.
    pub async fn end(self) -> Cost {
        self.stop.cancel();
        let mut cost = Cost { requests: 0, lost: 0, errors: String::new(), median_ms: 0.0, longest_ms: 0.0 };
        for running in self.running {
            let report = running.await.unwrap();
            cost.requests += report.requests;
            cost.lost += report.failed;
            if report.failed > 0 {
                cost.errors.push_str(&format!("{:?} {:?} ", report.errors, report.error_examples));
            }
            if let Some(took) = report.total_ms {
                cost.median_ms = cost.median_ms.max(took.p50);
                cost.longest_ms = cost.longest_ms.max(took.max);
            }
        }
        cost
    }
}

/// Waits for something that should happen soon.
pub async fn until(what: &str, holds: impl FnMut() -> bool) {
    until_by(what, Instant::now() + GUARD, holds).await;
}

async fn until_by(what: &str, deadline: Instant, mut holds: impl FnMut() -> bool) {
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
