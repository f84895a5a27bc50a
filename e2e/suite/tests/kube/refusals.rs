//! What kthena's schemas refuse, ours refuse too, by the API server itself and with words that help.

use kube::Client;
use kvasir_suite::cluster::{Cluster, apply};
use serde_json::{Value, json};

use crate::crds::kthenas;

/// A case: what is wrong, the kind, its spec, and a part of what the API says with our definitions.
type Case = (&'static str, &'static str, Value, &'static str);

const ONE_TARGET: &str = "exactly one of modelServerName or externalModelProviderName must be set";
const NO_NAMES: &str = "ModelName and LoraAdapters cannot both be empty";

fn route(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({"modelName": "m", "rules": [{"targetModels": [{"modelServerName": "s"}]}]});
    change(&mut spec);
    spec
}

fn server(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "inferenceEngine": "vLLM",
        "workloadSelector": {"matchLabels": {"app": "engine"}},
        "workloadPort": {"port": 8000},
    });
    change(&mut spec);
    spec
}

fn without(mut spec: Value, field: &str) -> Value {
    spec.as_object_mut().unwrap().remove(field).unwrap();
    spec
}

fn routes() -> Vec<Case> {
    let target = |target: Value| route(|spec| spec["rules"][0]["targetModels"] = json!([target]));
    let rule = json!({"targetModels": [{"modelServerName": "s"}]});
    let adapters: Vec<String> = (0..11).map(|number| format!("adapter-{number}")).collect();
    [
        ("both names empty", json!({"modelName": "", "loraAdapters": [], "rules": []}), NO_NAMES),
        ("an empty name alone", json!({"modelName": "", "rules": []}), NO_NAMES),
        ("no name at all", json!({"rules": []}), NO_NAMES),
        (
            "two targets in one",
            target(json!({"modelServerName": "s", "externalModelProviderName": "p"})),
            ONE_TARGET,
        ),
        ("a target without a name", target(json!({"weight": 1})), ONE_TARGET),
        ("a target with an empty name", target(json!({"modelServerName": ""})), ONE_TARGET),
        (
            "a heavy target",
            target(json!({"modelServerName": "s", "weight": 101})),
            "less than or equal to 100",
        ),
        (
            "a negative weight",
            target(json!({"modelServerName": "s", "weight": -1})),
            "greater than or equal to 0",
        ),
        (
            "a rule without targets",
            route(|spec| spec["rules"][0]["targetModels"] = json!([])),
            "should have at least 1 items",
        ),
        (
            "a rule that names no targets",
            route(|spec| spec["rules"] = json!([{}])),
            "targetModels: Required value",
        ),
        (
            "too many targets",
            route(|spec| spec["rules"][0]["targetModels"] = json!(vec![json!({"modelServerName": "s"}); 17])),
            "must have at most 16 items",
        ),
        ("too many rules", route(|spec| spec["rules"] = json!(vec![rule; 17])), "must have at most 16 items"),
        (
            "too many adapters",
            route(|spec| spec["loraAdapters"] = json!(adapters)),
            "must have at most 10 items",
        ),
        ("no rules", without(route(|_| ()), "rules"), "rules: Required value"),
        (
            "an unknown unit",
            route(|spec| spec["rateLimit"] = json!({"unit": "year"})),
            "Unsupported value: \"year\"",
        ),
        (
            "a limit of nothing",
            route(|spec| spec["rateLimit"] = json!({"inputTokensPerUnit": 0})),
            "greater than or equal to 1",
        ),
        ("a parent without a name", route(|spec| spec["parentRefs"] = json!([{}])), "name: Required value"),
        (
            "a parent's port",
            route(|spec| spec["parentRefs"] = json!([{"name": "g", "port": 0}])),
            "greater than or equal to 1",
        ),
        (
            "a field that is not there",
            route(|spec| spec["modelname"] = json!("m")),
            "field not declared in schema",
        ),
    ]
    .map(|(what, spec, says)| (what, "ModelRoute", spec, says))
    .into()
}

