use kvasir_state::StringTest;
use kvasir_state::plan::{PlanTo, TargetId};

use super::*;
use crate::translate::Translation;
use crate::translate::testing::{route, status, translate, verdict};

mod attached;
mod examples;
mod worked;

const KIND: StatusKind = StatusKind::ModelRoute;

/// The ModelServers `a`, `b` and `c` of `default`.
const SERVERS: &str = "---
kind: ModelServer
metadata: {name: a}
spec:
  inferenceEngine: vLLM
  workloadSelector: {matchLabels: {app: a}}
  workloadPort: {port: 8000}
---
kind: ModelServer
metadata: {name: b}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: b}}, workloadPort: {port: 8000}}
---
kind: ModelServer
metadata: {name: c}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: c}}, workloadPort: {port: 8000}}
";

/// A route of `default` whose spec is this YAML in flow style.
fn model_route(name: &str, spec: &str) -> String {
    format!("---\nkind: ModelRoute\nmetadata: {{name: {name}, generation: 5}}\nspec: {spec}\n")
}

fn with_servers(route: &str) -> Translation {
    translate(&format!("{SERVERS}{route}"))
}

/// A route for `m` with these rules.
fn ruled(rules: &str) -> Translation {
    with_servers(&model_route("r", &format!("{{modelName: m, rules: {rules}}}")))
}

fn accepted(translation: &Translation) -> (&str, &str, &str) {
    let verdict = verdict(translation, KIND, "r", "Accepted");
    (verdict.value, verdict.reason, verdict.message.as_str())
}

fn resolved(translation: &Translation) -> (&str, &str, &str) {
    let verdict = verdict(translation, KIND, "r", "ResolvedRefs");
    (verdict.value, verdict.reason, verdict.message.as_str())
}

fn to(name: &str) -> PlanTo {
    PlanTo::Target(TargetId::model_server("default", name))
}

#[test]
fn a_route_is_planned_with_its_names_and_its_rules_in_order() {
    let translation = with_servers(&model_route(
        "r",
        "{modelName: m, loraAdapters: [x, y], rules: [
            {name: first, targetModels: [{modelServerName: a}]},
            {targetModels: [{modelServerName: b, weight: 7}]}]}",
    ));
    let planned = route(&translation, "r");
    assert_eq!(planned.model, Some("m".into()));
    assert_eq!(planned.adapters, ["x".into(), "y".into()]);
    assert_eq!((&planned.parents, planned.refused), (&None, None));
    let targets: Vec<_> = planned.rules.iter().map(|rule| rule.to.clone()).collect();
    assert_eq!(targets, [vec![(to("a"), 100)], vec![(to("b"), 7)]]);
    assert_eq!(accepted(&translation), ("True", "Accepted", "In use."));
    assert_eq!(resolved(&translation).1, "ResolvedRefs");
    assert_eq!(status(&translation, KIND, "r").generation, Some(5));
}

#[test]
fn an_empty_model_name_is_none() {
    let translation = with_servers(&model_route(
        "r",
        "{modelName: \"\", loraAdapters: [x], rules: [{targetModels: [{modelServerName: a}]}]}",
    ));
    assert_eq!(route(&translation, "r").model, None);
    assert_eq!(accepted(&translation).0, "True");
}

#[test]
fn conditions_become_tests() {
    let translation = ruled(
        "[{modelMatch: {
            headers: {tier: {exact: gold}, team: {prefix: red}, beta: {}, both: {exact: e, prefix: p}},
            uri: {regex: ^/v1/(chat|completions)$}, body: {model: m}},
          targetModels: [{modelServerName: a}]},
         {modelMatch: {}, targetModels: [{modelServerName: b}]}]",
    );
    let [first, second] = route(&translation, "r").rules.as_slice() else { panic!("two rules") };
    let exact = |text: &str| StringTest::Exact(text.into());
    assert_eq!(
        first.headers,
        [
            ("beta".into(), StringTest::Any),
            ("both".into(), exact("e")),
            ("team".into(), StringTest::Prefix("red".into())),
            ("tier".into(), exact("gold"))
        ]
    );
    assert!(matches!(&first.uri, Some(StringTest::Regex(regex)) if regex.is_match("/v1/chat")));
    assert_eq!(first.body_model.as_deref(), Some("m"));
    assert_eq!((second.headers.len(), &second.uri, &second.body_model), (0, &None, &None));
}

