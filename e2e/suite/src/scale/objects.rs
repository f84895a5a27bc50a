//! Objects as people and their tools write them: pods have the length of real ones.

use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::{PodNumber, Size, model_name, route_name, served_name, server_name};

const GROUP: &str = "networking.serving.volcano.sh";
const VERSION: &str = "v1alpha1";

/// Environment variables of an engine's container.
const VARIABLES: usize = 24;

/// The resource of a kind of ours.
pub(super) fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind))
}

fn object(kind: &str, name: &str, spec: Value) -> DynamicObject {
    DynamicObject::new(name, &resource(kind)).data(json!({"spec": spec}))
}

/// A ModelServer.
pub(super) fn server(server: usize, port: u16) -> DynamicObject {
    let spec = json!({
        "model": served_name(server),
        "inferenceEngine": "vLLM",
        "workloadSelector": {"matchLabels": {"app": server_name(server)}},
        "workloadPort": {"port": port},
    });
    object("ModelServer", &server_name(server), spec)
}

/// A ModelRoute as it is at first.
pub(super) fn route(size: Size, route: usize) -> DynamicObject {
    object("ModelRoute", &route_name(route), route_spec(route, size.first_target(route)))
}

/// What a route says that points to a server.
pub(super) fn route_spec(route: usize, server: usize) -> Value {
    json!({
        "modelName": model_name(route),
        "rules": [{"name": "default", "targetModels": [{"modelServerName": server_name(server), "weight": 100}]}],
    })
}

/// A pod as a Deployment makes it.
pub(super) fn pod(pod: PodNumber, port: u16) -> Value {
    let app = server_name(pod.server);
    let variables: Vec<Value> = (0..VARIABLES)
        .map(|number| json!({"name": format!("ENGINE_SETTING_{number}"), "value": format!("value-of-setting-{number}")}))
        .collect();
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": port}, "periodSeconds": 10, "failureThreshold": 3});
    let hash = "6f7c9d8b54";
    json!({
        "metadata": {
            "name": pod.name(),
            "labels": {
                "app": app, "pod-template-hash": hash, "app.kubernetes.io/name": "engine",
                "app.kubernetes.io/instance": app, "app.kubernetes.io/part-of": "models",
            },
            "annotations": {
                "prometheus.io/scrape": "true", "prometheus.io/port": port.to_string(),
                "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
            },
        },
        "spec": {
            "nodeName": "node",
            "serviceAccountName": "default",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [
                {"name": "models", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                {"name": "settings", "configMap": {"name": "engine-settings"}},
            ],
            "containers": [{
                "name": "engine",
                "image": "registry.example/engines/vllm-openai:v0.32.0",
                "args": ["--model", served_name(pod.server), "--port", port.to_string(), "--tensor-parallel-size", "1",
                    "--gpu-memory-utilization", "0.92", "--enable-prefix-caching"],
                "env": variables,
                "ports": [{"name": "http", "containerPort": port}],
                "resources": {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8", "memory": "64Gi"}},
                "readinessProbe": probe("/health"), "livenessProbe": probe("/health"), "startupProbe": probe("/health"),
                "volumeMounts": [
                    {"name": "models", "mountPath": "/models"}, {"name": "memory", "mountPath": "/dev/shm"},
                    {"name": "settings", "mountPath": "/settings"},
                ],
            }],
        },
    })
}

/// What a kubelet says of it.
pub(super) fn pod_status(pod: PodNumber, is_ready: bool, since: Timestamp) -> Value {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let address = pod.address().to_string();
    json!({"status": {
        "phase": "Running",
        "podIP": address, "podIPs": [{"ip": address}],
        "hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}],
        "startTime": since,
        "qosClass": "Guaranteed",
        "conditions": conditions(is_ready, &since),
        "containerStatuses": [{
            "name": "engine", "ready": is_ready, "started": true, "restartCount": 0,
            "image": "registry.example/engines/vllm-openai:v0.32.0",
            "imageID": "registry.example/engines/vllm-openai@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "containerID": "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "state": {"running": {"startedAt": since}},
        }],
    }})
}

/// What changes of it when its readiness does.
pub(super) fn readiness(is_ready: bool) -> Value {
    let since = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"status": {"conditions": conditions(is_ready, &since)}})
}

fn conditions(is_ready: bool, since: &str) -> Value {
    let word = if is_ready { "True" } else { "False" };
    ["PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready"]
        .iter()
        .map(|kind| {
            let status = if kind.ends_with("Ready") { word } else { "True" };
            json!({"type": kind, "status": status, "lastTransitionTime": since, "lastProbeTime": null})
        })
        .collect()
}