fn servers() -> Vec<Case> {
    let port = |port: Value| server(|spec| spec["workloadPort"] = port);
    [
        ("no engine", without(server(|_| ()), "inferenceEngine"), "inferenceEngine: Required value"),
        ("no port", without(server(|_| ()), "workloadPort"), "workloadPort: Required value"),
        ("no selector", without(server(|_| ()), "workloadSelector"), "workloadSelector: Required value"),
        (
            "an unknown engine",
            server(|spec| spec["inferenceEngine"] = json!("TGI")),
            "Unsupported value: \"TGI\"",
        ),
        ("port 0", port(json!({"port": 0})), "greater than or equal to 1"),
        ("a large port", port(json!({"port": 65536})), "less than or equal to 65535"),
        ("an unknown protocol", port(json!({"port": 1, "protocol": "tcp"})), "Unsupported value: \"tcp\""),
        ("a long model", server(|spec| spec["model"] = json!("m".repeat(257))), "may not be more than 256"),
        (
            "an unknown connector",
            server(|spec| spec["kvConnector"] = json!({"type": "fax"})),
            "Unsupported value: \"fax\"",
        ),
        (
            "half a group",
            server(|spec| {
                spec["workloadSelector"]["pdGroup"] = json!({"groupKey": "g", "prefillLabels": {}})
            }),
            "decodeLabels: Required value",
        ),
    ]
    .map(|(what, spec, says)| (what, "ModelServer", spec, says))
    .into()
}

fn providers() -> Vec<Case> {
    let with = |field: &str, value: Value| {
        let mut spec = json!({"baseURL": "https://models.example"});
        spec[field] = value;
        spec
    };
    let secret = json!({"secretRef": {"name": "s", "key": "k", "optional": true}});
    [
        ("no URL", json!({}), "baseURL: Required value"),
        ("a plain URL", with("baseURL", json!("http://models.example")), "should match"),
        ("an unknown protocol", with("providerType", json!("Gemini")), "Unsupported value: \"Gemini\""),
        ("a long model", with("model", json!("m".repeat(257))), "may not be more than 256"),
        ("an optional secret", with("auth", secret), "secretRef.optional must be false or unset"),
        ("a credential without a secret", with("auth", json!({})), "secretRef: Required value"),
        (
            "an unknown scheme",
            with("auth", json!({"scheme": "Basic", "secretRef": {"key": "k"}})),
            "Unsupported value: \"Basic\"",
        ),
    ]
    .map(|(what, spec, says)| (what, "ExternalModelProvider", spec, says))
    .into()
}

#[tokio::test]
async fn both_refuse_the_same_and_ours_say_why() {
    let ours = Cluster::shared().await.unwrap();
    let (client, space) = (ours.client().await.unwrap(), ours.namespace("refusals").await.unwrap());
    let theirs = match kthenas().await {
        Some(cluster) => {
            Some((cluster.client().await.unwrap(), cluster.namespace("refusals").await.unwrap()))
        }
        None => None,
    };
    let mut wrong = Vec::new();
    for (what, kind, spec, says) in routes().into_iter().chain(servers()).chain(providers()) {
        let text = manifest(kind, &spec);
        match said(&client, &space, &text).await {
            Err(words) if words.contains(says) => {}
            other => wrong.push(format!("{kind}, {what}: expected {says:?} of ours, found {other:?}")),
        }
        if let Some((client, space)) = &theirs
            && said(client, space, &text).await.is_ok()
        {
            wrong.push(format!("{kind}, {what}: kthena takes it"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_models_name_stays() {
    let mut clusters = vec![Cluster::shared().await.unwrap()];
    clusters.extend(kthenas().await);
    for cluster in clusters {
        let (client, space) =
            (cluster.client().await.unwrap(), cluster.namespace("immutable").await.unwrap());
        let first = manifest("ModelRoute", &route(|_| ()));
        said(&client, &space, &first).await.unwrap();
        let renamed = manifest("ModelRoute", &route(|spec| spec["modelName"] = json!("other")));
        let words = said(&client, &space, &renamed).await.unwrap_err();
        assert!(words.contains("modelName is immutable"), "{words}");
        let changed = manifest("ModelRoute", &route(|spec| spec["loraAdapters"] = json!(["adapter"])));
        said(&client, &space, &changed).await.unwrap();
    }
}

#[tokio::test]
async fn a_route_needs_a_spec() {
    let cluster = Cluster::shared().await.unwrap();
    let (client, space) = (cluster.client().await.unwrap(), cluster.namespace("spec").await.unwrap());
    let text = json!({
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelRoute",
        "metadata": {"name": "case"},
    });
    let words = said(&client, &space, &text.to_string()).await.unwrap_err();
    assert!(words.contains("spec: Required value"), "{words}");
}

fn manifest(kind: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": kind,
        "metadata": {"name": "case"},
        "spec": spec,
    })
    .to_string()
}

async fn said(client: &Client, space: &str, text: &str) -> Result<(), String> {
    apply(client, space, text).await.map(drop).map_err(|error| format!("{error:#}"))
}
