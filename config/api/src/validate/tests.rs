use serde_json::{Value, json};

use super::base_url::{BaseUrl, read_base_url};
use super::external_model_provider::RESERVED_HEADERS;
use crate::field_error::FieldError;
use crate::read::read_object;
use crate::review::{ReviewedKind, review};
use crate::{validate_external_model_provider, validate_model_route, validate_model_server};

fn lines(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn route(spec: Value) -> Vec<String> {
    let object = json!({"metadata": {"name": "r"}, "spec": spec});
    lines(&validate_model_route(&read_object(&object).unwrap()))
}

fn server(selector: Value) -> Vec<String> {
    let mut spec = json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 8000}});
    spec["workloadSelector"] = selector;
    let object = json!({"metadata": {"name": "s"}, "spec": spec});
    lines(&validate_model_server(&read_object(&object).unwrap()))
}

fn provider(spec: Value) -> Vec<String> {
    let object = json!({"metadata": {"name": "p"}, "spec": spec});
    lines(&validate_external_model_provider(&read_object(&object).unwrap()))
}

fn targets(targets: Value) -> Value {
    json!({"modelName": "m", "rules": [{"targetModels": targets}]})
}

fn matching(matching: Value) -> Value {
    json!({"modelName": "m", "rules": [{"modelMatch": matching, "targetModels": [{"modelServerName": "s"}]}]})
}

