//! What a router shows to those who ask: probes, Prometheus, people with a forwarded port.

use std::collections::BTreeSet;

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::Stage;
use crate::process::{get, json_at, until};

/// What kthena's router names its families, of those that have a meaning here, each with its labels.
const FAMILIES: [(&str, &[&str]); 9] = [
    (
        "requests_total",
        &[
            "backend_name",
            "backend_type",
            "error_type",
            "model",
            "model_route",
            "path",
            "status_code",
            "upstream_model",
        ],
    ),
    (
        "request_duration_seconds_count",
        &["backend_name", "backend_type", "model", "model_route", "path", "status_code", "upstream_model"],
    ),
    (
        "tokens_total",
        &["backend_name", "backend_type", "model", "model_route", "path", "token_type", "upstream_model"],
    ),
    ("scheduler_plugin_duration_seconds_count", &["model", "plugin", "type"]),
    ("active_requests", &[]),
    ("active_downstream_requests", &["model"]),
    (
        "active_upstream_requests",
        &["backend_name", "backend_type", "model_route", "model_server", "upstream_model"],
    ),
    ("prefix_cache_match_ratio_count", &["model"]),
    ("prefix_cache_entries", &[]),
];

const JSON: &str = "application/json; charset=utf-8";

impl Stage<'_> {
    /// As a kubelet asks.
    pub(super) async fn is_probed(&self) {
        for (path, message) in [("/healthz", "ok"), ("/readyz", "router is ready")] {
            let answer = get(self.ports().router, path).await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            assert_eq!(kind_of(answer.headers()), JSON, "{path}");
            let body: Value = serde_json::from_slice(answer.body()).unwrap();
            assert_eq!(body, json!({"message": message}), "{path}");
        }
    }

    /// As Prometheus asks.
    pub(super) async fn is_scraped(&self) {
        let page = get(self.ports().metrics, "/metrics").await.unwrap();
        assert_eq!(page.status(), 200);
        assert!(kind_of(page.headers()).starts_with("text/plain"), "{:?}", page.headers());
        let page = String::from_utf8_lossy(page.body()).into_owned();
        for (name, labels) in FAMILIES {
            let found = labels_of(&page, &format!("kthena_router_{name}"));
            let expected: BTreeSet<&str> = labels.iter().copied().collect();
            assert_eq!(found, Some(expected), "{}: {name}", self.values.name);
        }
        assert_eq!(get(self.ports().metrics, "/other").await.unwrap().status(), 404);
        // Else it is a path like any other, for an HTTPRoute to take.
        let page = get(self.ports().router, "/metrics").await.unwrap();
        let is_ours = String::from_utf8_lossy(page.body()).contains("kthena_router_requests_total");
        assert_eq!(is_ours, self.values.metrics_on_router_port, "{}", page.status());
        // In its own time.
        let served = ["\"POST /v1/chat/completions HTTP/1.1\" 200 ", "model_name=", "model_server="];
        let names = [self.model.clone(), format!("{}/served", self.space)];
        until("the access log tells of a request", async || {
            self.router().output().lines().any(|line| {
                served.iter().all(|part| line.contains(part)) && names.iter().all(|name| line.contains(name))
            })
        })
        .await;
    }

    /// The debug API, as people use it through a port that is forwarded.
    pub(super) async fn is_looked_into(&self) {
        let port = self.ports().debug;
        let list = async |plural: &str| {
            let dump = json_at(port, &format!("/debug/config_dump/{plural}")).await;
            assert_eq!(dump.as_object().map(|object| object.len()), Some(1), "{plural}: {dump}");
            let mine = dump[plural].as_array().cloned().unwrap_or_default();
            mine.into_iter().find(|item| item["namespace"] == self.space)
        };
        let keys = |value: &Value| {
            let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort_unstable();
            keys
        };
        let route = list("modelroutes").await.unwrap();
        assert_eq!(keys(&route), ["name", "namespace", "spec"]);
        assert_eq!(route["spec"]["modelName"], self.model);
        let server = list("modelservers").await.unwrap();
        assert_eq!(keys(&server), ["associatedPods", "name", "namespace", "spec"]);
        let pod_name = format!("{}/engine", self.space);
        assert_eq!(server["associatedPods"], json!([pod_name]));
        until("the engine's models are listed", async || {
            list("pods").await.unwrap()["models"] == json!([self.model])
        })
        .await;
        let mut pod = list("pods").await.unwrap();
        let metrics = pod["metrics"].take();
        assert_eq!(
            keys(&metrics),
            ["gpuCacheUsage", "requestRunningNum", "requestWaitingNum", "tpot", "ttft"]
        );
        let server_name = format!("{}/served", self.space);
        assert_eq!(
            pod,
            json!({"name": "engine", "namespace": self.space, "engine": "vLLM", "metrics": null,
                "models": [self.model], "modelServers": [server_name]})
        );
        for plural in ["gateways", "httproutes", "inferencepools"] {
            let is_there = if plural == "gateways" { self.values.gateway } else { self.values.inference };
            let item = list(plural).await;
            assert_eq!(item.is_some(), is_there, "{plural}");
            if let Some(item) = item {
                assert_eq!(keys(&item), ["name", "namespace", "spec", "status"], "{plural}");
            }
        }
        let one = |plural: &str, name: &str| {
            format!("/debug/config_dump/namespaces/{}/{plural}/{name}", self.space)
        };
        let pod = json_at(port, &one("pods", "engine")).await;
        assert_eq!(pod["podInfo"]["podIP"], "127.0.0.1");
        assert_eq!(pod["podInfo"]["labels"], json!({"app": "engine"}));
        assert_eq!(json_at(port, &one("modelservers", "served")).await["spec"]["model"], self.model);
        let missing = get(port, &one("modelroutes", "none")).await.unwrap();
        assert_eq!(missing.status(), 404);
        assert_eq!(missing.body(), r#"{"error":"ModelRoute not found"}"#);
    }
}

fn kind_of(headers: &HeaderMap) -> &str {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The names of the labels that the series of a family have.
fn labels_of<'p>(page: &'p str, name: &str) -> Option<BTreeSet<&'p str>> {
    let line = page.lines().find(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    })?;
    let (_, labels) = line.rsplit_once('{').unwrap_or(("", "}"));
    let (labels, _) = labels.rsplit_once('}')?;
    Some(labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect())
}
