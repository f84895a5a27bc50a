use kvasir_state::plan::TargetKind;

use super::*;
use crate::translate::Translation;
use crate::translate::testing::{pod, state, target, translate, translate_in_gateway_mode};

const POOL: &str = "---
kind: InferencePool
metadata: {name: pool}
spec:
  selector: {matchLabels: {app: m}}
  targetPorts: [{number: 8000}]
";

fn pool(translation: &Translation) -> &PlanTarget {
    target(translation, TargetKind::InferencePool, "pool")
}

fn with_pods(pool: &str) -> Translation {
    translate_in_gateway_mode(&format!(
        "{pool}{}{}{}",
        pod("a", "10.0.0.1", "app: m"),
        pod("b", "10.0.0.2", "app: m, inference.networking.k8s.io/engine-type: sglang"),
        pod("c", "10.0.0.3", "app: n"),
    ))
}

#[test]
fn a_pool_serves_its_pods_without_any_model_server() {
    let translation = with_pods(POOL);
    let pool = pool(&translation);
    assert_eq!((&pool.served, pool.index_model.as_str()), (&None, "pool"));
    let endpoints: Vec<(String, EngineKind)> =
        pool.endpoints.iter().map(|endpoint| (endpoint.address.url(), endpoint.engine)).collect();
    assert_eq!(
        endpoints,
        [
            ("http://10.0.0.1:8000".to_owned(), EngineKind::Vllm),
            ("http://10.0.0.2:8000".to_owned(), EngineKind::Sglang)
        ]
    );
    assert_eq!(state(&translation).endpoints().len(), 2);
}

#[test]
fn every_port_is_an_endpoint_and_port_0_is_none() {
    let translation =
        with_pods(&POOL.replace("{number: 8000}", "{number: 8000}, {number: 0}, {number: 8001}"));
    let ids: Vec<String> =
        pool(&translation).endpoints.iter().map(|endpoint| endpoint.id.to_string()).collect();
    assert_eq!(ids, ["default/a:8000", "default/a:8001", "default/b:8000", "default/b:8001"]);
}

#[test]
fn an_empty_selector_selects_nothing() {
    for selector in ["{}", "{matchLabels: {}}"] {
        let translation = with_pods(&POOL.replace("{matchLabels: {app: m}}", selector));
        assert!(pool(&translation).endpoints.is_empty(), "{selector}");
    }
}

/// Where a ModelServer selects the same pods, the pool's requests find the blocks that the server's have left.
#[test]
fn a_pool_is_filed_under_the_model_of_the_server_beside_it() {
    let server = "---
kind: ModelServer
metadata: {name: s}
spec:
  model: org/m
  inferenceEngine: vLLM
  workloadSelector: {matchLabels: {app: m}}
  workloadPort: {port: 8000}
";
    let translation = with_pods(&format!("{POOL}{server}"));
    let state = state(&translation);
    let found = state.target(&pool(&translation).id).expect("planned");
    assert_eq!((found.index_model.as_str(), &found.served), ("org/m", &None));
}

#[test]
fn a_protocol_that_is_not_spoken_is_refused() {
    let refused = |protocol: &str| {
        let translation = with_pods(&format!("{POOL}  appProtocol: {protocol}\n"));
        pool(&translation).refused
    };
    assert_eq!(refused("http"), None);
    assert!(refused("kubernetes.io/h2c").is_some_and(|what| what.contains("appProtocol")));
}

#[test]
fn a_pool_that_cannot_be_read_costs_itself_alone() {
    let broken = "---\nkind: InferencePool\nmetadata: {name: broken}\nspec: {targetPorts: [{number: x}]}\n";
    let translation = with_pods(&format!("{POOL}{broken}"));
    let [(name, why)] = translation.skipped.as_slice() else { panic!("{:?}", translation.skipped) };
    assert_eq!(name.to_string(), "default/broken");
    assert!(why.contains("spec"), "{why}");
    assert_eq!(pool(&translation).endpoints.len(), 2);
}

#[test]
fn pools_are_nothing_without_gateways() {
    assert!(translate(POOL).plan.targets.is_empty());
}
