//! Worked examples: objects as users write them, down to the target of a request.

use super::*;
use crate::translate::testing::{Asked, named, pod, state};

/// A ModelServer with one ready pod, both of the same name.
fn served(name: &str, ip: &str) -> String {
    format!(
        "---
kind: ModelServer
metadata: {{name: {name}}}
spec:
  model: org/{name}
  inferenceEngine: vLLM
  workloadSelector: {{matchLabels: {{app: {name}}}}}
  workloadPort: {{port: 8000}}
{}",
        pod(name, ip, &format!("app: {name}"))
    )
}

/// A. The first rule that matches is used; header names are the same in any case, values are not.
#[test]
fn rules_are_tried_in_order() {
    let translation = translate(&format!(
        "{}{}{}",
        served("7b", "10.0.0.1").replace("name: 7b", "name: \"7b\""),
        served("1.5b", "10.0.0.2").replace("name: 1.5b", "name: \"1.5b\""),
        model_route(
            "m",
            "{modelName: m, rules: [
              {modelMatch: {headers: {user-type: {exact: premium}}}, targetModels: [{modelServerName: 7b}]},
              {targetModels: [{modelServerName: 1.5b}]}]}",
        )
        .replace("1.5b}", "\"1.5b\"}")
    ));
    let state = state(&translation);
    for (headers, target) in [
        (&[("user-type", "premium")][..], "7b"),
        (&[("User-Type", "premium")], "7b"),
        (&[("user-type", "Premium")], "1.5b"),
        (&[("user-type", "basic"), ("user-type", "premium")], "1.5b"),
        (&[("user-type", "premium"), ("user-type", "basic")], "7b"),
        (&[], "1.5b"),
    ] {
        assert_eq!(Asked { headers, ..Asked::for_model("m") }.goes_to(&state), target, "{headers:?}");
    }
    assert_eq!(Asked::for_model("org/7b").goes_to(&state), "no match", "only routes give names to clients");
}

/// B. The oldest route of a name wins where one of its rules matches.
#[test]
fn the_oldest_route_wins() {
    let object = |name: &str, namespace: &str, created: &str, matching: &str| {
        format!(
            "---
kind: ModelServer
metadata: {{name: of-{name}, namespace: {namespace}}}
spec: {{inferenceEngine: vLLM, workloadSelector: {{matchLabels: {{app: {name}}}}}, workloadPort: {{port: 1}}}}
---
kind: ModelRoute
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: \"2026-01-01T{created}:00Z\"}}
spec: {{modelName: m, rules: [{{{matching} targetModels: [{{modelServerName: of-{name}}}]}}]}}
"
        )
    };
    let younger = object("y", "a", "10:05", "");
    let translation = translate(&format!("{younger}{}", object("x", "b", "10:00", "")));
    assert_eq!(Asked::for_model("m").goes_to(&state(&translation)), "of-x");

    let picky = object("x", "b", "10:00", "modelMatch: {uri: {prefix: /v1/completions}},");
    let state = state(&translate(&format!("{younger}{picky}")));
    assert_eq!(Asked::for_model("m").goes_to(&state), "of-y");
    assert_eq!(Asked { path: "/v1/completions", ..Asked::for_model("m") }.goes_to(&state), "of-x");
}

/// C. A name that is some route's model is never looked up among adapters.
#[test]
fn a_models_name_shadows_an_adapters() {
    let translation = translate(&format!(
        "{}{}{}{}",
        served("base", "10.0.0.1"),
        served("lora", "10.0.0.2"),
        model_route(
            "one",
            "{modelName: foo, rules: [{modelMatch: {uri: {exact: /v1/completions}},
              targetModels: [{modelServerName: base}]}]}"
        ),
        model_route("two", "{loraAdapters: [foo, bar], rules: [{targetModels: [{modelServerName: lora}]}]}"),
    ));
    let state = state(&translation);
    assert_eq!(Asked { path: "/v1/completions", ..Asked::for_model("foo") }.goes_to(&state), "base");
    assert_eq!(Asked::for_model("foo").goes_to(&state), "no match", "route two is not even looked at");
    assert_eq!(Asked::for_model("bar").goes_to(&state), "lora");
}

/// F. Shares follow the weights.
#[test]
fn a_canary_has_its_share() {
    let translation = translate(&format!(
        "{}{}{}",
        served("v1", "10.0.0.1"),
        served("v2", "10.0.0.2"),
        model_route(
            "subset",
            "{modelName: m, rules: [{targetModels: [
              {modelServerName: v1, weight: 70}, {modelServerName: v2, weight: 30}]}]}"
        ),
    ));
    let state = state(&translation);
    let to_first =
        (0..10_000).filter(|seed| Asked { seed: *seed, ..Asked::for_model("m") }.goes_to(&state) == "v1");
    let share = to_first.count();
    // The standard deviation is 46.
    assert!(share.abs_diff(7_000) < 300, "{share} of 10,000");
}

