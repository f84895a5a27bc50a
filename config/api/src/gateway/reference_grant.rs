//! ReferenceGrant: which objects of other namespaces may name the objects of this one.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Anything in `from` may name anything in `to`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1beta1",
    kind = "ReferenceGrant",
    plural = "referencegrants",
    namespaced,
    schema = "disabled",
    doc = "Lets objects of other namespaces name objects of its own.",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    #[serde(default)]
    pub from: Vec<ReferenceGrantFrom>,
    #[serde(default)]
    pub to: Vec<ReferenceGrantTo>,
}

/// Who may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

/// What may be named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantTo {
    pub group: String,
    pub kind: String,
    /// Absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ReferenceGrantSpec {
    /// Whether an object of `from` may name the object `to`.
    pub fn allows(&self, from: &ReferenceGrantFrom, to: (&str, &str, &str)) -> bool {
        let (group, kind, name) = to;
        self.from.contains(from)
            && self.to.iter().any(|granted| {
                granted.group == group
                    && granted.kind == kind
                    && granted.name.as_deref().is_none_or(|granted| granted == name)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_for_one_group_kind_and_namespace() {
        let from = ReferenceGrantFrom {
            group: "gateway.networking.k8s.io".to_owned(),
            kind: "HTTPRoute".to_owned(),
            namespace: "apps".to_owned(),
        };
        let to = |name: Option<&str>| ReferenceGrantTo {
            group: "inference.networking.k8s.io".to_owned(),
            kind: "InferencePool".to_owned(),
            name: name.map(str::to_owned),
        };
        let pool = |name| ("inference.networking.k8s.io", "InferencePool", name);
        let any = ReferenceGrantSpec { from: vec![from.clone()], to: vec![to(None)] };
        let one = ReferenceGrantSpec { from: vec![from.clone()], to: vec![to(Some("a"))] };
        assert!(any.allows(&from, pool("a")) && any.allows(&from, pool("b")));
        assert!(one.allows(&from, pool("a")) && !one.allows(&from, pool("b")));
        assert!(!any.allows(&from, ("", "Service", "a")));
        let elsewhere = ReferenceGrantFrom { namespace: "other".to_owned(), ..from };
        assert!(!any.allows(&elsewhere, pool("a")));
    }
}