/// RE2 reads `/v1/{id}` as plain text, and `\d` as ten digits.
#[test]
fn expressions_are_those_of_re2() {
    let translation = ruled(
        "[{modelMatch: {uri: {regex: '/v1/{id}'}, headers: {n: {regex: '^\\d+$'}}},
          targetModels: [{modelServerName: a}]}]",
    );
    let rule = &route(&translation, "r").rules[0];
    let uri = rule.uri.as_ref().expect("a test");
    assert!(uri.passes("/v1/{id}") && !uri.passes("/v1/7"));
    let digits = &rule.headers[0].1;
    assert!(digits.passes("42") && !digits.passes("४२"));
}

#[test]
fn an_expression_that_cannot_be_read_matches_nothing_and_the_other_rules_work() {
    let translation = ruled(
        "[{modelMatch: {uri: {regex: '('}}, targetModels: [{modelServerName: a}]},
          {targetModels: [{modelServerName: b}]}]",
    );
    let rules = &route(&translation, "r").rules;
    assert_eq!((&rules[0].uri, rules.len()), (&Some(StringTest::Never), 2));
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "Invalid"));
    assert!(message.contains("spec.rules[0].modelMatch.uri.regex") && message.contains("`(`"), "{message}");
    assert!(message.contains("other rules are in use"), "{message}");
}

#[test]
fn weights_are_as_the_crd_fills_them_in() {
    let weights = |targets: &str| {
        let translation = ruled(&format!("[{{targetModels: [{targets}]}}]"));
        let rules = &route(&translation, "r").rules;
        rules[0].to.iter().map(|(_, weight)| *weight).collect::<Vec<_>>()
    };
    assert_eq!(weights("{modelServerName: a}, {modelServerName: b}"), [100, 100]);
    assert_eq!(weights("{modelServerName: a, weight: 70}, {modelServerName: b, weight: 30}"), [70, 30]);
    assert_eq!(weights("{modelServerName: a, weight: 50}, {modelServerName: b}"), [50, 100]);
    assert_eq!(weights("{modelServerName: a, weight: 0}, {modelServerName: b, weight: 1}"), [0, 1]);
}

/// The webhook refuses it; where that was off, the next route has the requests, as in kthena.
#[test]
fn a_rule_without_any_weight_is_told_and_passes_requests_on() {
    let translation = ruled(
        "[{modelMatch: {uri: {prefix: /v1/chat}}, targetModels: [{modelServerName: a, weight: 0}]},
          {targetModels: [{modelServerName: b}]}]",
    );
    assert_eq!(route(&translation, "r").rules.len(), 2);
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "Invalid"));
    assert!(message.contains("spec.rules[0].targetModels") && message.contains("weight"), "{message}");
}

#[test]
fn a_rate_limit_is_refused_as_a_whole() {
    let translation = with_servers(&model_route(
        "r",
        "{modelName: m, rules: [{targetModels: [{modelServerName: a}]}], rateLimit: {inputTokensPerUnit: 1}}",
    ));
    assert!(route(&translation, "r").refused.is_some_and(|what| what.contains("rateLimit")));
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "NotSupported"));
    assert!(message.contains("Remove spec.rateLimit"), "{message}");
    assert!(translation.skipped.is_empty());
}

#[test]
fn a_provider_as_target_is_refused_for_its_share() {
    let translation = ruled(
        "[{targetModels: [{modelServerName: a, weight: 60}, {externalModelProviderName: out, weight: 40}]}]",
    );
    let planned = route(&translation, "r");
    assert_eq!(planned.refused, None);
    let [(first, 60), (PlanTo::Refused(_), 40)] = planned.rules[0].to.as_slice() else {
        panic!("{:?}", planned.rules)
    };
    assert_eq!(first, &to("a"));
    let (value, reason, message) = accepted(&translation);
    assert_eq!((value, reason), ("False", "NotSupported"));
    assert!(message.contains("\"out\""), "{message}");
    let (value, reason, message) = resolved(&translation);
    assert_eq!((value, reason), ("False", "BackendNotFound"));
    assert!(message.contains("ExternalModelProvider \"out\""), "{message}");
}

