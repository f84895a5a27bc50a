//! ModelServers whose pods prefill and decode for each other.

use kvasir_api::model_server::PdGroup;
use kvasir_core::ConnectorKind;

use super::*;
use crate::translate::testing::state_and_conflicts;

const GROUPS: &str = "{groupKey: group, prefillLabels: {does: p}, decodeLabels: {serves: d}}";

/// A ModelServer with `groups` and what `kvConnector` is; vLLM unless it says SGLang.
fn grouped(name: &str, groups: &str, connector: &str) -> String {
    let connector = if connector.is_empty() { String::new() } else { format!("kvConnector: {connector}") };
    let selector = format!("{{app: m}}, pdGroup: {groups}}}");
    model_server(name, &format!("model: m\n{connector}")).replace("{app: m}}", &selector)
}

fn created(at: &str, yaml: &str) -> String {
    yaml.replace("generation: 3", &format!("generation: 3, creationTimestamp: \"2026-01-01T{at}:00Z\""))
}

/// `pod role` of every endpoint.
fn roles(translation: &Translation, name: &str) -> Vec<String> {
    let role = |role| match role {
        Role::Both => "-",
        Role::Prefill => "P",
        Role::Decode => "D",
    };
    let endpoints = server(translation, name).endpoints.iter();
    endpoints.map(|endpoint| format!("{} {}", endpoint.id.pod, role(endpoint.role))).collect()
}

/// Who the state would let a request choose from.
fn chosen(translation: &Translation, name: &str) -> Vec<String> {
    let (state, _) = state_and_conflicts(translation);
    let target = state.target(&TargetId::model_server("default", name)).expect("a target");
    target.endpoints().map(|endpoint| endpoint.id.pod.to_string()).collect()
}

#[test]
fn pods_get_the_part_that_their_labels_say() {
    let translation = translate(&format!(
        "{}{}{}{}{}{}{}",
        grouped("s", GROUPS, "{type: nixl}"),
        pod("both", "10.0.0.1", "app: m, does: p, serves: d, group: g"),
        pod("decode", "10.0.0.2", "app: m, serves: d, group: g"),
        pod("empty", "10.0.0.3", "app: m, serves: d, group: ''"),
        pod("groupless", "10.0.0.4", "app: m, does: p"),
        pod("neither", "10.0.0.5", "app: m, group: g"),
        pod("prefill", "10.0.0.6", "app: m, does: p, group: g"),
    ));
    let expected = ["both D", "decode D", "empty D", "groupless P", "neither -", "prefill P"];
    assert_eq!(roles(&translation, "s"), expected);
    assert_eq!(chosen(&translation, "s"), ["both", "decode", "prefill"]);
    let target = server(&translation, "s");
    assert_eq!(target.refused, None);
    assert_eq!(target.disaggregation.as_ref().and_then(|pd| pd.group_key.as_deref()), Some("group"));
    let verdict = accepted(&translation, "s");
    assert_eq!((verdict.value, verdict.message.as_str()), ("True", "In use."));
}

#[test]
fn empty_labels_match_no_pod() {
    let labels = crate::translate::testing::labels(&[("does", "p"), ("serves", "d")]);
    let role = |prefill: &[(&str, &str)], decode: &[(&str, &str)]| {
        let groups = PdGroup {
            group_key: "g".to_owned(),
            prefill_labels: crate::translate::testing::labels(prefill),
            decode_labels: crate::translate::testing::labels(decode),
        };
        disaggregation::role(Some(&groups), &labels)
    };
    assert_eq!(role(&[], &[]), Role::Both);
    assert_eq!(role(&[("does", "p")], &[]), Role::Prefill);
    assert_eq!(role(&[], &[("serves", "d")]), Role::Decode);
    assert_eq!(role(&[("does", "p")], &[("serves", "d"), ("more", "")]), Role::Prefill);
    assert_eq!(disaggregation::role(None, &labels), Role::Both);
}

