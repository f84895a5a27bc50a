//! InferencePool of Gateway API's inference extension: pods that a route may name as its backend.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::parent_reference::ParentReference;

/// The API group of pools.
pub const INFERENCE_GROUP: &str = "inference.networking.k8s.io";

/// Pods that serve one model. Versions v1.2 of the extension and its main of August 2026 are both read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "inference.networking.k8s.io",
    version = "v1",
    kind = "InferencePool",
    plural = "inferencepools",
    shortname = "infpool",
    namespaced,
    schema = "disabled",
    status = "InferencePoolStatus",
    doc = "Pods that serve one model.",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct InferencePoolSpec {
    /// Which pods of the pool's namespace are meant.
    pub selector: PoolSelector,
    /// The pods' ports; each is an endpoint of its own.
    #[serde(default)]
    pub target_ports: Vec<PoolPort>,
    /// What the pods speak; absent means `http`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Another program that would pick endpoints. The router is the picker itself, and does not call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_picker_ref: Option<EndpointPickerRef>,
}

/// Labels that every pod of the pool has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSelector {
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}

/// A port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolPort {
    pub number: u16,
}

/// A program that picks endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPickerRef {
    /// Absent means the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Absent means `Service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PoolPort>,
    /// `FailOpen` or `FailClose` (also when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_mode: Option<String>,
}

/// What controllers say about a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InferencePoolStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<PoolParentStatus>,
}

/// What one controller says about a pool at one Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolParentStatus {
    /// The Gateway. A pool's reference has neither a section nor a port.
    pub parent_ref: ParentReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
