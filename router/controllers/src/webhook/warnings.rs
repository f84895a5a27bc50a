//! What the author of an accepted object should know: parts of it that are not served yet.

use kvasir_api::ReviewedKind;
use serde_json::Value;

/// Warnings that one object gets at most; a client prints each on a line of its own.
const MOST_WARNINGS: usize = 8;

/// Sentences about parts of an object that are accepted and not served. Each is short: an API server cuts those over 256
/// bytes.
pub fn warnings(kind: ReviewedKind, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let mut found = match kind {
        ReviewedKind::ModelRoute => of_model_route(spec),
        ReviewedKind::ModelServer if !spec["workloadSelector"]["pdGroup"].is_null() => {
            vec![unserved("spec.workloadSelector.pdGroup", "prefill/decode disaggregation", "this server")]
        }
        ReviewedKind::ModelServer => Vec::new(),
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
        let server = json!({"spec": {"workloadSelector": {"pdGroup": {"groupKey": "g"}}}});
        assert!(
            warnings(ReviewedKind::ModelServer, &server)[0].starts_with("spec.workloadSelector.pdGroup: ")
        );
        let provider = json!({"spec": {}});
        assert!(warnings(ReviewedKind::ExternalModelProvider, &provider)[0].contains("names this provider"));
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
