use std::time::Duration;

use kvasir_core::Role;
use kvasir_state::plan::{RetryPolicy, UpstreamTls};

use super::*;
use crate::status::Verdict;
use crate::translate::Translation;
use crate::translate::testing::{pod, server, state, status, translate, verdict};

mod pairs;

const KIND: StatusKind = StatusKind::ModelServer;

/// A ModelServer of `default` that selects `app: m`; `spec` holds the rest of its fields, indented by two.
fn model_server(name: &str, spec: &str) -> String {
    let rest = spec.replace('\n', "\n  ");
    format!(
        "---
kind: ModelServer
metadata: {{name: {name}, generation: 3}}
spec:
  inferenceEngine: vLLM
  workloadSelector: {{matchLabels: {{app: m}}}}
  workloadPort: {{port: 8000}}
  {rest}
"
    )
}

fn accepted<'a>(translation: &'a Translation, name: &str) -> &'a Verdict {
    verdict(translation, KIND, name, "Accepted")
}

fn endpoints(translation: &Translation, name: &str) -> Vec<String> {
    server(translation, name).endpoints.iter().map(|endpoint| endpoint.id.to_string()).collect()
}

#[test]
fn a_server_becomes_a_target_with_its_pods() {
    let translation = translate(&format!(
        "{}{}{}{}{}",
        model_server("s", "model: org/m"),
        pod("b", "10.0.0.2", "app: m, version: v1"),
        pod("a", "10.0.0.1", "app: m"),
        pod("other", "10.0.0.3", "app: n"),
        pod("far", "10.0.0.4", "app: m").replace("name: far", "name: far, namespace: elsewhere"),
    ));
    let target = server(&translation, "s");
    assert_eq!(target.served.as_ref().map(ModelName::as_str), Some("org/m"));
    assert_eq!(target.index_model.as_str(), "org/m");
    assert_eq!(endpoints(&translation, "s"), ["default/a:8000", "default/b:8000"]);
    let second = &target.endpoints[1];
    assert_eq!(second.address.url(), "http://10.0.0.2:8000");
    assert_eq!((second.engine, second.role, second.pin_rank), (EngineKind::Vllm, Role::Both, false));
    assert_eq!(second.labels.get("version").map(String::as_str), Some("v1"));
    assert_eq!(second.started_at, Some(1_767_225_600));
    assert!(second.ready);
    assert_eq!((target.timeout, target.retry, &target.tls, target.refused), (None, None, &None, None));
    assert_eq!(status(&translation, KIND, "s").generation, Some(3));
    for condition in ["Accepted", "ResolvedRefs"] {
        let verdict = verdict(&translation, KIND, "s", condition);
        assert_eq!((verdict.value, verdict.reason), ("True", condition));
    }
}

#[test]
fn a_pod_that_is_not_ready_keeps_its_place_and_one_that_is_gone_does_not() {
    let yaml = [
        model_server("s", "model: m"),
        pod("ready", "10.0.0.1", "app: m"),
        pod("starting", "10.0.0.2", "app: m").replace("status: \"True\"", "status: \"False\""),
        pod("leaving", "10.0.0.3", "app: m")
            .replace("name: leaving", "name: leaving, deletionTimestamp: \"2026-01-01T00:00:00Z\""),
        pod("over", "10.0.0.4", "app: m").replace("Running", "Succeeded"),
        pod("unplaced", "", "app: m").replace("Running", "Pending"),
    ];
    let translation = translate(&yaml.concat());
    let target = server(&translation, "s");
    let standing: Vec<(&str, bool)> =
        target.endpoints.iter().map(|endpoint| (&*endpoint.id.pod, endpoint.ready)).collect();
    assert_eq!(standing, [("leaving", false), ("ready", true), ("starting", false)]);
    assert_eq!(state(&translation).target(&target.id).map(|target| target.endpoints().len()), Some(1));
}

#[test]
fn ranks_and_address_families_make_endpoints() {
    let ranked = pod("p", "fd00::5", "app: m")
        .replace("name: p,", "name: p, annotations: {kvasir.io/data-parallel-ranks: \"2\"},");
    let translation = translate(&format!("{}{ranked}", model_server("s", "model: m")));
    assert_eq!(endpoints(&translation, "s"), ["default/p:8000", "default/p:8000#1"]);
    let endpoint = &server(&translation, "s").endpoints[1];
    assert_eq!(endpoint.address.url(), "http://[fd00::5]:8000");
    assert!(endpoint.pin_rank, "vLLM takes the rank by header");
    let sglang = model_server("s", "model: m").replace("vLLM", "SGLang");
    let translation = translate(&format!("{sglang}{ranked}"));
    let endpoint = &server(&translation, "s").endpoints[1];
    assert_eq!((endpoint.engine, endpoint.pin_rank), (EngineKind::Sglang, false));
}

