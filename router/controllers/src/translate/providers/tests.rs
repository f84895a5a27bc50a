use super::*;
use crate::translate::testing::{status, translate, verdict};

const KIND: StatusKind = StatusKind::ExternalModelProvider;

const FINE: &str = "---
kind: ExternalModelProvider
metadata: {name: p, generation: 2}
spec: {baseURL: https://api.example.com/v1}
";

#[test]
fn a_provider_is_told_that_it_is_not_served_yet() {
    let translation = translate(FINE);
    for condition in ["Accepted", "Ready"] {
        let verdict = verdict(&translation, KIND, "p", condition);
        assert_eq!((verdict.value, verdict.reason), ("False", "NotSupported"), "{condition}");
        assert!(verdict.message.contains("feature_not_available"), "{}", verdict.message);
    }
    assert_eq!(status(&translation, KIND, "p").generation, Some(2));
    assert!(translation.skipped.is_empty());
}

#[test]
fn a_provider_that_is_wrong_besides_is_told_where() {
    for (broken, part) in [
        (FINE.replace("https", "http"), "spec.baseURL: Invalid value"),
        (FINE.replace("https://api.example.com/v1", "[]"), "spec.baseURL"),
        ("---\nkind: ExternalModelProvider\nmetadata: {name: p}\n".to_owned(), "missing field `spec`"),
    ] {
        let translation = translate(&broken);
        let accepted = verdict(&translation, KIND, "p", "Accepted");
        assert_eq!((accepted.value, accepted.reason), ("False", "Invalid"));
        assert!(accepted.message.contains(part), "{}", accepted.message);
        let ready = verdict(&translation, KIND, "p", "Ready");
        assert_eq!((ready.value, ready.reason), ("False", "ConfigurationInvalid"));
        assert_eq!(translation.skipped.len(), 1);
    }
}
