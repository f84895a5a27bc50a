//! The pods of `/debug/config_dump`, with what the router itself knows of them under kthena's names.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_core::{EngineKind, EngineSample};
use kvasir_state::{EndpointStatus, State};
use serde_json::{Value, json};

/// The endpoints of each pod, by its namespace and name.
type ByPod<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a EndpointStatus>>;

/// A dump of pods with their engines, loads and models; every other one as it is.
pub(super) fn with_live(mut dump: Value, path: &str, state: &State) -> Value {
    let is_one = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["pods"] => false,
        ["namespaces", _, "pods", _] => true,
        _ => return dump,
    };
    let endpoints = state.endpoints();
    let mut by_pod = ByPod::new();
    for endpoint in &endpoints {
        by_pod.entry((&endpoint.id.namespace, &endpoint.id.pod)).or_default().push(endpoint);
    }
    if is_one {
        add(&mut dump, &by_pod);
    } else {
        dump["pods"].as_array_mut().into_iter().flatten().for_each(|pod| add(pod, &by_pod));
    }
    dump
}

/// Adds what is known of one pod. A pod has several endpoints where it has ranks or ports.
fn add(pod: &mut Value, by_pod: &ByPod<'_>) {
    let name = |field: &str| pod[field].as_str().unwrap_or_default();
    let endpoints = by_pod.get(&(name("namespace"), name("name"))).map_or(&[][..], Vec::as_slice);
    let samples: Vec<EngineSample> = endpoints.iter().filter_map(|endpoint| endpoint.load.sample).collect();
    let sum = |number: fn(&EngineSample) -> u32| samples.iter().map(number).sum::<u32>();
    let mean = |number: fn(&EngineSample) -> f64| {
        samples.iter().map(number).sum::<f64>() / samples.len().max(1) as f64
    };
    let models: BTreeSet<&String> = endpoints
        .iter()
        .filter_map(|endpoint| endpoint.listed_models.as_ref())
        .flat_map(|all| all.iter())
        .collect();
    // Lists without items are null there.
    let models = if models.is_empty() { Value::Null } else { json!(models) };
    pod["engine"] = endpoints.first().map_or("", |endpoint| name_of(endpoint.engine)).into();
    pod["metrics"] = json!({
        "gpuCacheUsage": mean(|sample| sample.kv_usage),
        "requestWaitingNum": sum(|sample| sample.waiting),
        "requestRunningNum": sum(|sample| sample.running),
        "tpot": mean(|sample| sample.tpot_seconds),
        "ttft": mean(|sample| sample.ttft_seconds),
    });
    pod["models"] = models;
}

/// As a ModelServer writes it.
fn name_of(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Vllm => "vLLM",
        EngineKind::Sglang => "SGLang",
    }
}
