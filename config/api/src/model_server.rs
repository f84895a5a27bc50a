//! ModelServer: the pods that serve a model, and how to reach them.
//!
//! kthena's CRD lets an object without any spec in, and its webhook says what is missing. Hence `workloadSelector` may
//! be absent here; [`crate::validate_model_server`] refuses that.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::ObjectStatus;
use crate::duration::DurationText;

/// The pods that serve one model with one engine.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "networking.serving.volcano.sh",
    version = "v1alpha1",
    kind = "ModelServer",
    plural = "modelservers",
    namespaced,
    status = "ObjectStatus",
    derive = "PartialEq",
    doc = "The pods that serve a model, and how to reach them.",
    printcolumn = r#"{"name": "Engine", "type": "string", "jsonPath": ".spec.inferenceEngine", "description": "Inference engine used to serve the model"}"#,
    printcolumn = r#"{"name": "Port", "type": "integer", "jsonPath": ".spec.workloadPort.port", "description": "Model server port"}"#,
    printcolumn = r#"{"name": "Protocol", "type": "string", "jsonPath": ".spec.workloadPort.protocol", "description": "Model server protocol"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::wire_schema::as_on_the_wire)]
pub struct ModelServerSpec {
    /// The name under which the engines serve the model. It replaces the `model` of requests, except those for a
    /// LoRA adapter. Absent: the name is left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub model: Option<String>,
    /// The engine in the pods.
    pub inference_engine: InferenceEngine,
    /// Which pods of the ModelServer's namespace are meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub workload_selector: Option<WorkloadSelector>,
    /// The pods' port for requests, metrics and the list of models.
    pub workload_port: WorkloadPort,
    /// How requests to the pods are treated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_policy: Option<TrafficPolicy>,
    /// How the KV cache moves from prefill to decode pods; only with `workloadSelector.pdGroup`. Absent: SGLang's own way
    /// for SGLang, `http` for vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_connector: Option<KvConnector>,
}

/// An engine, as it is spelled in a ModelServer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InferenceEngine {
    #[serde(rename = "vLLM")]
    Vllm,
    #[serde(rename = "SGLang")]
    SgLang,
}

/// Which pods are meant, and which role each has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSelector {
    /// Labels that every pod has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further labels that tell prefill from decode pods. Absent: every pod does both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pd_group: Option<PdGroup>,
}

/// How prefill and decode pods are told apart and paired.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PdGroup {
    /// The label whose value pods of one group share. Only pods of one group are paired.
    #[serde(default)]
    #[schemars(!default)]
    pub group_key: String,
    /// Labels of the prefill pods.
    #[serde(default)]
    #[schemars(!default)]
    pub prefill_labels: BTreeMap<String, String>,
    /// Labels of the decode pods. A pod with both kinds of labels decodes.
    #[serde(default)]
    #[schemars(!default)]
    pub decode_labels: BTreeMap<String, String>,
}

/// The port of the pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPort {
    /// The port's number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: WorkloadProtocol,
}

/// What the pods speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadProtocol {
    #[default]
    Http,
    Https,
}

/// How requests to the pods are treated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficPolicy {
    /// How long to wait for a pod to begin its answer. The answer itself may take longer. Absent: the router's own
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationText>,
    /// Whether to try again. Absent: the router's own rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

/// How often, and how soon, to try again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How many further attempts one request may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The pause before a further attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "100ms"))]
    pub retry_interval: Option<DurationText>,
}

/// How the KV cache moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KvConnector {
    /// The engines' connector. `http` and `lmcache` ask for no KV transfer: the engines share a cache by themselves.
    #[serde(default, rename = "type")]
    pub kind: KvConnectorKind,
}

/// A connector between prefill and decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KvConnectorKind {
    #[default]
    Http,
    Lmcache,
    Nixl,
    Mooncake,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_crd_fills_in_is_filled_in_here_too() {
        let spec: ModelServerSpec = serde_json::from_value(json!({
            "inferenceEngine": "SGLang",
            "workloadSelector": {"matchLabels": {"app": "a"}},
            "workloadPort": {"port": 30000},
            "kvConnector": {},
        }))
        .unwrap();
        assert_eq!(spec.inference_engine, InferenceEngine::SgLang);
        assert_eq!(spec.workload_port.protocol, WorkloadProtocol::Http);
        assert_eq!(spec.kv_connector.map(|connector| connector.kind), Some(KvConnectorKind::Http));
    }

    #[test]
    fn engines_are_spelled_exactly() {
        for wrong in ["vllm", "VLLM", "sglang", ""] {
            assert!(serde_json::from_value::<InferenceEngine>(wrong.into()).is_err(), "{wrong}");
        }
    }
}
