//! Label selectors of Kubernetes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Whether `labels` fulfil every requirement. A selector without any selects everything; one that Kubernetes would call
/// invalid selects nothing.
pub(super) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    equal.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|requirement| fulfils(labels, requirement))
}

fn fulfils(labels: &BTreeMap<String, String>, requirement: &LabelSelectorRequirement) -> bool {
    let value = labels.get(&requirement.key);
    let wanted = requirement.values.as_deref().unwrap_or_default();
    match (requirement.operator.as_str(), wanted) {
        ("In", [_, ..]) => value.is_some_and(|value| wanted.contains(value)),
        // A label that is absent is not among the values either.
        ("NotIn", [_, ..]) => value.is_none_or(|value| !wanted.contains(value)),
        ("Exists", []) => value.is_some(),
        ("DoesNotExist", []) => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_operator() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        let expression = |key: &str, operator: &str, values: &[&str]| {
            let expression = json!({"key": key, "operator": operator, "values": values});
            json!({"matchExpressions": [expression]})
        };
        for (selector, selected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "1", "b": ""}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (json!({"matchLabels": {"c": ""}}), false),
            (expression("a", "In", &["0", "1"]), true),
            (expression("a", "In", &["0"]), false),
            (expression("c", "In", &["0"]), false),
            (expression("a", "In", &[]), false),
            (expression("a", "NotIn", &["0"]), true),
            (expression("a", "NotIn", &["1"]), false),
            (expression("c", "NotIn", &["1"]), true),
            (expression("c", "NotIn", &[]), false),
            (expression("b", "Exists", &[]), true),
            (expression("c", "Exists", &[]), false),
            (expression("a", "Exists", &["1"]), false),
            (expression("c", "DoesNotExist", &[]), true),
            (expression("a", "DoesNotExist", &[]), false),
            (expression("a", "Gt", &["0"]), false),
            (
                json!({"matchLabels": {"a": "1"},
                    "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
                false,
            ),
        ] {
            let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(selects(&read, &labels), selected, "{selector}");
        }
    }
}
