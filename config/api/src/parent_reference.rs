//! The reference from a route to what it attaches to, as Gateway API writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gateway::GATEWAY_GROUP;

/// The kind that a reference means when it names none.
const GATEWAY_KIND: &str = "Gateway";

/// A Gateway, or one of its listeners, that a route attaches to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// The group of the parent; absent means `gateway.networking.k8s.io`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
        extend("default" = GATEWAY_GROUP)
    )]
    pub group: Option<String>,
    /// The kind of the parent; absent means `Gateway`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"),
        extend("default" = GATEWAY_KIND)
    )]
    pub kind: Option<String>,
    /// The namespace of the parent; absent means that of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: Option<String>,
    /// The name of the parent.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The name of one listener; absent means all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub section_name: Option<String>,
    /// The port of the listeners meant; absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

impl ParentReference {
    /// Whether this names a Gateway of Gateway API, by saying so or by saying nothing.
    pub fn names_a_gateway(&self) -> bool {
        self.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
            && self.kind.as_deref().unwrap_or(GATEWAY_KIND) == GATEWAY_KIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_means_a_gateway() {
        let named = |group: Option<&str>, kind: Option<&str>| ParentReference {
            group: group.map(str::to_owned),
            kind: kind.map(str::to_owned),
            ..ParentReference::default()
        };
        assert!(named(None, None).names_a_gateway());
        assert!(named(Some(GATEWAY_GROUP), Some("Gateway")).names_a_gateway());
        assert!(!named(Some(""), Some("Service")).names_a_gateway());
        assert!(!named(None, Some("ListenerSet")).names_a_gateway());
    }
}
