//! The tokenizer service beside a real API server: it serves what ModelServers name, with real tokenizers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use kube::Client;
use kvasir_settings::facts::KubernetesEnvironment;
use kvasir_settings::{DiskFiles, KthenaEnvironment};
use kvasir_suite::client::{get, post, send};
use kvasir_suite::cluster::{Cluster, Crds, Grant, apply, delete, install_crds};
use kvasir_tokenizer_service::{ServiceConfig, TokenizerArgs, open};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chart::helm::repository;

/// Served names here, and the tokenizers behind them.
const SOURCES: [(&str, &str); 3] = [("first", "qwen2_5"), ("second", "llama3_1"), ("third", "qwen2_5")];

/// A list that failed is asked for again after half a minute at most.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);

/// A model stays for so long without a ModelServer.
const DEPARTURE: Duration = Duration::from_millis(300);

/// The cache that `e2e/tokenizers/fetch.sh` fills.
#[expect(clippy::disallowed_methods, reason = "the place of a test's cache is no setting of the router")]
fn tokenizer(name: &str) -> PathBuf {
    let cache = std::env::var("KVASIR_CACHE")
        .map(PathBuf::from)
        .unwrap_or_else(|_| PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache/kvasir"));
    let directory = cache.join("tokenizers").join(name);
    assert!(directory.is_dir(), "{} is missing: run e2e/tokenizers/fetch.sh first", directory.display());
    directory
}

/// A service with native tokenizers that reaches the cluster as `KUBECONFIG` says.
struct Tokenizers {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Tokenizers {
    async fn start(kubeconfig: &Path, namespace: &str) -> Self {
        let sources: Value = SOURCES.iter().map(|(name, source)| (*name, json!(tokenizer(source)))).collect();
        let sources = sources.to_string();
        let line =
            ["tokenizer", "--host", "127.0.0.1", "--port", "0", "--engine", "native", "--models", &sources]
                .into_iter()
                .chain(["--watch-namespace", namespace]);
        let matches = TokenizerArgs::augment_args(Command::new("tokenizer")).get_matches_from(line);
        let args = TokenizerArgs::from_arg_matches(&matches).unwrap();
        let kubernetes = KubernetesEnvironment {
            kubeconfig: Some(kubeconfig.display().to_string()),
            ..KubernetesEnvironment::default()
        };
        let environment = KthenaEnvironment { kubernetes, ..KthenaEnvironment::default() };
        let mut config = ServiceConfig::within(&args, &DiskFiles, &environment).unwrap();
        config.timings.departure = DEPARTURE;
        config.timings.first_names = Duration::from_secs(1);
        let stop = CancellationToken::new();
        let service = open(config, &stop).await.unwrap();
        let address = service.address();
        Self { address, served: tokio::spawn(service.serve(stop.clone())), stop }
    }

    async fn page(&self, path: &str) -> (u16, Value) {
        let answer = send(self.address, get(path).unwrap()).await.unwrap();
        (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap())
    }

    /// The tokens of a text; the status where there are none.
    async fn tokens(&self, model: &str) -> Result<Value, u16> {
        let body = json!({"model": model, "prompt": "Tokenizers differ: einundzwanzig, 二十一."}).to_string();
        let answer = send(self.address, post("/tokenize", body).unwrap()).await.unwrap();
        let said: Value = serde_json::from_slice(answer.body()).unwrap();
        said.get("tokens").cloned().ok_or(answer.status().as_u16())
    }

    /// Waits until exactly these models are there, and ready.
    async fn until(&self, wanted: &[&str]) {
        let wanted: Vec<(&str, &str)> = wanted.iter().map(|name| (*name, "ready")).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (_, page) = self.page("/models").await;
            let lines = page["models"].as_array().unwrap().iter();
            let found: Vec<(&str, &str)> = lines
                .map(|line| (line["model"].as_str().unwrap(), line["status"].as_str().unwrap()))
                .collect();
            if found == wanted {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?} is not {wanted:?}: {page}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn end(self) {
        self.stop.cancel();
        self.served.await.unwrap();
    }
}

fn server(name: &str, model: &str) -> String {
    json!({
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelServer",
        "metadata": {"name": name},
        "spec": {
            "model": model,
            "inferenceEngine": "vLLM",
            "workloadSelector": {"matchLabels": {"app": name}},
            "workloadPort": {"port": 8000},
        },
    })
    .to_string()
}

async fn name(client: &Client, space: &str, server_name: &str, model: &str) {
    apply(client, space, &server(server_name, model)).await.unwrap();
}

async fn unname(client: &Client, space: &str, server_name: &str) {
    delete(client, space, &server(server_name, "any")).await.unwrap();
}

/// The role that the guide gives.
fn role() -> String {
    let guide = std::fs::read_to_string(repository().join("docs/guides/tokenizer-service.md")).unwrap();
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.into_iter().find(|block| block.contains("kind: ClusterRole")).unwrap().to_owned()
}

#[tokio::test]
async fn a_service_with_the_guides_role_follows_the_servers_of_its_namespace() {
    let cluster = Cluster::shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    let space = cluster.namespace("tokenizers").await.unwrap();
    let other = cluster.namespace("tokenizers").await.unwrap();
    apply(&client, &space, &role()).await.unwrap();
    let grants = [Grant::ClusterRole("kvasir-tokenizer")];
    let account = cluster.account(&space, "tokenizer", &grants).await.unwrap();
    name(&client, &other, "elsewhere", "third").await;
    name(&client, &space, "a", "first").await;
    name(&client, &space, "unmapped", "no-source").await;

    let service = Tokenizers::start(account.kubeconfig(), &space).await;
    service.until(&["first"]).await;
    assert_eq!(service.page("/readyz").await, (200, json!({"status": "ready"})));
    let first = service.tokens("first").await.unwrap();
    assert_eq!(service.tokens("second").await, Err(503));
    assert_eq!(service.tokens("no-source").await, Err(503));

    name(&client, &space, "b", "second").await;
    service.until(&["first", "second"]).await;
    let second = service.tokens("second").await.unwrap();
    assert!(first[5].is_u64() && second[5].is_u64() && first != second, "{first} and {second}");

    // One of two servers of a model goes, then the model of the other changes, then it goes too.
    name(&client, &space, "a2", "first").await;
    unname(&client, &space, "a").await;
    name(&client, &space, "b", "third").await;
    service.until(&["first", "third"]).await;
    unname(&client, &space, "a2").await;
    service.until(&["third"]).await;
    unname(&client, &space, "b").await;
    service.until(&[]).await;
    // Nothing at all is what the cluster says, so the service is ready.
    assert_eq!(service.page("/readyz").await, (200, json!({"status": "ready"})));
    service.end().await;

    // An empty namespace is all of them.
    let whole = Tokenizers::start(account.kubeconfig(), "").await;
    whole.until(&["third"]).await;
    unname(&client, &other, "elsewhere").await;
    whole.until(&[]).await;
    whole.end().await;
}

#[tokio::test]
async fn a_service_outlives_its_api_server_and_waits_for_the_definitions() {
    let mut cluster = Cluster::start().await.unwrap();
    let client = cluster.client().await.unwrap();
    let space = cluster.namespace("tokenizers").await.unwrap();
    // There is no kind ModelServer, so nobody can say which models are wanted.
    let service = Tokenizers::start(cluster.kubeconfig(), "").await;
    service.until(&["first", "second", "third"]).await;
    let (status, ready) = service.page("/readyz").await;
    assert_eq!((status, &ready["status"]), (200, &json!("ready")));
    assert!(ready["modelServers"].as_str().unwrap().starts_with("not listed yet"), "{ready}");

    install_crds(&client, Crds::Ours).await.unwrap();
    name(&client, &space, "a", "first").await;
    service.until(&["first"]).await;
    assert_eq!(service.page("/readyz").await, (200, json!({"status": "ready"})));

    // What was said last counts without an API server, and what changes meanwhile arrives with the next one.
    cluster.kill();
    tokio::time::sleep(2 * DEPARTURE).await;
    service.tokens("first").await.unwrap();
    cluster.restart().await.unwrap();
    name(&client, &space, "b", "second").await;
    unname(&client, &space, "a").await;
    service.until(&["second"]).await;
    service.tokens("second").await.unwrap();
    service.end().await;
}
