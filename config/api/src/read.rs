//! Reads objects one by one, and says which field of which object does not fit.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use thiserror::Error;

/// A field that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct ReadError {
    /// The path of the field, such as `spec.rules[0].targetModels[1].weight`; `.` is the object itself.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

/// An object that cannot be read, with what is needed to say so in a log line and in its status.
#[derive(Clone, Debug, Error)]
#[error("{error}")]
pub struct Unreadable {
    /// Whose object it is.
    pub metadata: ObjectMeta,
    /// The first field that does not fit.
    pub error: ReadError,
}

/// An object, or why it cannot be read. Watch `Read<ModelRoute>` instead of `ModelRoute`, and one malformed object
/// costs that object alone: a typed watch of the bare kind fails as a whole, and does not say whose fault it was.
///
/// Only an object whose `metadata` cannot be read is an error for the whole list.
#[derive(Clone, Debug)]
pub struct Read<K>(pub Result<K, Unreadable>);

/// Reads an object. Fields that the kind does not have are passed over.
///
/// # Errors
/// The first field that does not fit.
pub fn read_object<K: DeserializeOwned>(object: &Value) -> Result<K, ReadError> {
    serde_path_to_error::deserialize(object)
        .map_err(|error| ReadError { field: error.path().to_string(), problem: error.inner().to_string() })
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The one part that every object has.
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            metadata: ObjectMeta,
        }

        let object = Value::deserialize(deserializer)?;
        match read_object(&object) {
            Ok(read) => Ok(Self(Ok(read))),
            Err(error) => {
                let head: Head = read_object(&object).map_err(serde::de::Error::custom)?;
                Ok(Self(Err(Unreadable { metadata: head.metadata, error })))
            }
        }
    }
}

impl<K: Resource> Resource for Read<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;
    use crate::{ModelRoute, ModelServer};

    fn server(spec: Value) -> Value {
        json!({
            "apiVersion": "networking.serving.volcano.sh/v1alpha1",
            "kind": "ModelServer",
            "metadata": {"name": "m", "namespace": "n", "generation": 3},
            "spec": spec,
        })
    }

    #[test]
    fn an_error_names_the_field_by_its_path() {
        for (spec, field, part) in [
            (json!({"workloadPort": {"port": 1}}), "spec", "inferenceEngine"),
            (json!({"inferenceEngine": "TGI"}), "spec.inferenceEngine", "TGI"),
            (
                json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 70000}}),
                "spec.workloadPort.port",
                "70000",
            ),
            (
                json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 1},
                    "trafficPolicy": {"timeout": "ten"}}),
                "spec.trafficPolicy.timeout",
                "ten",
            ),
            (
                json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 1},
                    "workloadSelector": {"matchLabels": {"app": 5}}}),
                "spec.workloadSelector.matchLabels.app",
                "5",
            ),
        ] {
            let error = read_object::<ModelServer>(&server(spec)).unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.problem.contains(part), "{error}");
        }
        let route = json!({"metadata": {"name": "r"}, "spec": {"rules": [
            {"targetModels": [{"modelServerName": "a"}, {"modelServerName": "b", "weight": "heavy"}]}]}});
        let error = read_object::<ModelRoute>(&route).unwrap_err();
        assert_eq!(error.field, "spec.rules[0].targetModels[1].weight");
    }

    #[test]
    fn fields_of_another_version_are_passed_over() {
        let object =
            server(json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 1, "name": "x"}, "new": {}}));
        assert!(read_object::<ModelServer>(&object).is_ok());
    }

    #[test]
    fn one_malformed_object_costs_itself_alone() {
        let list = json!([
            server(json!({"inferenceEngine": "vLLM", "workloadPort": {"port": 8000}})),
            server(json!({"inferenceEngine": "vLLM", "workloadPort": {"port": "http"}})),
        ]);
        let mut read: Vec<Read<ModelServer>> = serde_json::from_value(list).unwrap();
        let bad = read.pop().unwrap();
        assert_eq!(
            (bad.name_any().as_str(), bad.namespace().as_deref(), bad.meta().generation),
            ("m", Some("n"), Some(3))
        );
        let unreadable = bad.0.unwrap_err();
        assert_eq!(unreadable.error.field, "spec.workloadPort.port");
        assert!(read.pop().is_some_and(|good| good.0.is_ok()));
        assert_eq!(Read::<ModelServer>::plural(&()), "modelservers");
    }
}
