//! What is said back in an object's status: its conditions, and the words they use.
//!
//! kthena's CRDs have a status for providers only. Where they are installed instead of ours, an API server drops it
//! from the other kinds without an error.

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Condition types.
pub mod types {
    /// The object was read and is in use. All kinds of ours, routes and Gateways.
    pub const ACCEPTED: &str = "Accepted";
    /// Everything the object names exists and may be named. All kinds of ours, routes and listeners.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// The data plane follows the object. Gateways and listeners.
    pub const PROGRAMMED: &str = "Programmed";
    /// Listeners only: another listener claims the same.
    pub const CONFLICTED: &str = "Conflicted";
    /// kthena's word for a provider that can be used.
    pub const READY: &str = "Ready";
    /// Some rules of a route are used and others are not.
    pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
    /// kthena's word for a provider whose credential was found.
    pub const CREDENTIALS_RESOLVED: &str = "CredentialsResolved";
}

/// The three values of a condition's `status`.
pub mod values {
    /// The condition holds.
    pub const TRUE: &str = "True";
    /// The condition does not hold; its reason says why.
    pub const FALSE: &str = "False";
    /// Not yet decided.
    pub const UNKNOWN: &str = "Unknown";
}

/// What the router says about the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::wire_schema::as_on_the_wire)]
pub struct ObjectStatus {
    /// The `metadata.generation` that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the router found, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The list of conditions as Kubernetes bounds it everywhere.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "One aspect of the object's state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When `status` last changed.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "For people: what is so, and what to do.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The `metadata.generation` that this condition speaks of.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "For programs: why, in one CamelCase word.",
                },
                "status": {
                    "type": "string",
                    "enum": [values::TRUE, values::FALSE, values::UNKNOWN],
                    "description": "Whether the condition holds.",
                },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "Which aspect.",
                },
            },
        },
    })
}
