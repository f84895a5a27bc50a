//! ExternalModelProvider: a model API outside the cluster.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::ObjectStatus;

/// Secrets must carry this label, with the value `true`, to be seen as credentials of providers.
pub const CREDENTIAL_LABEL: &str = "networking.serving.volcano.sh/external-model-provider-credential";

/// A model API outside the cluster, and how to call it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "networking.serving.volcano.sh",
    version = "v1alpha1",
    kind = "ExternalModelProvider",
    plural = "externalmodelproviders",
    namespaced,
    status = "ObjectStatus",
    derive = "PartialEq",
    doc = "A model API outside the cluster."
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::wire_schema::as_on_the_wire)]
pub struct ExternalModelProviderSpec {
    /// The protocol that the provider speaks.
    #[serde(default)]
    pub provider_type: ProviderType,
    /// The name of the model at the provider. It replaces the `model` of requests. Absent: the name is left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub model: Option<String>,
    /// The root of the provider's API, over https.
    #[serde(default, rename = "baseURL")]
    #[schemars(!default, length(min = 1), regex(pattern = r"^https://.+"))]
    pub base_url: String,
    /// Whether the provider's certificate and host name go unchecked.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// The credential. Absent: none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<ProviderAuth>,
    /// Headers that every request to the provider gets. Nothing secret belongs here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// The protocol of a provider.
///
/// Unlike elsewhere, an unknown value can be read: the rules of the webhook say what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderType {
    #[default]
    OpenAI,
    Anthropic,
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

/// Which credential is sent, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "secretRef.optional must be false or unset",
    "rule": "!has(self.secretRef.optional) || !self.secretRef.optional",
}]))]
pub struct ProviderAuth {
    /// How the credential is sent. Absent: as the protocol does, Bearer with OpenAI and APIKey with Anthropic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<AuthScheme>,
    /// Where the credential is.
    #[serde(default)]
    #[schemars(!default)]
    pub secret_ref: SecretKeyRef,
}

/// How a credential is sent. An unknown value can be read, as with [`ProviderType`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthScheme {
    Bearer,
    APIKey,
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

/// One key of a Secret in the provider's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretKeyRef {
    /// The name of the Secret.
    #[serde(default)]
    pub name: String,
    /// The key inside it.
    #[serde(default)]
    #[schemars(!default)]
    pub key: String,
    /// Must be false or absent: a credential that is named is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_values_are_kept_for_the_rules_to_refuse() {
        let spec: ExternalModelProviderSpec = serde_json::from_value(json!({
            "providerType": "Gemini",
            "baseURL": "https://a",
            "auth": {"scheme": "Basic", "secretRef": {"name": "s", "key": "k"}},
        }))
        .unwrap();
        assert_eq!(spec.provider_type, ProviderType::Other("Gemini".to_owned()));
        assert_eq!(spec.auth.and_then(|auth| auth.scheme), Some(AuthScheme::Other("Basic".to_owned())));
    }

    #[test]
    fn known_values_are_spelled_as_kthena_spells_them() {
        assert_eq!(serde_json::to_value(ProviderType::OpenAI).unwrap(), "OpenAI");
        assert_eq!(serde_json::from_value::<AuthScheme>("APIKey".into()).unwrap(), AuthScheme::APIKey);
    }
}
