//! Objects as cases write them, short, to objects as the API takes them.

use serde_json::{Value, json};

const NETWORKING: &str = "networking.serving.volcano.sh/v1alpha1";
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const INFERENCE: &str = "inference.networking.k8s.io";

/// The version in which a kind is spoken of.
pub fn version(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "ModelRoute" | "ModelServer" | "ExternalModelProvider" => NETWORKING,
        "Gateway" | "GatewayClass" | "HTTPRoute" => GATEWAY,
        "ReferenceGrant" => "gateway.networking.k8s.io/v1beta1",
        "InferencePool" => "inference.networking.k8s.io/v1",
        _ => return None,
    })
}

/// `{kind, name, namespace, labels, annotations, spec}` as a whole object, with what usually stands in a `spec` filled in
/// where nothing does.
pub fn whole(short: &Value) -> Result<Value, String> {
    let kind = short.get("kind").and_then(Value::as_str).ok_or_else(|| format!("no kind: {short}"))?;
    let mut object = short.clone();
    let fields = object.as_object_mut().ok_or_else(|| format!("no object: {short}"))?;
    if !fields.contains_key("apiVersion") {
        let version = version(kind).ok_or_else(|| format!("{kind} needs its apiVersion"))?;
        fields.insert("apiVersion".to_owned(), version.into());
    }
    if !fields.contains_key("metadata") {
        let mut metadata = serde_json::Map::new();
        for field in ["name", "namespace", "labels", "annotations"] {
            if let Some(value) = fields.remove(field) {
                metadata.insert(field.to_owned(), value);
            }
        }
        fields.insert("metadata".to_owned(), metadata.into());
    }
    if let Some(spec) = fields.get_mut("spec") {
        fill(kind, spec);
    }
    Ok(object)
}

fn fill(kind: &str, spec: &mut Value) {
    for parent in items(spec, "parentRefs") {
        name(parent, |parent| json!({"name": parent}));
    }
    match kind {
        "Gateway" => {
            if let Some(spec) = spec.as_object_mut() {
                spec.entry("gatewayClassName").or_insert_with(|| "kthena-router".into());
            }
            for listener in items(spec, "listeners").iter_mut().filter_map(Value::as_object_mut) {
                listener.entry("protocol").or_insert_with(|| "HTTP".into());
            }
        }
        "ModelRoute" => {
            for target in items(spec, "rules").iter_mut().flat_map(|rule| items(rule, "targetModels")) {
                name(target, |server| json!({"modelServerName": server}));
            }
        }
        "HTTPRoute" => {
            for backend in items(spec, "rules").iter_mut().flat_map(|rule| items(rule, "backendRefs")) {
                name(backend, |pool| json!({"pool": pool}));
                let Some(backend) = backend.as_object_mut() else { continue };
                if let Some(pool) = backend.remove("pool") {
                    backend.insert("group".to_owned(), INFERENCE.into());
                    backend.insert("kind".to_owned(), "InferencePool".into());
                    backend.insert("name".to_owned(), pool);
                }
            }
        }
        _ => {}
    }
}

/// The list in a field; nothing where there is none.
fn items<'v>(value: &'v mut Value, field: &str) -> &'v mut [Value] {
    value.get_mut(field).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// What is written as a mere name, as the object that it means.
fn name(value: &mut Value, object: impl FnOnce(&str) -> Value) {
    if let Some(named) = value.as_str().map(object) {
        *value = named;
    }
}

/// A ModelServer that selects the pods `app: NAME`.
pub fn server(name: &str) -> Value {
    json!({
        "apiVersion": NETWORKING,
        "kind": "ModelServer",
        "metadata": {"name": name},
        "spec": {
            "inferenceEngine": "vLLM",
            "workloadSelector": {"matchLabels": {"app": name}},
            "workloadPort": {"port": 8000},
        },
    })
}

/// An InferencePool that selects the pods `app: NAME`. Its endpoint picker is there because the schema wants one.
pub fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "none", "port": {"number": 9002}},
        },
    })
}
