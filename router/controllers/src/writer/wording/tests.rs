use kvasir_api::ParentReference;
use kvasir_api::gateway::{GatewayAddress, RouteGroupKind};
use kvasir_state::plan::ObjectName;

use super::*;

const OURS: &str = "volcano.sh/kthena-router";

fn status(kind: StatusKind, said: Said) -> Status {
    Status { kind, name: ObjectName::new("n", "o"), generation: Some(3), said }
}

fn accepted(value: &'static str) -> Verdict {
    Verdict { kind: "Accepted", value, reason: "Reason", message: "words".to_owned() }
}

fn now() -> Timestamp {
    "2026-11-30T10:00:00Z".parse().expect("a time")
}

/// The condition `Accepted` as it is written.
fn written(value: &str, generation: i64, since: &str) -> Value {
    json!({"type": "Accepted", "status": value, "reason": "Reason", "message": "words",
        "observedGeneration": generation, "lastTransitionTime": since})
}

fn parent(name: &str) -> ParentReference {
    ParentReference { name: name.to_owned(), ..ParentReference::default() }
}

const BEFORE: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-11-30T10:00:00Z";

#[test]
fn a_condition_keeps_its_time_while_its_value_stays() {
    let wanted = status(StatusKind::ModelRoute, Said::Conditions(vec![accepted("True")]));
    for (found, since) in [
        (json!(null), NOW),
        (json!({}), NOW),
        (json!({"conditions": [written("True", 2, BEFORE)]}), BEFORE),
        (json!({"conditions": [written("False", 3, BEFORE)]}), NOW),
        (json!({"conditions": [{"type": "Accepted", "status": "True"}]}), NOW),
    ] {
        assert_eq!(
            wording(&found, &wanted, OURS, now()),
            json!({"conditions": [written("True", 3, since)], "observedGeneration": 3}),
            "{found}"
        );
    }
}

#[test]
fn foreign_conditions_stay_where_the_list_is_shared() {
    let foreign = json!({"type": "Foreign", "status": "True", "extra": 1});
    let found = json!({"conditions": [foreign, written("True", 3, BEFORE)]});
    let verdicts = || vec![accepted("True")];
    let said = Said::GatewayClass { conditions: verdicts(), features: vec!["Gateway", "HTTPRoute"] };
    let class = status(StatusKind::GatewayClass, said);
    let shared = json!({"conditions": [foreign, written("True", 3, BEFORE)],
        "supportedFeatures": [{"name": "Gateway"}, {"name": "HTTPRoute"}]});
    assert_eq!(wording(&found, &class, OURS, now()), shared);
    let said = Said::Gateway { conditions: verdicts(), addresses: Vec::new(), listeners: Vec::new() };
    let gateway = status(StatusKind::Gateway, said);
    assert_eq!(wording(&found, &gateway, OURS, now())["conditions"], shared["conditions"]);
    // The conditions of kthena's kinds are ours alone.
    let server = status(StatusKind::ModelServer, Said::Conditions(verdicts()));
    assert_eq!(wording(&found, &server, OURS, now())["conditions"], json!([written("True", 3, BEFORE)]));
}

#[test]
fn parents_of_other_controllers_are_theirs() {
    let theirs = json!({"parentRef": {"name": "g"}, "controllerName": "other/controller", "new": {"a": 1}});
    let placeholder = json!({"parentRef": {"kind": "Status", "name": "default"}});
    let ours = json!({"parentRef": {"group": GATEWAY_GROUP, "kind": "Gateway", "name": "g"},
        "controllerName": OURS, "conditions": [written("True", 2, BEFORE)]});
    let gone = json!({"parentRef": {"name": "gone"}, "controllerName": OURS, "conditions": []});
    let found = json!({"parents": [theirs, ours, gone, placeholder]});
    let said = Said::Parents(vec![ParentSaid { parent: parent("g"), conditions: vec![accepted("True")] }]);
    let wanted = wording(&found, &status(StatusKind::HttpRoute, said), OURS, now());
    assert_eq!(
        wanted,
        json!({"parents": [theirs, placeholder, {"parentRef": {"name": "g"}, "controllerName": OURS,
            "conditions": [written("True", 3, BEFORE)]}]})
    );
    let none = wording(&found, &status(StatusKind::InferencePool, Said::Parents(Vec::new())), OURS, now());
    assert_eq!(none, json!({"parents": [theirs, placeholder]}));
}

#[test]
fn a_gateway_has_addresses_and_listeners() {
    let said = Said::Gateway {
        conditions: vec![accepted("True")],
        addresses: vec![GatewayAddress { kind: None, value: Some("10.0.0.1".to_owned()) }],
        listeners: vec![ListenerSaid {
            name: "http".to_owned(),
            supported_kinds: vec![RouteGroupKind { group: None, kind: "HTTPRoute".to_owned() }],
            attached_routes: 2,
            conditions: vec![accepted("False")],
        }],
    };
    let found = json!({"listeners": [
        {"name": "http", "attachedRoutes": 0, "conditions": [written("False", 1, BEFORE)]}, {"name": "old"}]});
    let wanted = wording(&found, &status(StatusKind::Gateway, said), OURS, now());
    assert_eq!(
        wanted,
        json!({
            "conditions": [written("True", 3, NOW)],
            "addresses": [{"value": "10.0.0.1"}],
            "listeners": [{"name": "http", "supportedKinds": [{"kind": "HTTPRoute"}], "attachedRoutes": 2,
                "conditions": [written("False", 3, BEFORE)]}],
        })
    );
    // What the API server makes of it says the same.
    let mut stored = wanted.clone();
    stored["addresses"][0]["type"] = "IPAddress".into();
    stored["listeners"][0]["supportedKinds"][0]["group"] = GATEWAY_GROUP.into();
    assert!(says(&stored, &wanted));
    stored["listeners"][0]["attachedRoutes"] = 3.into();
    assert!(!says(&stored, &wanted));
}

