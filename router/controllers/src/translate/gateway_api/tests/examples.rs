//! kthena's examples of Gateway API, and the worked examples of its behaviour.

use super::*;

/// kthena's `Gateway.yaml`, `HTTPRoute.yaml` and `InferencePool.yaml`, and the Gateway that its router makes for itself.
const EXAMPLES: &str = "
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: default, namespace: kthena-system, creationTimestamp: \"2026-01-01T00:00:00Z\"}
spec:
  gatewayClassName: kthena-router
  listeners:
  - {name: default, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: kthena-gateway, namespace: kthena-system, creationTimestamp: \"2026-01-02T00:00:00Z\"}
spec:
  gatewayClassName: kthena-router
  listeners:
  - {name: http, port: 8081, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llm-route}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: default, namespace: kthena-system}
  rules:
  - backendRefs:
    - {group: inference.networking.k8s.io, kind: InferencePool, name: deepseek-r1-1-5b}
    matches:
    - path: {type: PathPrefix, value: /}
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: deepseek-r1-1-5b}
spec:
  targetPorts: [{number: 8000}]
  selector: {matchLabels: {app: deepseek-r1-1-5b}}
  endpointPickerRef: {name: deepseek-r1-1-5b, port: {number: 8080}}
";

/// kthena's `ModelRoute-binding-gateway.yaml` with the ModelServer that it names.
const BOUND: &str = "
---
kind: ModelRoute
metadata: {name: deepseek-binding-gateway, namespace: default}
spec:
  modelName: deepseek-binding-gateway
  parentRefs: [{name: default, namespace: kthena-system, kind: Gateway}]
  rules: [{name: default, targetModels: [{modelServerName: bound}]}]
---
kind: ModelServer
metadata: {name: bound, namespace: default}
spec:
  workloadSelector: {matchLabels: {app: bound}}
  workloadPort: {port: 8000}
  inferenceEngine: vLLM
";

/// Everything translated, not these kinds alone.
fn whole(yaml: &str) -> World {
    let translation = crate::translate(&objects(yaml), &options());
    let state = state(&translation);
    World { translation, state }
}

#[test]
fn the_examples_are_accepted() {
    let world = whole(EXAMPLES);
    assert_eq!(world.route("llm-route"), GOOD);
    for (gateway, attached) in [("kthena-system/default", 1), ("kthena-system/kthena-gateway", 0)] {
        let (conditions, _, listeners) = world.gateway(gateway);
        assert_eq!(conditions, "Accepted=True/Accepted Programmed=True/Programmed");
        assert_eq!(listeners[0].attached_routes, attached);
    }
    assert_eq!(
        world.listeners(),
        ["kthena-system/default/default *:8080", "kthena-system/kthena-gateway/http *:8081"]
    );
    let pool = world.parents(StatusKind::InferencePool, "deepseek-r1-1-5b");
    assert_eq!((pool[0].0.as_str(), short(&pool[0].1).as_str()), ("default", GOOD));
}

/// A route of every path is what is left for models that no ModelRoute names.
#[test]
fn an_http_route_is_the_fallback_of_model_routes() {
    let world = whole(&format!("{EXAMPLES}{BOUND}"));
    let chat = |port, model| Ask { port, model: Some(model), ..post("/v1/chat/completions") };
    for (ask, wanted) in [
        (chat(8080, "deepseek-binding-gateway"), "bound"),
        (chat(8080, "unregistered"), "deepseek-r1-1-5b"),
        (chat(8081, "deepseek-binding-gateway"), "no match"),
        (chat(8081, "unregistered"), "no match"),
        (Ask { port: 8080, ..post("/anything") }, "deepseek-r1-1-5b"),
    ] {
        assert_eq!(ask.goes(&world), wanted, "{ask:?}");
    }
    let to_pool = chat(8080, "unregistered").resolved(&world);
    assert_eq!(to_pool.rewrite(), None, "a pool keeps the name that was asked for");
}

/// Two Gateways, two routes for one model: the route without parents serves its own namespace's Gateway, the one with
/// parents the Gateway named; the older wins, and the other Gateway has neither.
#[test]
fn gateways_are_isolated() {
    let gateway = |namespace: &str, port: u16| {
        format!(
            "---\nkind: Gateway\nmetadata: {{name: g, namespace: {namespace}}}\nspec: {{gatewayClassName: kthena-router, \
             listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}\n"
        )
    };
    let route = |namespace: &str, created: u8, parents: &str| {
        format!(
            "---\nkind: ModelServer\nmetadata: {{name: of-{namespace}, namespace: {namespace}}}\nspec: \
             {{workloadSelector: {{matchLabels: {{a: b}}}}, workloadPort: {{port: 1}}, inferenceEngine: vLLM}}\n\
             ---\nkind: ModelRoute\nmetadata: {{name: r, namespace: {namespace}, creationTimestamp: \
             \"2026-01-0{created}T00:00:00Z\"}}\nspec: {{modelName: m, {parents}rules: [{{targetModels: \
             [{{modelServerName: of-{namespace}}}]}}]}}\n"
        )
    };
    for (first, second, winner) in [(1, 2, "of-ns1"), (2, 1, "of-ns2")] {
        let yaml = [
            gateway("ns1", 8080),
            gateway("ns2", 8081),
            route("ns1", first, ""),
            route("ns2", second, "parentRefs: [{name: g, namespace: ns1}], "),
        ];
        let world = whole(&yaml.concat());
        let chat = |port| Ask { port, model: Some("m"), ..post("/v1/chat/completions") };
        assert_eq!(chat(8080).goes(&world), winner);
        assert_eq!(chat(8081).goes(&world), "no match");
    }
}