#[test]
fn the_connector_is_what_is_written_or_what_the_engine_does() {
    for (engine, written, expected, part) in [
        ("vLLM", "", ConnectorKind::Http, Some("no KV transfer")),
        ("vLLM", "{}", ConnectorKind::Http, None),
        ("vLLM", "{type: http}", ConnectorKind::Http, None),
        ("vLLM", "{type: lmcache}", ConnectorKind::Lmcache, None),
        ("vLLM", "{type: nixl}", ConnectorKind::Nixl, None),
        ("vLLM", "{type: mooncake}", ConnectorKind::Mooncake, None),
        ("SGLang", "", ConnectorKind::Sglang, None),
        ("SGLang", "{type: mooncake}", ConnectorKind::Mooncake, Some("bootstrap room")),
    ] {
        let translation = translate(&grouped("s", GROUPS, written).replace("vLLM", engine));
        let planned = server(&translation, "s").disaggregation.as_ref().map(|pd| pd.connector);
        assert_eq!(planned, Some(expected), "{engine} {written}");
        let verdict = accepted(&translation, "s");
        assert_eq!(verdict.value, "True");
        match part {
            None => assert_eq!(verdict.message, "In use.", "{engine} {written}"),
            Some(part) => assert!(verdict.message.contains(part), "{}", verdict.message),
        }
    }
    let translation = translate(&model_server("s", "kvConnector: {type: nixl}"));
    assert_eq!(server(&translation, "s").disaggregation, None);
    let verdict = accepted(&translation, "s");
    assert!(verdict.value == "True" && verdict.message.contains("no effect"), "{}", verdict.message);
}

#[test]
fn pods_that_cannot_be_paired_are_told() {
    let decode = pod("d", "10.0.0.1", "app: m, serves: d, group: g");
    let prefill = |group: &str| pod("p", "10.0.0.2", &format!("app: m, does: p, group: {group}"));
    for (pods, reason) in [
        (decode.clone(), "NoPods"),
        (prefill("g"), "NoPods"),
        (format!("{decode}{}", prefill("h")), "NoPods"),
        (format!("{decode}{}", prefill("''")), "NoPods"),
        (format!("{decode}{}", prefill("g")), "ResolvedRefs"),
    ] {
        let translation = translate(&format!("{}{pods}", grouped("s", GROUPS, "{type: nixl}")));
        let verdict = verdict(&translation, KIND, "s", "ResolvedRefs");
        assert_eq!(verdict.reason, reason, "{pods}");
        assert_eq!(reason == "NoPods", verdict.message.contains("the label group"), "{}", verdict.message);
    }
}

/// A changed label counts with the next plan, and leaves nothing behind.
#[test]
fn a_pod_that_changes_its_labels_changes_its_part() {
    let with = |labels: &str| {
        let other = pod("o", "10.0.0.2", "app: m, does: p, group: g");
        let translation = translate(&format!(
            "{}{}{other}",
            grouped("s", GROUPS, "{type: nixl}"),
            pod("a", "10.0.0.1", &format!("app: m, {labels}")),
        ));
        (roles(&translation, "s").join(" "), chosen(&translation, "s").join(" "))
    };
    assert_eq!(with("serves: d, group: g"), ("a D o P".to_owned(), "a o".to_owned()));
    assert_eq!(with("does: p, group: g"), ("a P o P".to_owned(), "a o".to_owned()));
    assert_eq!(with("serves: d, old: g"), ("a D o P".to_owned(), "o".to_owned()));
    assert_eq!(with("group: g"), ("a - o P".to_owned(), "o".to_owned()));
}

#[test]
fn the_younger_of_two_servers_that_give_a_pod_another_part_says_so_and_leaves_it() {
    let turned = "{groupKey: group, prefillLabels: {serves: d}, decodeLabels: {does: p}}";
    let pods = format!(
        "{}{}",
        pod("d", "10.0.0.1", "app: m, serves: d, group: g"),
        pod("p", "10.0.0.2", "app: m, does: p, group: g")
    );
    let older = created("10:00", &grouped("older", GROUPS, "{type: nixl}"));
    let younger = created("11:00", &grouped("a-younger", turned, "{type: nixl}"));
    let translation = translate(&format!("{older}{younger}{pods}"));
    assert_eq!(accepted(&translation, "older").message, "In use.");
    let message = &accepted(&translation, "a-younger").message;
    assert!(message.contains("\"older\"") && message.contains("one part"), "{message}");
    assert_eq!(chosen(&translation, "older"), ["d", "p"]);
    assert!(chosen(&translation, "a-younger").is_empty());
    assert_eq!(state_and_conflicts(&translation).1.len(), 2, "the log names the pods");

    let whole = created("11:00", &model_server("a-younger", "model: m"));
    let translation = translate(&format!("{older}{whole}{pods}"));
    assert_eq!(accepted(&translation, "a-younger").message, "In use.", "whole requests may go anywhere");
    assert_eq!(chosen(&translation, "a-younger"), ["d", "p"]);
}