/// What leads nowhere says why; what a rule passes on goes to the next route of the name.
#[test]
fn refusals_and_gaps_reach_the_client_as_what_they_are() {
    let next = |name: &str| {
        model_route(
            &format!("z-after-{name}"),
            &format!("{{modelName: {name}, rules: [{{targetModels: [{{modelServerName: s}}]}}]}}"),
        )
    };
    let rules = |name: &str, rest: &str| model_route(name, &format!("{{modelName: {name}, {rest}}}"));
    let objects = [
        served("s", "10.0.0.1"),
        rules("limited", "rules: [{targetModels: [{modelServerName: s}]}], rateLimit: {}"),
        rules("outside", "rules: [{targetModels: [{externalModelProviderName: p}]}]"),
        rules("dangling", "rules: [{targetModels: [{modelServerName: absent}]}]"),
        rules("weightless", "rules: [{targetModels: [{modelServerName: absent, weight: 0}]}]"),
        rules(
            "unreadable",
            "rules: [{modelMatch: {uri: {regex: '['}}, targetModels: [{modelServerName: absent}]}]",
        ),
        rules("bound", "parentRefs: [{name: g}], rules: [{targetModels: [{modelServerName: absent}]}]"),
        rules("empty", "rules: []"),
        rules("invalid", "rules: [{targetModels: []}]"),
    ];
    let names = ["limited", "outside", "dangling", "weightless", "unreadable", "bound", "empty", "invalid"];
    let state = state(&translate(&format!("{}{}", objects.concat(), names.map(next).concat())));
    let went = names.map(|name| Asked::for_model(name).goes_to(&state));
    assert_eq!(
        went,
        [
            "refused: rate limiting (spec.rateLimit)",
            "refused: an external model provider as target",
            "no target",
            "s",
            "s",
            "s",
            "s",
            "s"
        ]
    );
}

/// D. Gateways of two namespaces: routes go where their namespace or their reference says.
#[test]
fn gateways_keep_routes_apart() {
    let mut objects = crate::translate::testing::objects(
        "---
kind: ModelServer
metadata: {name: s, namespace: ns1}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: s}}, workloadPort: {port: 1}}
---
kind: ModelServer
metadata: {name: t, namespace: ns2}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: s}}, workloadPort: {port: 1}}
---
kind: Gateway
metadata: {name: g, namespace: ns1}
spec: {gatewayClassName: kthena-router, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
kind: Gateway
metadata: {name: g, namespace: ns2}
spec: {gatewayClassName: kthena-router, listeners: [{name: http, port: 8081, protocol: HTTP}]}
---
kind: ModelRoute
metadata: {name: r, namespace: ns1, creationTimestamp: \"2026-01-01T11:00:00Z\"}
spec: {modelName: m, rules: [{targetModels: [{modelServerName: s}]}]}
---
kind: ModelRoute
metadata: {name: r, namespace: ns2, creationTimestamp: \"2026-01-01T10:00:00Z\"}
spec: {modelName: m, parentRefs: [{name: g, namespace: ns1}], rules: [{targetModels: [{modelServerName: t}]}]}
",
    );
    let options = Options { gateway_api: true, ..Options::default() };
    let went = |objects: &Objects| {
        let mut translation = crate::translate::translate(objects, &options);
        // Listeners as they stand in the objects; which of them are served is decided elsewhere.
        translation.plan.gateways = Some(listeners(objects));
        let state = state(&translation);
        [8080, 8081].map(|port| Asked { port, ..Asked::for_model("m") }.goes_to(&state))
    };
    assert_eq!(went(&objects), ["t", "no match"]);
    objects.model_routes.remove(&named("ns2/r"));
    assert_eq!(went(&objects), ["s", "no match"]);
}

fn listeners(objects: &Objects) -> Vec<kvasir_state::plan::PlanGateway> {
    use kvasir_state::plan::{PlanGateway, PlanListener};
    let gateways = objects.gateways.iter().filter_map(|(name, read)| Some((name, read.0.as_ref().ok()?)));
    gateways
        .map(|(name, gateway)| PlanGateway {
            id: name.clone(),
            listeners: gateway
                .spec
                .listeners
                .iter()
                .map(|listener| PlanListener {
                    name: listener.name.as_str().into(),
                    port: listener.port,
                    hostname: None,
                })
                .collect(),
        })
        .collect()
}