#[test]
fn targets_that_are_missing_or_of_no_use_are_named() {
    let extra = "---
kind: ModelServer
metadata: {name: broken}
spec: {inferenceEngine: vLLM, workloadPort: {port: 1}}
---
kind: ModelServer
metadata: {name: elsewhere, namespace: elsewhere}
spec: {inferenceEngine: vLLM, workloadSelector: {matchLabels: {app: a}}, workloadPort: {port: 8000}}
";
    let said = |name: &str| {
        let rules = format!("[{{targetModels: [{{modelServerName: a}}, {{modelServerName: {name}}}]}}]");
        let route = model_route("r", &format!("{{modelName: m, rules: {rules}}}"));
        let translation = with_servers(&format!("{extra}{route}"));
        assert_eq!(accepted(&translation).0, "True", "{name}");
        let (value, reason, message) = resolved(&translation);
        (value.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(said("b").1, "ResolvedRefs");
    for (name, reason, part) in [
        ("absent", "BackendNotFound", "Namespace default does not have ModelServer \"absent\""),
        ("elsewhere", "BackendNotFound", "ModelServer \"elsewhere\""),
        ("broken", "BackendNotFound", "Not in use are the ModelServers \"broken\""),
    ] {
        let (value, said, message) = said(name);
        assert_eq!((value.as_str(), said.as_str()), ("False", reason), "{name}");
        assert!(message.contains(part) && !message.contains("\"a\""), "{message}");
    }
}

#[test]
fn a_route_without_rules_takes_nothing_and_says_so() {
    let translation = ruled("[]");
    assert!(route(&translation, "r").rules.is_empty());
    let (value, _, message) = accepted(&translation);
    assert!(value == "True" && message.contains("no rules"), "{message}");
}

#[test]
fn what_cannot_be_read_or_breaks_a_rule_is_left_out_and_told_why() {
    let route = |spec: &str| model_route("r", spec);
    let target = "rules: [{targetModels: [{modelServerName: a}]}]";
    for (broken, part) in [
        ("---\nkind: ModelRoute\nmetadata: {name: r}\n".to_owned(), "the object: missing field `spec`"),
        (route("null"), "spec"),
        (route("{}"), "either modelName or loraAdapters"),
        (route(&format!("{{loraAdapters: [x, \"\"], {target}}}")), "spec.loraAdapters[1]: Invalid value"),
        (route("{modelName: m, rules: [null]}"), "spec.rules[0]"),
        (route("{modelName: m, rules: [{targetModels: [null]}]}"), "spec.rules[0].targetModels[0]"),
        (route("{modelName: m, rules: [{targetModels: []}]}"), "spec.rules[0].targetModels: Required value"),
        (route("{modelName: m, rules: [{targetModels: [{}]}]}"), "exactly one of"),
        (
            route("{modelName: m, rules: [{targetModels: [{modelServerName: a, weight: heavy}]}]}"),
            "spec.rules[0].targetModels[0].weight",
        ),
        (
            route("{loraAdapters: [x], rules: [{targetModels: [{externalModelProviderName: p}]}]}"),
            "lora routes must target modelServerName",
        ),
    ] {
        let fine = model_route("unhurt", &format!("{{modelName: m, {target}}}"));
        let translation = with_servers(&format!("{broken}{fine}"));
        let (value, reason, message) = accepted(&translation);
        assert_eq!((value, reason), ("False", "Invalid"), "{broken}");
        assert!(message.contains(part), "{part}: {message}");
        let planned: Vec<&str> = translation.plan.routes.iter().map(|route| &*route.id.name).collect();
        assert_eq!(planned, ["unhurt"], "{broken}");
        let skipped: Vec<String> = translation.skipped.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(skipped, ["default/r"], "{broken}");
    }
}

/// By age, then namespace, then name; what else there is about an object, such as its version, does not count.
#[test]
fn routes_are_in_order_of_precedence() {
    let object = |namespace: &str, name: &str, created: &str| {
        format!(
            "---
kind: ModelRoute
metadata: {{name: {name}, namespace: {namespace}, resourceVersion: \"{}\", {created}}}
spec: {{modelName: m, rules: []}}
",
            9 - name.len()
        )
    };
    let at = |time: &str| format!("creationTimestamp: \"2026-01-01T{time}Z\"");
    let translation = translate(
        &[
            object("z", "first", &at("10:00:00")),
            object("a", "late", &at("10:00:02")),
            object("b", "b", &at("10:00:01")),
            object("b", "aaa", &at("10:00:01")),
            object("a", "z", &at("10:00:01")),
        ]
        .concat(),
    );
    let order: Vec<String> = translation.plan.routes.iter().map(|route| route.id.to_string()).collect();
    assert_eq!(order, ["z/first", "a/z", "b/aaa", "b/b", "a/late"]);
}

#[test]
fn messages_stay_short_however_long_a_route_is() {
    let target = format!("{{modelServerName: {}}}", "x".repeat(200));
    let rule =
        format!("{{modelMatch: {{uri: {{regex: '({}'}}}}, targetModels: [{target}]}}", "a".repeat(5_000));
    let translation = ruled(&format!("[{}]", vec![rule; 16].join(", ")));
    for message in [accepted(&translation).2, resolved(&translation).2] {
        assert!(message.len() < 5_000, "{} bytes", message.len());
    }
}