#[test]
fn pods_in_the_hosts_network_share_an_address_and_stay_apart() {
    let translation = translate(&format!(
        "{}{}{}{}",
        model_server("s", "model: m"),
        model_server("other-port", "model: m").replace("port: 8000", "port: 8001"),
        pod("a", "10.0.0.1", "app: m"),
        pod("b", "10.0.0.1", "app: m"),
    ));
    assert_eq!(endpoints(&translation, "s"), ["default/a:8000", "default/b:8000"]);
    assert_eq!(endpoints(&translation, "other-port"), ["default/a:8001", "default/b:8001"]);
    assert_eq!(state(&translation).endpoints().len(), 4);
}

/// What the name of the model is filed under, where the server does not name it.
#[test]
fn an_unnamed_model_is_known_by_the_oldest_route_to_it_or_by_the_servers_name() {
    let route = |name: &str, created: &str, model: &str, namespace: &str| {
        format!(
            "---
kind: ModelRoute
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: \"2026-01-01T{created}Z\"}}
spec:
  {model}
  rules: [{{targetModels: [{{modelServerName: s}}]}}]
"
        )
    };
    let routes = [
        route("a-younger", "11:00:00", "modelName: younger", "default"),
        route("older", "10:00:00", "modelName: older", "default"),
        route("oldest", "09:00:00", "loraAdapters: [adapter]", "default"),
        route("elsewhere", "08:00:00", "modelName: elsewhere", "elsewhere"),
    ];
    let index_model = |spec: &str, routes: &str| {
        let translation = translate(&format!("{}{routes}", model_server("s", spec)));
        server(&translation, "s").index_model.to_string()
    };
    assert_eq!(index_model("", &routes.concat()), "older");
    assert_eq!(index_model("model: served", &routes.concat()), "served");
    assert_eq!(index_model("", &routes[2..].concat()), "s", "an adapter's name is no model's");
    let empty = translate(&model_server("s", "model: \"\""));
    assert_eq!(server(&empty, "s").served, None, "an empty name is none");
}

#[test]
fn policies_are_planned() {
    let translation = translate(&model_server(
        "s",
        "model: m
trafficPolicy:
  timeout: 1m30s
  retry: {attempts: 3, retryInterval: 250ms}",
    ));
    let target = server(&translation, "s");
    assert_eq!(target.timeout, Some(Duration::from_secs(90)));
    let retry = RetryPolicy { attempts: 3, interval: Duration::from_millis(250) };
    assert_eq!(target.retry, Some(retry));
    for (policy, timeout, retry) in [
        ("{}", None, None),
        ("{timeout: 0s}", None, None),
        ("{retry: {attempts: 0}}", None, Some((0, 100))),
        ("{retry: {attempts: 2}}", None, Some((2, 100))),
        ("{retry: {}}", None, Some((4, 100))),
        ("{timeout: 10s, retry: {retryInterval: 0s}}", Some(10), Some((4, 0))),
    ] {
        let translation = translate(&model_server("s", &format!("trafficPolicy: {policy}")));
        let target = server(&translation, "s");
        assert_eq!(target.timeout.map(|timeout| timeout.as_secs()), timeout, "{policy}");
        let planned = target.retry.map(|retry| (retry.attempts, retry.interval.as_millis()));
        assert_eq!(planned, retry, "{policy}");
    }
}

#[test]
fn https_is_unverified_unless_an_annotation_names_the_certificate() {
    let secure = model_server("s", "model: m").replace("port: 8000", "port: 8443, protocol: https");
    let annotated = |name: &str, yaml: &str| {
        yaml.replace("name: s,", &format!("name: s, annotations: {{kvasir.io/tls-server-name: \"{name}\"}},"))
    };
    assert_eq!(server(&translate(&secure), "s").tls, Some(UpstreamTls::Unverified));
    for name in ["engine.models.svc", "10.0.0.1"] {
        let translation = translate(&annotated(name, &secure));
        assert_eq!(server(&translation, "s").tls, Some(UpstreamTls::Verified(name.into())));
    }
    let plain = translate(&annotated("engine", &model_server("s", "model: m")));
    assert_eq!(server(&plain, "s").tls, None);
    for bad in ["", "two words", "https://engine"] {
        let translation = translate(&annotated(bad, &secure));
        assert!(translation.plan.targets.is_empty(), "{bad:?}: a name that no certificate has");
        let message = &accepted(&translation, "s").message;
        assert!(message.contains("kvasir.io/tls-server-name"), "{message}");
    }
}

#[test]
fn a_selector_without_pods_is_told() {
    let translation = translate(&model_server("s", "model: m"));
    let verdict = verdict(&translation, KIND, "s", "ResolvedRefs");
    assert_eq!((verdict.value, verdict.reason), ("False", "NoPods"));
    assert!(verdict.message.contains("namespace default"), "{}", verdict.message);
    assert_eq!(accepted(&translation, "s").value, "True", "it may be scaled to nothing");
    assert!(server(&translation, "s").endpoints.is_empty());
}

