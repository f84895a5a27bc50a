//! The schemas of a running API server, as files that kubeconform reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kube::Client;
use serde_json::{Value, json};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const LOCAL: &str = "#/definitions/";

/// Writes a file for every kind that the API server serves. Gives the pattern of their names, which is
/// kubeconform's `-schema-location`.
pub async fn write(client: &Client, folder: &Path) -> String {
    let request = http::Request::get("/openapi/v2").body(Vec::new()).unwrap();
    let document: Value = client.request(request).await.unwrap();
    let mut definitions: BTreeMap<String, Value> =
        serde_json::from_value(document["definitions"].clone()).unwrap();
    definitions.values_mut().for_each(close);
    // The server's own schema says text; it takes numbers too.
    definitions.insert(QUANTITY.to_owned(), json!({"type": ["string", "number"]}));
    for (name, definition) in &definitions {
        let Some([kind]) = definition[GROUP_VERSION_KIND].as_array().map(Vec::as_slice) else { continue };
        let mut needed = BTreeSet::new();
        need(&definitions, name, &mut needed);
        let needed: BTreeMap<_, _> = needed.into_iter().map(|name| (name, &definitions[name])).collect();
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": format!("{LOCAL}{name}"),
            "definitions": needed,
        });
        let text = |field: &str| kind[field].as_str().unwrap();
        // kubeconform calls the core group by its version.
        let group = if text("group").is_empty() { text("version") } else { text("group") };
        let file = format!("{}_{group}_{}.json", text("kind").to_lowercase(), text("version"));
        std::fs::write(folder.join(file), schema.to_string()).unwrap();
    }
    format!("{}/{{{{.ResourceKind}}}}_{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}.json", folder.display())
}

/// Lets no field pass that the schema does not name, and reads Kubernetes' own formats.
fn close(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if fields.get("format").is_some_and(|format| format == "int-or-string") {
        *schema = json!({"type": ["integer", "string"]});
        return;
    }
    let keeps_unknown = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(close);
        if !keeps_unknown {
            fields.entry("additionalProperties").or_insert(Value::Bool(false));
        }
    }
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).map(close);
    }
}

/// The definitions that one refers to, itself included.
fn need<'a>(definitions: &'a BTreeMap<String, Value>, name: &str, needed: &mut BTreeSet<&'a str>) {
    let (name, definition) = definitions.get_key_value(name).unwrap();
    if needed.insert(name) {
        refer(definitions, definition, needed);
    }
}

fn refer<'a>(definitions: &'a BTreeMap<String, Value>, value: &Value, needed: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            let other = fields.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix(LOCAL));
            if let Some(other) = other {
                need(definitions, other, needed);
            }
            fields.values().for_each(|value| refer(definitions, value, needed));
        }
        Value::Array(items) => items.iter().for_each(|value| refer(definitions, value, needed)),
        _ => {}
    }
}
