//! The hand-written types of Gateway API and InferencePool have the fields of the CRDs, spelled as they are there.
//!
//! `data/gateway.yaml` has every typed field once. That each is kept on reading is tested always; that these are the
//! CRDs' fields, no more and no fewer, where the CRDs are.

#![expect(clippy::expect_used, clippy::panic, reason = "what cannot be compared must fail loudly")]

use std::collections::BTreeSet;
use std::path::Path;

use kube::Resource;
use kvasir_api::gateway::{
    Gateway, GatewayClass, HttpFilterKind, HttpMethod, HttpPathMatchKind, HttpRoute, NamespacesFrom,
    ReferenceGrant,
};
use kvasir_api::{InferencePool, read_object};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

mod shared_data;

const EVERY_FIELD: &str = include_str!("data/gateway.yaml");

fn samples() -> Vec<Value> {
    let found = shared_data::documents(Path::new("gateway.yaml"), EVERY_FIELD);
    assert_eq!(found.len(), 5);
    found
}

#[test]
fn every_field_is_kept() {
    for sample in samples() {
        let again = match sample["kind"].as_str().expect("a kind") {
            "GatewayClass" => again::<GatewayClass>(&sample),
            "Gateway" => again::<Gateway>(&sample),
            "HTTPRoute" => again::<HttpRoute>(&sample),
            "ReferenceGrant" => again::<ReferenceGrant>(&sample),
            "InferencePool" => again::<InferencePool>(&sample),
            other => panic!("{other}"),
        };
        assert_eq!(again, sample);
    }
}

fn again<K: DeserializeOwned + Serialize + Resource<DynamicType = ()>>(sample: &Value) -> Value {
    assert_eq!(
        (K::api_version(&()), K::kind(&())),
        (text(sample, "apiVersion").into(), text(sample, "kind").into())
    );
    let object: K = read_object(sample).unwrap_or_else(|error| panic!("{error}"));
    serde_json::to_value(object).expect("can be written")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect("a text")
}

#[test]
fn a_word_of_a_later_version_is_read_as_itself() {
    let read = |value: Value| read_object::<HttpFilterKind>(&value).expect("readable");
    assert_eq!(read(json!("CORS")), HttpFilterKind::Other("CORS".to_owned()));
    assert_eq!(read(json!("URLRewrite")), HttpFilterKind::UrlRewrite);
    let from: NamespacesFrom = read_object(&json!("None")).expect("readable");
    assert_eq!(from, NamespacesFrom::Other("None".to_owned()));
    let method: HttpMethod = read_object(&json!("QUERY")).expect("readable");
    assert_eq!(method, HttpMethod::Other("QUERY".to_owned()));
    let path: HttpPathMatchKind = read_object(&json!("PathPrefix")).expect("readable");
    assert_eq!(path, HttpPathMatchKind::PathPrefix);
}

#[test]
fn the_fields_are_those_of_the_crds() {
    let Some(folder) = shared_data::folder("crds") else {
        println!("NOT COMPARED: the CRDs of Gateway API and InferencePool are not here");
        return;
    };
    let definitions: Vec<Value> =
        shared_data::yaml_files(&folder).iter().flat_map(|path| shared_data::read_documents(path)).collect();
    for sample in samples() {
        let (kind, version) = (text(&sample, "kind"), text(&sample, "apiVersion"));
        let mut known = BTreeSet::new();
        for definition in definitions.iter().filter(|definition| definition["spec"]["names"]["kind"] == *kind)
        {
            for at in definition["spec"]["versions"].as_array().expect("versions") {
                if version == format!("{}/{}", text(&definition["spec"], "group"), text(at, "name")) {
                    schema_fields(&at["schema"]["openAPIV3Schema"], "", &mut known);
                }
            }
        }
        let mut typed = BTreeSet::new();
        value_fields(&sample, "", &mut typed);
        let known: BTreeSet<String> = known.into_iter().filter(|path| !is_head(path)).collect();
        let typed: BTreeSet<String> = typed.into_iter().filter(|path| !is_head(path)).collect();
        let missing: Vec<_> = known.difference(&typed).collect();
        let invented: Vec<_> = typed.difference(&known).collect();
        assert!(
            missing.is_empty() && invented.is_empty(),
            "{kind}: not typed {missing:?}, not there {invented:?}"
        );
        println!("{kind} {version}: {} fields", known.len());
    }
}

fn is_head(path: &str) -> bool {
    [".apiVersion", ".kind", ".metadata"]
        .iter()
        .any(|head| path == *head || path.starts_with(&format!("{head}.")))
}

/// The paths of a schema's leaves.
fn schema_fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, field) in properties {
            schema_fields(field, &format!("{path}.{name}"), found);
        }
    } else if schema["items"].is_object() {
        schema_fields(&schema["items"], &format!("{path}[]"), found);
    } else {
        found.insert(path.to_owned());
    }
}

/// The paths of a value's leaves, as far as a schema would know them: a map of free keys is a leaf.
fn value_fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let free = ["matchLabels", "labels", "annotations", "options"].iter().any(|map| path.ends_with(map));
    match value {
        Value::Object(fields) if !free => {
            for (name, field) in fields {
                value_fields(field, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| value_fields(item, &format!("{path}[]"), found)),
        _ => {
            found.insert(path.to_owned());
        }
    }
}
