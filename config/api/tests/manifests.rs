//! Manifests as users write them are read whole, pass the rules, and are written back as they were.

#![expect(clippy::expect_used, clippy::panic, reason = "what cannot be compared must fail loudly")]

use std::path::Path;

use kvasir_api::gateway::{Gateway, HttpRoute};
use kvasir_api::{
    ExternalModelProvider, InferencePool, ModelRoute, ModelServer, ReviewedKind, read_object, review,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

mod shared_data;

const OUR_OWN: &str = include_str!("data/manifests.yaml");

#[test]
fn every_field_of_our_own_manifests_is_kept() {
    let read =
        check_all(Path::new("manifests.yaml"), &shared_data::documents(Path::new("manifests.yaml"), OUR_OWN));
    assert_eq!(read, 6);
}

#[test]
fn every_example_of_kthena_is_read() {
    let Some(folder) = shared_data::folder("examples") else {
        println!("NOT COMPARED: kthena's examples are not here; tests/data/manifests.yaml stands for them");
        return;
    };
    let mut read = 0;
    for path in shared_data::yaml_files(&folder) {
        read += check_all(&path, &shared_data::read_documents(&path));
    }
    println!("{read} objects of kthena's examples were read");
    assert!(read >= 30, "only {read} objects: is the walk broken?");
}

/// Checks the objects of kinds that we know; gives how many they were.
fn check_all(file: &Path, documents: &[Value]) -> usize {
    let mut read = 0;
    for document in documents {
        let kind = document["kind"].as_str().expect("a kind");
        let ours = document["apiVersion"] == "networking.serving.volcano.sh/v1alpha1";
        match kind {
            "ModelRoute" if ours => check::<ModelRoute>(file, document, Some(ReviewedKind::ModelRoute)),
            "ModelServer" if ours => check::<ModelServer>(file, document, Some(ReviewedKind::ModelServer)),
            "ExternalModelProvider" if ours => {
                check::<ExternalModelProvider>(file, document, Some(ReviewedKind::ExternalModelProvider));
            }
            "Gateway" => check::<Gateway>(file, document, None),
            "HTTPRoute" => check::<HttpRoute>(file, document, None),
            "InferencePool" => check::<InferencePool>(file, document, None),
            _ => continue,
        }
        read += 1;
    }
    read
}

fn check<K: DeserializeOwned + Serialize>(file: &Path, document: &Value, kind: Option<ReviewedKind>) {
    let object: K = read_object(document).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let written = serde_json::to_value(&object).expect("can be written");
    is_within(document, &written, &format!("{}: ", file.display()));
    if let Some(kind) = kind {
        assert_eq!(review(kind, document).expect("readable"), None, "{}", file.display());
    }
}

/// Everything that was said is said again; more may be, where a default was filled in.
fn is_within(said: &Value, again: &Value, path: &str) {
    match (said, again) {
        (Value::Object(fields), Value::Object(_)) => {
            for (name, field) in fields {
                is_within(field, &again[name], &format!("{path}.{name}"));
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            assert_eq!(items.len(), others.len(), "{path}");
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                is_within(item, other, &format!("{path}[{index}]"));
            }
        }
        // A duration has several spellings.
        _ if path.ends_with("timeout") || path.ends_with("retryInterval") => {
            assert!(again.is_string(), "{path}")
        }
        _ => assert_eq!(said, again, "{path}"),
    }
}
