//! What one translation costs with 2,000 pods, 250 ModelServers and 1,000 ModelRoutes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use kvasir_api::Read;
use kvasir_controllers::{ContainerFacts, Kind, Objects, Options, PodFacts, translate};
use kvasir_state::plan::ObjectName;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const SERVERS: usize = 250;
const PODS_OF_A_SERVER: usize = 8;
const ROUTES: usize = 1_000;
const NAMESPACES: usize = 5;

/// Objects of one kind, spread over the namespaces.
fn kind<K: DeserializeOwned>(name: &str, count: usize, spec: impl Fn(usize) -> Value) -> Kind<K> {
    let object = |number: usize| {
        let key = ObjectName::new(namespace(number), format!("{name}-{number}"));
        let created = format!("2026-01-01T{:02}:{:02}:00Z", number % 24, number % 60);
        let object = json!({
            "metadata": {"name": &*key.name, "namespace": &*key.namespace, "creationTimestamp": created},
            "spec": spec(number),
        });
        let read: Read<K> = serde_json::from_value(object).unwrap_or_else(|error| unreachable!("{error}"));
        (key, Arc::new(read))
    };
    (0..count).map(object).collect()
}

fn namespace(number: usize) -> String {
    format!("team-{}", number % NAMESPACES)
}

/// As a Deployment labels its pods: two labels that its selector names, one of its own for each pod, some of all pods.
fn pod(server: usize, pod: usize) -> (ObjectName, Arc<PodFacts>) {
    let name = format!("server-{server}-{pod}");
    let labels = [
        ("app", format!("server-{server}")),
        ("apps.kubernetes.io/pod-name", name.clone()),
        ("part-of", "models".to_owned()),
        ("pod-template-hash", format!("{:08x}", server.wrapping_mul(0x9e37_79b9))),
        ("version", format!("v{}", server % 3)),
    ];
    let address = u32::try_from(server * PODS_OF_A_SERVER + pod).unwrap_or(0);
    let facts = PodFacts {
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<BTreeMap<_, _>>(),
        ranks: 1,
        pin_ranks: None,
        ip: Some(Ipv4Addr::from_bits(0x0a00_0001 + address).into()),
        ready: true,
        gone: false,
        containers: [ContainerFacts { ports: [8000].into(), started_at: Some(1_767_225_600) }].into(),
    };
    (ObjectName::new(namespace(server), name), Arc::new(facts))
}

fn objects(expressions: bool) -> Objects {
    let server = |number: usize| {
        json!({
            "model": format!("org/model-{number}"),
            "inferenceEngine": "vLLM",
            "workloadSelector": {"matchLabels": {
                "app": format!("server-{number}"), "part-of": "models", "version": format!("v{}", number % 3),
            }},
            "workloadPort": {"port": 8000},
            "trafficPolicy": {"timeout": "10s", "retry": {"attempts": 2}},
        })
    };
    // Of its own namespace: a step by the number of namespaces stays there.
    let target = |number: usize| format!("server-{}", number % SERVERS);
    let route = |number: usize| {
        let premium = if expressions {
            json!({"regex": format!("^(premium|team-{number})$")})
        } else {
            json!({"exact": "premium"})
        };
        json!({
            "modelName": format!("model-{number}"),
            "rules": [
                {
                    "modelMatch": {"headers": {"user-type": premium}},
                    "targetModels": [{"modelServerName": target(number)}],
                },
                {"targetModels": [
                    {"modelServerName": target(number + NAMESPACES), "weight": 70},
                    {"modelServerName": target(number + 2 * NAMESPACES), "weight": 30},
                ]},
            ],
        })
    };
    Objects {
        model_servers: kind("server", SERVERS, server),
        model_routes: kind("route", ROUTES, route),
        pods: (0..SERVERS)
            .flat_map(|server| (0..PODS_OF_A_SERVER).map(move |one| pod(server, one)))
            .collect(),
        ..Objects::default()
    }
}

fn translations(bench: &mut Criterion) {
    let options = Options::default();
    for (name, expressions) in [("translate/plain", false), ("translate/an expression in each route", true)] {
        let objects = objects(expressions);
        let translation = translate(&objects, &options);
        let endpoints: usize = translation.plan.targets.iter().map(|target| target.endpoints.len()).sum();
        assert_eq!(
            (translation.plan.targets.len(), endpoints, translation.plan.routes.len()),
            (SERVERS, SERVERS * PODS_OF_A_SERVER, ROUTES)
        );
        assert!(translation.skipped.is_empty());
        bench.bench_function(name, |bench| bench.iter(|| translate(black_box(&objects), &options)));
    }
}

criterion_group!(benches, translations);
criterion_main!(benches);
