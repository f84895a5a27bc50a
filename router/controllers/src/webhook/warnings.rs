//! What the author of an accepted object should know: parts of it that are not served yet, or have no effect.

use kvasir_api::ReviewedKind;
use serde_json::Value;

/// Warnings that one object gets at most; a client prints each on a line of its own.
const MOST_WARNINGS: usize = 8;

/// Sentences about parts of an object that are accepted and not served, or without effect. Each is short: an API server cuts those over 256
/// bytes.
pub fn warnings(kind: ReviewedKind, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let mut found = match kind {
        ReviewedKind::ModelRoute => of_model_route(spec),
        ReviewedKind::ModelServer => of_model_server(spec).map(str::to_owned).into_iter().collect(),
        ReviewedKind::ExternalModelProvider => {
            vec![unserved("spec", "an external provider", "a route that names this provider")]
        }
    };
    found.truncate(MOST_WARNINGS);
    found
}

fn of_model_route(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if !spec["rateLimit"].is_null() {
        found.push(unserved("spec.rateLimit", "a rate limit", "this route"));
    }
    let rules = spec["rules"].as_array().into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let targets = rule["targetModels"].as_array().into_iter().flatten();
        for (place, target) in targets.enumerate() {
            if target["externalModelProviderName"].as_str().is_some_and(|name| !name.is_empty()) {
                let field = format!("spec.rules[{index}].targetModels[{place}].externalModelProviderName");
                found.push(unserved(&field, "an external provider", "this target"));
            }
        }
    }
    found
}

/// The same that the object's status will say, in short.
fn of_model_server(spec: &Value) -> Option<&'static str> {
    let grouped = !spec["workloadSelector"]["pdGroup"].is_null();
    let connected = !spec["kvConnector"].is_null();
    match (grouped, connected, spec["inferenceEngine"].as_str()) {
        (false, true, _) => Some("spec.kvConnector has no effect without spec.workloadSelector.pdGroup"),
        (true, false, Some("vLLM")) => Some(
            "spec.kvConnector is absent: http is used, which asks the engines for no KV transfer; set its type to \
             what the engines have",
        ),
        (true, true, Some("SGLang")) => Some(
            "spec.kvConnector replaces SGLang's own way of pairing prefill and decode pods; remove it, whatever \
             transfer backend the engines have",
        ),
        _ => None,
    }
}

fn unserved(field: &str, what: &str, whom: &str) -> String {
    format!("{field}: {what} is not served yet; requests to {whom} are answered with status 503")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_served_gets_none() {
        let route = json!({"spec": {"modelName": "m", "rateLimit": null, "rules": [
            {"targetModels": [{"modelServerName": "a", "externalModelProviderName": ""}]}]}});
        assert_eq!(warnings(ReviewedKind::ModelRoute, &route), Vec::<String>::new());
        let server = json!({"spec": {"workloadSelector": {"matchLabels": {"a": "b"}, "pdGroup": null}}});
        assert_eq!(warnings(ReviewedKind::ModelServer, &server), Vec::<String>::new());
        assert_eq!(warnings(ReviewedKind::ModelRoute, &json!({})), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_served_is_named_by_its_field() {
        let route = json!({"spec": {"rateLimit": {"unit": "second"}, "rules": [
            {"targetModels": [{"modelServerName": "a"}, {"externalModelProviderName": "far"}]}]}});
        assert_eq!(
            warnings(ReviewedKind::ModelRoute, &route),
            [
                "spec.rateLimit: a rate limit is not served yet; requests to this route are answered with status 503",
                "spec.rules[0].targetModels[1].externalModelProviderName: an external provider is not served yet; \
                 requests to this target are answered with status 503",
            ]
        );
        let provider = json!({"spec": {}});
        assert!(warnings(ReviewedKind::ExternalModelProvider, &provider)[0].contains("names this provider"));
    }

    #[test]
    fn a_connector_that_does_not_do_what_it_seems_to_is_told() {
        for (engine, grouped, connector, part) in [
            ("vLLM", true, json!({"type": "nixl"}), None),
            ("vLLM", true, json!({}), None),
            ("SGLang", true, Value::Null, None),
            ("vLLM", false, Value::Null, None),
            ("vLLM", true, Value::Null, Some("no KV transfer")),
            ("SGLang", true, json!({"type": "mooncake"}), Some("replaces SGLang's own way")),
            ("vLLM", false, json!({"type": "nixl"}), Some("no effect")),
            ("SGLang", false, json!({}), Some("no effect")),
        ] {
            let group = if grouped { json!({"groupKey": "g"}) } else { Value::Null };
            let spec = json!({"inferenceEngine": engine, "kvConnector": connector,
                "workloadSelector": {"matchLabels": {"a": "b"}, "pdGroup": group}});
            let found = warnings(ReviewedKind::ModelServer, &json!({"spec": spec}));
            assert_eq!(found.len(), usize::from(part.is_some()), "{spec}");
            assert!(found.iter().all(|text| part.is_some_and(|part| text.contains(part))), "{found:?}");
            assert!(found.iter().all(|text| text.starts_with("spec.kvConnector") && text.len() <= 256));
        }
    }

    #[test]
    fn there_are_never_many_and_none_is_long() {
        let targets: Vec<Value> = (0..100).map(|_| json!({"externalModelProviderName": "p"})).collect();
        let route = json!({"spec": {"rules": [{"targetModels": targets}]}});
        let found = warnings(ReviewedKind::ModelRoute, &route);
        assert_eq!(found.len(), MOST_WARNINGS);
        assert!(found.iter().all(|text| text.len() <= 256), "{found:?}");
    }
}
