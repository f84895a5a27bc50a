use serde_json::json;

use super::*;

fn review_of(operation: &str, object: Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "705ab4f5", "operation": operation, "object": object, "oldObject": null,
            "userInfo": {"username": "u"}},
    })
}

fn route(spec: Value) -> Value {
    json!({"apiVersion": "networking.serving.volcano.sh/v1alpha1", "kind": "ModelRoute",
        "metadata": {"name": "r", "namespace": "n"}, "spec": spec})
}

fn good() -> Value {
    route(json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}]}]}))
}

fn answered(kind: ReviewedKind, review: &Value) -> Result<Value, Malformed> {
    answer(kind, review.to_string().as_bytes()).map(|body| serde_json::from_slice(&body).unwrap())
}

#[test]
fn the_same_review_comes_back_with_a_response() {
    let review = review_of("CREATE", good());
    let answer = answered(ReviewedKind::ModelRoute, &review).unwrap();
    let mut expected = review;
    expected["response"] = json!({"uid": "705ab4f5", "allowed": true});
    assert_eq!(answer, expected);
}

#[test]
fn a_request_goes_back_byte_for_byte() {
    let request = r#"{ "uid":"1", "operation":"DELETE", "object":null, "x":1.50, "y":"\u0041" }"#;
    let body = format!(r#"{{"request":{request},"other":[]}}"#);
    let answer = String::from_utf8(answer(ReviewedKind::ModelServer, body.as_bytes()).unwrap()).unwrap();
    assert_eq!(
        answer,
        format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{request},"response":{{"uid":"1","allowed":true}}}}"#
        )
    );
}

#[test]
fn a_refusal_has_kthenas_message_and_no_warnings() {
    let object = route(json!({"rateLimit": {"unit": "second"}, "rules": [{"targetModels": []}]}));
    let answer = answered(ReviewedKind::ModelRoute, &review_of("UPDATE", object)).unwrap();
    assert_eq!(
        answer["response"],
        json!({"uid": "705ab4f5", "allowed": false, "status": {"message":
            "validation failed:\n  - spec: Required value: either modelName or loraAdapters must be specified\n  \
             - spec.rules[0].targetModels: Required value: each rule must have at least one target model"}})
    );
}

#[test]
fn what_is_accepted_and_not_served_is_warned_of() {
    let mut object = good();
    object["spec"]["rateLimit"] = json!({"unit": "second", "inputTokensPerUnit": 5});
    let answer = answered(ReviewedKind::ModelRoute, &review_of("CREATE", object)).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    let warnings = answer["response"]["warnings"].as_array().unwrap();
    assert!(warnings[0].as_str().unwrap().starts_with("spec.rateLimit: "), "{warnings:?}");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn each_kind_is_judged_by_its_own_rules() {
    let server = json!({"kind": "ModelServer", "metadata": {"name": "s"}});
    let answer = answered(ReviewedKind::ModelServer, &review_of("CREATE", server)).unwrap();
    assert_eq!(
        answer["response"]["status"]["message"],
        "validation failed:   - spec.workloadSelector: Required value: workloadSelector must be specified"
    );
    let provider = json!({"spec": {"providerType": "X", "baseURL": "https://a"}});
    let answer = answered(ReviewedKind::ExternalModelProvider, &review_of("CREATE", provider)).unwrap();
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("validation failed:\n  - spec.providerType: Unsupported value: \"X\""),
        "{message}"
    );
}

#[test]
fn what_goes_or_is_connected_to_is_allowed() {
    for operation in ["DELETE", "CONNECT"] {
        let answer = answered(ReviewedKind::ModelRoute, &review_of(operation, Value::Null)).unwrap();
        assert_eq!(answer["response"], json!({"uid": "705ab4f5", "allowed": true}), "{operation}");
    }
}

#[test]
fn what_is_no_such_review_is_malformed() {
    let text = |body: &str| answer(ReviewedKind::ModelRoute, body.as_bytes()).unwrap_err().to_string();
    assert!(text("").starts_with("cannot read the admission review: EOF"));
    assert_eq!(text("[]"), "cannot read the admission review: expected an object");
    assert_eq!(
        text(r#"{"request":["u","CREATE",{}]}"#),
        "cannot read the admission review: expected an object"
    );
    assert!(text("5").starts_with("cannot read the admission review: "));
    assert!(text(r#"{"request":{"uid":5}}"#).starts_with("cannot read the admission review: "));
    assert!(text(r#"{"request":{}} x"#).starts_with("cannot read the admission review: "));
    assert_eq!(text("{}"), "the admission review has no request");
    assert_eq!(text(r#"{"request":null}"#), "the admission review has no request");
    assert_eq!(text(r#"{"request":{"operation":"CREATE"}}"#), "the request has no object");
    assert_eq!(text(r#"{"request":{"operation":"UPDATE","object":null}}"#), "the request has no object");
    let deep = format!(r#"{{"request":{{"object":{}{}}}}}"#, "[".repeat(5000), "]".repeat(5000));
    assert_eq!(text(&deep), "cannot read the object: recursion limit exceeded at line 1 column 128");
}

#[test]
fn an_object_of_no_such_kind_is_malformed() {
    let object = route(json!({"modelName": 5}));
    let error = answered(ReviewedKind::ModelRoute, &review_of("CREATE", object)).unwrap_err();
    assert!(error.to_string().starts_with("cannot read the object: spec.modelName: "), "{error}");
    let error = answered(ReviewedKind::ModelServer, &review_of("CREATE", good())).unwrap_err();
    assert_eq!(error.to_string(), "this path reviews a ModelServer, not a ModelRoute");
    for object in [json!("text"), json!([1]), json!(true)] {
        let answer = answered(ReviewedKind::ModelRoute, &review_of("CREATE", object.clone()));
        assert!(matches!(answer, Err(Malformed::Object(_))), "{object}: {answer:?}");
    }
}