#[test]
fn what_does_not_count_makes_no_difference() {
    let condition = |kind: &str, message: &str, since: &str| json!({"type": kind, "status": "True", "message": message, "lastTransitionTime": since});
    let wanted = json!({"conditions": [condition("A", "a", NOW), condition("B", "b", NOW)]});
    let found = |conditions: Value| json!({"conditions": conditions, "supportedFeatures": [{"name": "x"}]});
    for (found, same) in [
        (found(json!([condition("A", "a", BEFORE), condition("B", "b", BEFORE)])), true),
        (found(json!([condition("B", "b", BEFORE), condition("A", "a", NOW)])), true),
        (found(json!([condition("A", "a", NOW)])), false),
        (found(json!([condition("A", "a", NOW), condition("B", "b", NOW), condition("C", "c", NOW)])), false),
        (found(json!([condition("A", "other", NOW), condition("B", "b", NOW)])), false),
        (json!({}), false),
        (json!(null), false),
    ] {
        assert_eq!(says(&found, &wanted), same, "{found}");
    }
    for nothing in [json!(null), json!({}), json!({"parents": []}), json!({"parents": null})] {
        assert!(says(&nothing, &json!({"parents": []})), "{nothing}");
    }
    let pool = json!({"parents": [{"parentRef": {"name": "g"}}]});
    let stored =
        json!({"parents": [{"parentRef": {"kind": "Gateway", "name": "g", "group": GATEWAY_GROUP}}]});
    assert!(says(&stored, &pool));
    assert!(!says(&json!({"parents": [{"parentRef": {"kind": "Service", "name": "g"}}]}), &pool));
}

#[test]
fn what_was_written_is_what_is_said() {
    let wanted = status(StatusKind::ModelRoute, Said::Conditions(vec![accepted("True")]));
    let first = wording(&Value::Null, &wanted, OURS, now());
    assert!(says(&first, &wording(&first, &wanted, OURS, now())));
    let newer = Status { generation: Some(4), ..wanted };
    assert!(!says(&first, &wording(&first, &newer, OURS, now())), "the generation counts");
}

#[test]
fn a_message_is_cut_between_characters() {
    let long = "ü".repeat(LONGEST_MESSAGE);
    let verdict = Verdict { message: format!("x{long}"), ..accepted("True") };
    let wanted = status(StatusKind::ModelRoute, Said::Conditions(vec![verdict]));
    let written = wording(&Value::Null, &wanted, OURS, now());
    assert_eq!(written["conditions"][0]["message"].as_str().map(str::len), Some(LONGEST_MESSAGE - 1));
}

#[test]
fn what_others_say_of_a_provider_stays() {
    let ready = || Verdict::fails("Ready", "NotSupported", "not yet");
    let said = Said::Conditions(vec![ready(), accepted("False")]);
    let provider = status(StatusKind::ExternalModelProvider, said);
    let credentials = json!({"type": "CredentialsResolved", "status": "True", "reason": "Resolved"});
    let theirs = |value: &str, reason: &str| json!({"type": "Ready", "status": value, "reason": reason});
    let ours = json!({"type": "Ready", "status": "False", "reason": "NotSupported", "message": "not yet",
        "observedGeneration": 3, "lastTransitionTime": NOW});
    let ours_before = json!({"type": "Ready", "status": "False", "reason": "NotSupported", "message": "old",
        "lastTransitionTime": NOW});
    for (found, stays) in [
        (theirs("True", "Ready"), true),
        (theirs("True", "NotSupported"), true),
        (theirs("False", "CredentialsMissing"), true),
        (ours_before, false),
    ] {
        let found = json!({"conditions": [credentials, found.clone()]});
        let wanted = wording(&found, &provider, OURS, now());
        let conditions = wanted["conditions"].as_array().expect("a list");
        assert!(conditions.contains(&credentials), "{wanted}");
        assert!(conditions.contains(&written("False", 3, NOW)), "{wanted}");
        let ready = if stays { &found["conditions"][1] } else { &ours };
        assert!(conditions.contains(ready) && conditions.len() == 3, "{wanted}");
        assert!(says(&wanted, &wording(&wanted, &provider, OURS, now())), "no quarrel: {wanted}");
    }
    let alone = wording(&Value::Null, &provider, OURS, now());
    assert!(
        alone["conditions"].as_array().is_some_and(|all| all.contains(&ours) && all.len() == 2),
        "{alone}"
    );
}