#[test]
fn every_rule_of_a_model_route() {
    let rule = json!([{"targetModels": [{"modelServerName": "s"}]}]);
    let neither = "spec: Required value: either modelName or loraAdapters must be specified";
    let empty = |index: usize| {
        format!(
            "spec.loraAdapters[{index}]: Invalid value: \"\": lora adapter name cannot be an empty string"
        )
    };
    let exactly = |place: &str, both: &str| {
        format!(
            "spec.rules[0].targetModels[{place}]: Invalid value: \"{both}\": exactly one of modelServerName or externalModelProviderName must be set"
        )
    };
    let table: Vec<(Value, Vec<String>)> = vec![
        (json!({"modelName": "m", "rules": rule}), vec![]),
        (json!({"modelName": "m", "rules": []}), vec![]),
        (json!({"loraAdapters": ["a"], "rules": rule}), vec![]),
        (json!({"rules": rule}), vec![neither.to_owned()]),
        (json!({"modelName": "", "loraAdapters": [], "rules": rule}), vec![neither.to_owned()]),
        (json!({"loraAdapters": ["", "b", ""], "rules": rule}), vec![empty(0), empty(2)]),
        (
            json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}]}, {"targetModels": []}, {}]}),
            vec![
                "spec.rules[1].targetModels: Required value: each rule must have at least one target model".to_owned(),
                "spec.rules[2].targetModels: Required value: each rule must have at least one target model".to_owned(),
            ],
        ),
        (
            json!({"modelName": "m", "rules": [{"targetModels": [], "modelMatch": {"uri": {"regex": "["}}}]}),
            vec!["spec.rules[0].targetModels: Required value: each rule must have at least one target model".to_owned()],
        ),
        (targets(json!([{"modelServerName": ""}])), vec![exactly("0", "/")]),
        (
            targets(json!([{"modelServerName": "a"}, {"modelServerName": "b", "externalModelProviderName": "c"}])),
            vec![exactly("1", "b/c")],
        ),
        (
            json!({"loraAdapters": ["a"], "rules": [{"targetModels": [{"externalModelProviderName": "p"}]}]}),
            vec!["spec.rules[0].targetModels[0].externalModelProviderName: Invalid value: \"p\": lora routes must target modelServerName".to_owned()],
        ),
        (targets(json!([{"modelServerName": "a"}, {"modelServerName": "b", "weight": 0}])), vec![]),
        (
            targets(json!([{"modelServerName": "a", "weight": 0}, {"modelServerName": "b", "weight": 0}])),
            vec!["spec.rules[0].targetModels: Invalid value: 0: total weight must be greater than zero".to_owned()],
        ),
        (matching(json!({"headers": {"tier": {"regex": "^g.*"}}, "uri": {"regex": "/v1/{id}"}})), vec![]),
        (
            matching(json!({"headers": {"tier": {"exact": "x", "regex": "["}}})),
            vec!["spec.rules[0].modelMatch.headers[tier].regex: Invalid value: \"[\": error parsing regexp: missing closing ]: `[`".to_owned()],
        ),
        (
            matching(json!({"uri": {"regex": "a(b"}})),
            vec!["spec.rules[0].modelMatch.uri.regex: Invalid value: \"a(b\": error parsing regexp: missing closing ): `a(b`".to_owned()],
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(route(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn every_rule_of_a_model_server() {
    let at_least = |field: &str| {
        format!("spec.workloadSelector.{field}: Required value: labels must contain at least one label")
    };
    let group = json!({"groupKey": "g", "prefillLabels": {"role": "p"}, "decodeLabels": {"role": "d"}});
    let with = |key: &str, value: Value| {
        let mut group = group.clone();
        group[key] = value;
        json!({"matchLabels": {"app": "a"}, "pdGroup": group})
    };
    assert_eq!(server(json!({"matchLabels": {"app": "a"}, "pdGroup": group})), Vec::<String>::new());
    assert_eq!(
        server(Value::Null),
        ["spec.workloadSelector: Required value: workloadSelector must be specified"]
    );
    assert_eq!(server(json!({})), [at_least("matchLabels")]);
    assert_eq!(server(with("prefillLabels", json!({}))), [at_least("pdGroup.prefillLabels")]);
    assert_eq!(server(with("decodeLabels", json!({}))), [at_least("pdGroup.decodeLabels")]);
    assert_eq!(
        server(with("groupKey", json!(""))),
        ["spec.workloadSelector.pdGroup.groupKey: Required value: groupKey must be specified"]
    );
    assert_eq!(
        server(json!({"pdGroup": {}})),
        [
            at_least("matchLabels"),
            "spec.workloadSelector.pdGroup.groupKey: Required value: groupKey must be specified".to_owned(),
            at_least("pdGroup.prefillLabels"),
            at_least("pdGroup.decodeLabels"),
        ]
    );
    for (selector, field, beginning) in [
        (
            json!({"matchLabels": {"a b": "c", "z": "y"}}),
            "matchLabels",
            r#"{"a b":"c","z":"y"}: invalid selector: key: Invalid value: "a b": "#,
        ),
        (
            with("prefillLabels", json!({"k": "a/b"})),
            "pdGroup.prefillLabels",
            r#"{"k":"a/b"}: invalid selector: values[0][k]: Invalid value: "a/b": "#,
        ),
        (
            with("decodeLabels", json!({"": "a"})),
            "pdGroup.decodeLabels",
            r#"{"":"a"}: invalid selector: key: Invalid value: "": "#,
        ),
    ] {
        let errors = server(selector);
        let expected = format!("spec.workloadSelector.{field}: Invalid value: {beginning}");
        assert!(errors.len() == 1 && errors.iter().all(|error| error.starts_with(&expected)), "{errors:?}");
    }
}

#[test]
fn every_rule_of_an_external_model_provider() {
    let auth = |auth: Value| json!({"baseURL": "https://a", "auth": auth});
    let secret = |secret: Value| auth(json!({"secretRef": secret}));
    let header = |name: &str, value: &str| json!({"baseURL": "https://a", "headers": {name: value}});
    let table: Vec<(Value, Vec<&str>)> = vec![
        (json!({"baseURL": "https://a/v1", "providerType": "Anthropic", "headers": {"X-Team": "a"}}), vec![]),
        (
            json!({"baseURL": "https://a", "providerType": "X"}),
            vec![r#"spec.providerType: Unsupported value: "X": supported values: "OpenAI", "Anthropic""#],
        ),
        (json!({"baseURL": "https://a", "providerType": ""}), vec![]),
        (
            json!({"baseURL": "http://a"}),
            vec![r#"spec.baseURL: Invalid value: "http://a": baseURL must use https"#],
        ),
        (json!({}), vec![r#"spec.baseURL: Invalid value: "": baseURL must use https"#]),
        (
            json!({"baseURL": "https://u:p@a"}),
            vec![
                r#"spec.baseURL: Invalid value: "https://u:p@a": baseURL must not contain userinfo, query, or fragment"#,
            ],
        ),
        (header("a b", "\n"), vec![r#"spec.headers[a b]: Invalid value: "a b": header name is invalid"#]),
        (
            header("Cookie", "c"),
            vec![
                r#"spec.headers[Cookie]: Invalid value: "Cookie": header is reserved and cannot be configured as a static header"#,
            ],
        ),
        (
            header("X-A", "a\r\nb"),
            vec![r#"spec.headers[X-A]: Invalid value: "a\r\nb": header value must not contain CR or LF"#],
        ),
        (
            header("TE", "\n"),
            vec![
                r#"spec.headers[TE]: Invalid value: "TE": header is reserved and cannot be configured as a static header"#,
                r#"spec.headers[TE]: Invalid value: "\n": header value must not contain CR or LF"#,
            ],
        ),
        (secret(json!({"name": "s", "key": "k"})), vec![]),
        (secret(json!({"name": "s", "key": "k", "optional": false})), vec![]),
        (
            auth(json!({"scheme": "Basic", "secretRef": {"name": "s", "key": "k"}})),
            vec![r#"spec.auth.scheme: Unsupported value: "Basic": supported values: "Bearer", "APIKey""#],
        ),
        (
            secret(json!({"name": "", "optional": true})),
            vec![
                "spec.auth.secretRef.name: Required value: secret name is required",
                "spec.auth.secretRef.key: Required value: secret key is required",
                "spec.auth.secretRef.optional: Invalid value: true: optional must be false or unset",
            ],
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(provider(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn every_reserved_header_is_refused_in_any_case() {
    for name in RESERVED_HEADERS {
        let errors = provider(json!({"baseURL": "https://a", "headers": {name.to_ascii_uppercase(): "v"}}));
        assert!(
            errors.len() == 1 && errors.iter().all(|error| error.contains("reserved")),
            "{name}: {errors:?}"
        );
    }
}

#[test]
fn base_urls_are_judged_as_by_go() {
    // The verdicts come from Go 1.26's `net/url` under kthena's rules.
    let table = [
        ("https://api.deepseek.com", BaseUrl::Fine),
        ("https://a", BaseUrl::Fine),
        ("https://a/", BaseUrl::Fine),
        ("https://a:443/v1", BaseUrl::Fine),
        ("HTTPS://a", BaseUrl::Fine),
        ("https://a:", BaseUrl::Fine),
        ("https://[::1]:8443/x", BaseUrl::Fine),
        ("https://[::1]", BaseUrl::Fine),
        ("https://a?", BaseUrl::Fine),
        ("https://a#", BaseUrl::Fine),
        ("https://ü.example", BaseUrl::Fine),
        ("https://a/%20b", BaseUrl::Fine),
        ("https://a_b", BaseUrl::Fine),
        ("", BaseUrl::NotHttps),
        ("a", BaseUrl::NotHttps),
        ("http://a", BaseUrl::NotHttps),
        ("ftp://a", BaseUrl::NotHttps),
        ("https:a", BaseUrl::NotHttps),
        ("https:/a", BaseUrl::NotHttps),
        ("https://", BaseUrl::NotHttps),
        ("https:///x", BaseUrl::NotHttps),
        ("//a", BaseUrl::NotHttps),
        ("https://a b", BaseUrl::NotHttps),
        ("https://a:x", BaseUrl::NotHttps),
        ("https://a:1:2", BaseUrl::NotHttps),
        ("https://a/\u{1}", BaseUrl::NotHttps),
        ("https://a/%zz", BaseUrl::NotHttps),
        ("https://a%zz", BaseUrl::NotHttps),
        ("https://[::1", BaseUrl::NotHttps),
        ("https://a\\b", BaseUrl::NotHttps),
        ("https://a|b", BaseUrl::NotHttps),
        ("https://a^b", BaseUrl::NotHttps),
        ("https://a{b}", BaseUrl::NotHttps),
        (" https://a", BaseUrl::NotHttps),
        ("https ://a", BaseUrl::NotHttps),
        ("https://@", BaseUrl::NotHttps),
        ("https://u@", BaseUrl::NotHttps),
        ("https://u p@a", BaseUrl::NotHttps),
        ("https://u@a", BaseUrl::TooMuch),
        ("https://u:p@a", BaseUrl::TooMuch),
        ("https://a?q=1", BaseUrl::TooMuch),
        ("https://a/?q", BaseUrl::TooMuch),
        ("https://a#f", BaseUrl::TooMuch),
        ("https://a/x#", BaseUrl::Fine),
        ("https://u@a?q#f", BaseUrl::TooMuch),
        ("https://a/%20?x", BaseUrl::TooMuch),
        ("https://a#%zz", BaseUrl::NotHttps),
        ("https://a?%zz", BaseUrl::TooMuch),
    ];
    for (url, expected) in table {
        assert_eq!(read_base_url(url), expected, "{url:?}");
    }
}

#[test]
fn a_review_gives_the_message_of_kthena() {
    let object = json!({"metadata": {"name": "r"}, "spec": {"rules": [{"targetModels": []}]}});
    assert_eq!(
        review(ReviewedKind::ModelRoute, &object).unwrap().unwrap(),
        "validation failed:\n  - spec: Required value: either modelName or loraAdapters must be specified\n  - spec.rules[0].targetModels: Required value: each rule must have at least one target model"
    );
    let object = json!({"spec": {"inferenceEngine": "vLLM", "workloadPort": {"port": 1}, "workloadSelector": {"pdGroup":
        {"groupKey": "g", "decodeLabels": {"a": "b"}}}}});
    assert_eq!(
        review(ReviewedKind::ModelServer, &object).unwrap().unwrap(),
        "validation failed:   - spec.workloadSelector.matchLabels: Required value: labels must contain at least one label  - spec.workloadSelector.pdGroup.prefillLabels: Required value: labels must contain at least one label"
    );
    let fine = json!({"spec": {"baseURL": "https://a"}});
    assert_eq!(review(ReviewedKind::ExternalModelProvider, &fine).unwrap(), None);
}

#[test]
fn nulls_in_lists_are_told_at_their_places() {
    let object = json!({"spec": {"modelName": "m", "rules": [
        null,
        {"targetModels": [{"modelServerName": "a"}, null]},
        {"targetModels": []},
    ]}});
    let message = review(ReviewedKind::ModelRoute, &object).unwrap().unwrap();
    let mut told: Vec<&str> = message.lines().skip(1).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "  - spec.rules[0]: Invalid value: null: rule must not be nil",
            "  - spec.rules[1].targetModels[1]: Invalid value: null: target model must not be nil",
            "  - spec.rules[2].targetModels: Required value: each rule must have at least one target model",
        ]
    );
    let only_null = json!({"spec": {"modelName": "m", "rules": [{"targetModels": [null]}]}});
    let message = review(ReviewedKind::ModelRoute, &only_null).unwrap().unwrap();
    assert!(
        message.contains("targetModels[0]: Invalid value: null") && message.contains("total weight"),
        "{message}"
    );
}

#[test]
fn an_object_without_a_spec_is_told_what_it_lacks() {
    let bare = json!({"metadata": {"name": "x"}});
    for (kind, part) in [
        (ReviewedKind::ModelRoute, "either modelName or loraAdapters"),
        (ReviewedKind::ModelServer, "workloadSelector must be specified"),
        (ReviewedKind::ExternalModelProvider, "baseURL must use https"),
    ] {
        let message = review(kind, &bare).unwrap().unwrap();
        assert!(message.contains(part), "{}: {message}", kind.name());
    }
    let wrong = review(ReviewedKind::ModelServer, &json!({"spec": []}));
    assert!(wrong.is_err_and(|error| error.field == "spec"));
}
