//! An agent beside an engine in a pod and a router that watches the cluster mean the same owner, with nothing said to
//! either but what the guide shows.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use k8s_openapi::api::core::v1::Pod;
use kvasir_agent::{AgentArgs, AgentConfig, Service};
use kvasir_coordination::key;
use kvasir_coordination::testing::TestServer;
use kvasir_core::EndpointId;
use kvasir_mock_engine::{Engine, EngineConfig, EventsConfig, EventsEndpoint};
use kvasir_settings::CoordinationMode;
use kvasir_suite::client::{post, send};
use kvasir_suite::cluster::{Cluster, PodDraft, apply, documents};
use kvasir_suite::echo::loopback;
use kvasir_suite::eventually;
use kvasir_suite::router::Router;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::chart::helm::repository;
use crate::routers::{free_port, watching};

/// What the engines serve, and what clients ask for.
const SERVED: &str = "org/served";
const ASKED: &str = "asked";

/// Tokens in a prompt: 20 blocks of 16, and one token that is never reused.
const PROMPT_TOKENS: u32 = 321;

/// Prompts that each engine holds, and no other one.
const PROMPTS: u32 = 3;

/// A pod with its engine, and the agent in it.
struct Housed {
    name: &'static str,
    engine: Engine,
    owner: EndpointId,
    stop: CancellationToken,
    agent: JoinHandle<()>,
}

impl Housed {
    async fn start(cluster: &Cluster, space: &str, name: &'static str, at: SocketAddr, redis: &str) -> Self {
        let endpoint = EventsEndpoint::Bind(SocketAddr::new(at.ip(), 0));
        let config = EngineConfig {
            listen: at,
            events: Some(EventsConfig { endpoint, ..EventsConfig::default() }),
            model: SERVED.to_owned(),
            prefill_us_per_token: 1.0,
            decode_us_per_token: 50.0,
            answer_tokens: 2,
            ..EngineConfig::default()
        };
        let engine = Engine::start(config).await.unwrap();
        let client = cluster.client().await.unwrap();
        let draft = PodDraft::new(name, &at.ip().to_string()).label("app", "engine").port(at.port());
        let pod = draft.create(&client, space).await.unwrap();
        let config = agent_config(&pod, &engine.url(), redis);
        let beside = &config.engines[0];
        let owner = EndpointId::new(&*beside.namespace, &*beside.pod, beside.address.port, 0);
        let stop = CancellationToken::new();
        let service = Service::bind(config).await.unwrap();
        let agent = tokio::spawn(service.serve(stop.clone()));
        Self { name, engine, owner, stop, agent }
    }
}

/// What the guide's agent container makes of its environment in this pod. A pod's containers share one network; here
/// the engine has an address instead, and the Redis another name.
fn agent_config(pod: &Pod, engine: &str, redis: &str) -> AgentConfig {
    let pod = serde_json::to_value(pod).unwrap();
    let container = agents_container();
    assert_eq!(container["args"], json!(["agent"]));
    let command = AgentArgs::augment_args(Command::new("agent").args_override_self(true));
    let mut line = vec!["agent".to_owned()];
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some(path) => pod.pointer(&format!("/{}", path.replace('.', "/"))).unwrap_or(&Value::Null),
            None => &variable["value"],
        };
        let flag = command.get_arguments().find(|argument| argument.get_env().is_some_and(|env| env == name));
        let flag = flag.unwrap_or_else(|| panic!("the agent knows no {name}")).get_long().unwrap();
        line.push(format!("--{flag}={}", value.as_str().unwrap_or_else(|| panic!("{name} has no value"))));
    }
    line.extend([format!("--redis={redis}"), format!("--engine-base-url={engine}")]);
    line.extend(["--host=127.0.0.1", "--port=0", "--scrape-interval=200ms"].map(str::to_owned));
    let matches = command.get_matches_from(line);
    AgentConfig::of(&AgentArgs::from_arg_matches(&matches).unwrap()).unwrap()
}