/// A status that changes with every pod would be written with every pod.
#[test]
fn pods_that_come_and_go_do_not_change_the_status() {
    let few = format!("{}{}", model_server("s", "model: m"), pod("a", "10.0.0.1", "app: m"));
    let more = format!("{few}{}", pod("b", "10.0.0.2", "app: m").replace("\"True\"", "\"False\""));
    assert_eq!(translate(&few).statuses, translate(&more).statuses);
}

#[test]
fn what_cannot_be_read_or_breaks_a_rule_is_left_out_and_told_why() {
    let selector = "workloadSelector: {matchLabels: {app: m}}";
    let fine = model_server("s", "model: m");
    let grouped = "workloadSelector: {matchLabels: {app: m}, pdGroup: {}}";
    for (broken, part) in [
        ("---\nkind: ModelServer\nmetadata: {name: s}\n".to_owned(), "the object: missing field `spec`"),
        ("---\nkind: ModelServer\nmetadata: {name: s}\nspec: null\n".to_owned(), "spec"),
        ("---\nkind: ModelServer\nmetadata: {name: s}\nspec: []\n".to_owned(), "spec"),
        (fine.replace("vLLM", "TGI"), "spec.inferenceEngine: unknown variant `TGI`"),
        (fine.replace("8000", "80000"), "spec.workloadPort.port"),
        (fine.replace("8000", "0"), "spec.workloadPort.port: Invalid value: 0"),
        (fine.replace(selector, "workloadSelector: null"), "spec.workloadSelector: Required value"),
        (fine.replace(selector, ""), "spec.workloadSelector: Required value"),
        (fine.replace("{app: m}", "{}"), "spec.workloadSelector.matchLabels: Required value"),
        (fine.replace("{app: m}", "null"), "spec.workloadSelector.matchLabels"),
        (fine.replace("{app: m}", "{app: not a label}"), "invalid selector"),
        (fine.replace(selector, grouped), "spec.workloadSelector.pdGroup.groupKey: Required value"),
        (
            model_server("s", "trafficPolicy: {retry: {attempts: -1}}"),
            "spec.trafficPolicy.retry.attempts: Invalid value: -1",
        ),
        (model_server("s", "trafficPolicy: {timeout: soon}"), "spec.trafficPolicy.timeout"),
    ] {
        let translation = translate(&format!("{broken}{}", model_server("unhurt", "model: m")));
        let verdict = accepted(&translation, "s");
        assert_eq!((verdict.value, verdict.reason), ("False", "Invalid"), "{broken}");
        assert!(verdict.message.contains(part), "{part}: {}", verdict.message);
        assert_eq!(translation.plan.targets.len(), 1, "{broken}");
        assert_eq!(server(&translation, "unhurt").served, Some("m".into()));
        let names: Vec<String> = translation.skipped.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["default/s"], "{broken}");
    }
}

/// A pod of several ModelServers is fine; the older one comes first, which decides where they disagree.
#[test]
fn the_younger_of_two_servers_that_disagree_about_a_pod_says_so() {
    let at = |name: &str, created: &str, spec: &str| {
        let created = format!("generation: 3, creationTimestamp: \"2026-01-01T{created}:00Z\"");
        model_server(name, spec).replace("generation: 3", &created)
    };
    let told = |older: &str, younger: &str| {
        let translation = translate(&format!("{older}{younger}{}", pod("p", "10.0.0.1", "app: m")));
        let order: Vec<&str> = translation.plan.targets.iter().map(|target| &*target.id.name.name).collect();
        assert_eq!(order, ["z-older", "a-younger"]);
        assert_eq!(accepted(&translation, "z-older").message, "In use.");
        let verdict = accepted(&translation, "a-younger");
        assert_eq!(verdict.value, "True");
        verdict.message.clone()
    };
    let older = at("z-older", "10:00", "model: m");
    for (younger, part) in [
        (at("a-younger", "11:00", "model: m"), None),
        (at("a-younger", "11:00", ""), None),
        (at("a-younger", "11:00", "model: n").replace("8000", "9000"), None),
        (at("a-younger", "11:00", "model: n"), Some("model \"m\"")),
        (at("a-younger", "11:00", "model: m").replace("vLLM", "SGLang"), Some("engine vLLM")),
        (at("a-younger", "11:00", "model: m").replace("8000", "8000, protocol: https"), Some("over http")),
    ] {
        let message = told(&older, &younger);
        match part {
            None => assert_eq!(message, "In use.", "{younger}"),
            Some(part) => assert!(message.contains(part) && message.contains("z-older"), "{message}"),
        }
    }
}