/// The agent's container in the guide.
fn agents_container() -> Value {
    let guide = std::fs::read_to_string(repository().join("docs/guides/agent.md")).unwrap();
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut containers = blocks
        .flat_map(|block| documents(block).unwrap())
        .filter_map(|document| document["containers"].as_array().cloned())
        .flatten();
    containers.find(|container| container["name"] == "agent").unwrap()
}

fn objects(port: u16) -> String {
    let server = json!({
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelServer",
        "metadata": {"name": "engines"},
        "spec": {
            "model": SERVED,
            "inferenceEngine": "vLLM",
            "workloadSelector": {"matchLabels": {"app": "engine"}},
            "workloadPort": {"port": port},
        },
    });
    let route = json!({
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelRoute",
        "metadata": {"name": "asked"},
        "spec": {"modelName": ASKED, "rules": [{"targetModels": [{"modelServerName": "engines"}]}]},
    });
    format!("{server}\n---\n{route}\n")
}

/// Sends a prompt; gives the endpoint that a router names, if it is one. Prompts of two seeds share no block.
async fn complete(to: SocketAddr, model: &str, seed: u32) -> String {
    let ids: Vec<u32> = (0..PROMPT_TOKENS).map(|number| seed * 1_000 + number + 1).collect();
    let body = json!({"model": model, "max_tokens": 2, "prompt": ids}).to_string();
    let answer = send(to, post("/v1/completions", body).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200, "{:?}", answer.body());
    let by = answer.headers().get("x-kvasir-endpoint").and_then(|value| value.to_str().ok());
    by.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_and_router_mean_the_same_pod() {
    let cluster = Cluster::shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    let space = cluster.namespace("agent").await.unwrap();
    let redis = TestServer::start().await;
    let port = free_port();
    apply(&client, &space, &objects(port)).await.unwrap();
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let mut pods = Vec::new();
    // A pod's name may have dots, and its address may be of the other family.
    let addresses = [("engine-0", loopback().into()), ("engine.one-1", loopback().into())]
        .into_iter()
        .chain([("engine-2", IpAddr::V6(Ipv6Addr::LOCALHOST))]);
    for (name, ip) in addresses {
        pods.push(Housed::start(cluster, &space, name, SocketAddr::new(ip, port), &url).await);
    }
    let mut settings = watching(cluster.kubeconfig(), &space);
    settings.redis = Some(redis.settings());
    settings.coordination = Some(CoordinationMode::Mirror);
    settings.scrape_interval = Duration::from_millis(100);
    let router = Router::start(settings).await.unwrap();

    let owners: BTreeSet<EndpointId> = pods.iter().map(|pod| pod.owner.clone()).collect();
    let translated = || -> BTreeSet<EndpointId> {
        router.gateway.state.endpoints().into_iter().map(|endpoint| endpoint.id).collect()
    };
    eventually("the router has an endpoint for each pod", || owners.len() == translated().len()).await;
    assert_eq!(translated(), owners);
    for pod in &pods {
        assert_eq!(pod.owner, EndpointId::new(space.as_str(), pod.name, port, 0));
        redis.wait_for(&["EXISTS", &key::meta(&key::owner(&pod.owner))], |said| said == ["1"]).await;
    }

    // What an engine learns past the router, every router knows from Redis.
    let index = &router.gateway.index;
    eventually("Redis tells of all of them", || index.stats().iter().all(|stats| stats.mirrored)).await;
    let mut seed = 0;
    for pod in &pods {
        for _ in 0..PROMPTS {
            seed += 1;
            complete(pod.engine.address(), SERVED, seed).await;
        }
    }
    let held = (PROMPT_TOKENS / 16 * PROMPTS) as usize;
    eventually("the router knows what they hold", || {
        index.stats().iter().all(|stats| stats.mirrored && stats.blocks >= held)
    })
    .await;
    let mut seed = 0;
    for pod in &pods {
        for _ in 0..PROMPTS {
            seed += 1;
            assert_eq!(complete(router.inference, ASKED, seed).await, pod.owner.to_string(), "prompt {seed}");
        }
    }
    router.stop().await.unwrap();
    for pod in pods {
        pod.stop.cancel();
        pod.agent.await.unwrap();
    }
}
