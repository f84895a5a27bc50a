//! ModelRoute: which requests go to which model servers.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::ObjectStatus;
use crate::parent_reference::ParentReference;

/// What a target's absent `weight` counts as: what the CRD fills in.
pub const DEFAULT_WEIGHT: u32 = 100;

/// Which requests a route takes, and where they go.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "networking.serving.volcano.sh",
    version = "v1alpha1",
    kind = "ModelRoute",
    plural = "modelroutes",
    namespaced,
    status = "ObjectStatus",
    derive = "PartialEq",
    doc = "Sends requests for a model name to model servers.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = crate::wire_schema::as_on_the_wire,
    extend("x-kubernetes-validations" = [{
        "message": "ModelName and LoraAdapters cannot both be empty",
        "rule": "self.modelName != \"\" || size(self.loraAdapters) > 0",
    }])
)]
pub struct ModelRouteSpec {
    /// The `model` of the requests that this route takes: a base model, an alias, any name.
    /// It cannot be changed. It may be left out if `loraAdapters` names something.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "modelName is immutable",
        "rule": "self == oldSelf",
    }]))]
    pub model_name: Option<String>,
    /// Names of LoRA adapters that this route takes too, as a request's `model`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub lora_adapters: Vec<String>,
    /// The Gateways that this route attaches to. Empty: every Gateway of the route's namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentReference>,
    /// Rules in order; the first that matches a request decides. Empty: the route takes nothing.
    #[serde(default)]
    #[schemars(!default, length(max = 16))]
    pub rules: Vec<Rule>,
    /// A limit on the tokens of all requests of this route. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// One rule of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// A label for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What a request must look like. Absent or empty: anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_match: Option<ModelMatch>,
    /// Where matching requests go, by weight.
    #[serde(default)]
    #[schemars(!default, length(min = 1, max = 16))]
    pub target_models: Vec<TargetModel>,
}

/// Conditions on a request; all of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelMatch {
    /// Conditions on headers, by header name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, StringMatch>,
    /// A condition on the path of the URL, without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<StringMatch>,
    /// A condition on the request's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyMatch>,
}

/// A condition on a request's body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BodyMatch {
    /// The `model` of the request must be this. Absent: any model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A condition on a text. Only one field may be set; of several, the first of `exact`, `prefix` and `regex` counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StringMatch {
    /// The text is this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// The text begins with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// This expression, in RE2 syntax, is found somewhere in the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// The one condition that a [`StringMatch`] amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringCondition<'a> {
    /// Nothing was asked for.
    Anything,
    /// Byte for byte.
    Exact(&'a str),
    /// From the start.
    Prefix(&'a str),
    /// Somewhere; compile it with [`crate::re2::compile`].
    Regex(&'a str),
}

/// One destination of a rule: a ModelServer or an ExternalModelProvider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "exactly one of modelServerName or externalModelProviderName must be set",
    "rule": "(has(self.modelServerName) && self.modelServerName != \"\") != (has(self.externalModelProviderName) && self.externalModelProviderName != \"\")",
}]))]
pub struct TargetModel {
    /// A ModelServer of the route's namespace. Excludes `externalModelProviderName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_server_name: Option<String>,
    /// An ExternalModelProvider of the route's namespace. Excludes `modelServerName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_model_provider_name: Option<String>,
    /// The share of the requests, against the sum of the rule's weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = DEFAULT_WEIGHT))]
    pub weight: Option<u32>,
}

/// What a target names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetName<'a> {
    /// A ModelServer.
    ModelServer(&'a str),
    /// An ExternalModelProvider.
    ExternalModelProvider(&'a str),
}

/// A limit on tokens per unit of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["unit"]))]
pub struct RateLimit {
    /// Prompt tokens per unit. Absent: no limit on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub input_tokens_per_unit: Option<u32>,
    /// Generated tokens per unit. Absent: no limit on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub output_tokens_per_unit: Option<u32>,
    /// The unit of time.
    #[serde(default)]
    pub unit: RateLimitUnit,
    /// With a Redis named here, replicas share the limit; otherwise each has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global: Option<GlobalRateLimit>,
}

/// A unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RateLimitUnit {
    #[default]
    Second,
    Minute,
    Hour,
    Day,
    /// As kthena counts it: 30 days.
    Month,
}

/// Where replicas share a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalRateLimit {
    /// The Redis that holds the shared counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisLimiter>,
}

/// A Redis, by its address alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisLimiter {
    /// `host:port`.
    pub address: String,
}

impl ModelRouteSpec {
    /// The model name, unless it is absent or empty, which mean the same.
    pub fn named_model(&self) -> Option<&str> {
        self.model_name.as_deref().filter(|name| !name.is_empty())
    }
}

impl StringMatch {
    /// The condition that counts.
    pub fn condition(&self) -> StringCondition<'_> {
        match (&self.exact, &self.prefix, &self.regex) {
            (Some(text), _, _) => StringCondition::Exact(text),
            (None, Some(text), _) => StringCondition::Prefix(text),
            (None, None, Some(text)) => StringCondition::Regex(text),
            (None, None, None) => StringCondition::Anything,
        }
    }
}

impl TargetModel {
    /// What the target names, or nothing if it names nothing or both.
    pub fn name(&self) -> Option<TargetName<'_>> {
        match (said(&self.model_server_name), said(&self.external_model_provider_name)) {
            (Some(name), None) => Some(TargetName::ModelServer(name)),
            (None, Some(name)) => Some(TargetName::ExternalModelProvider(name)),
            _ => None,
        }
    }

    /// The weight, as the CRD fills it in.
    pub fn weight_or_default(&self) -> u32 {
        self.weight.unwrap_or(DEFAULT_WEIGHT)
    }
}

impl RateLimit {
    /// The Redis that replicas share, if one is named. `global: {}` alone stays local, as in kthena.
    pub fn shared_redis(&self) -> Option<&RedisLimiter> {
        self.global.as_ref().and_then(|global| global.redis.as_ref())
    }
}

/// A text that is there and not empty.
fn said(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(value: serde_json::Value) -> TargetModel {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_target_names_exactly_one_thing() {
        assert_eq!(target(json!({"modelServerName": "a"})).name(), Some(TargetName::ModelServer("a")));
        assert_eq!(
            target(json!({"modelServerName": "", "externalModelProviderName": "b"})).name(),
            Some(TargetName::ExternalModelProvider("b"))
        );
        assert_eq!(target(json!({"modelServerName": "a", "externalModelProviderName": "b"})).name(), None);
        assert_eq!(target(json!({})).name(), None);
    }

    #[test]
    fn an_absent_weight_counts_a_hundred_and_stays_absent() {
        let absent = target(json!({"modelServerName": "a"}));
        assert_eq!(absent.weight_or_default(), 100);
        assert_eq!(serde_json::to_value(&absent).unwrap(), json!({"modelServerName": "a"}));
        assert_eq!(target(json!({"weight": 0})).weight_or_default(), 0);
    }

    #[test]
    fn the_first_of_several_conditions_counts() {
        let read = |value| serde_json::from_value::<StringMatch>(value).unwrap();
        let several = read(json!({"regex": "r", "prefix": "p", "exact": "e"}));
        assert_eq!(several.condition(), StringCondition::Exact("e"));
        assert_eq!(read(json!({"regex": "r", "prefix": ""})).condition(), StringCondition::Prefix(""));
        assert_eq!(read(json!({"regex": "r"})).condition(), StringCondition::Regex("r"));
        assert_eq!(read(json!({})).condition(), StringCondition::Anything);
    }

    #[test]
    fn a_global_limit_needs_a_redis() {
        let read = |value| serde_json::from_value::<RateLimit>(value).unwrap();
        assert_eq!(read(json!({"global": {}})).shared_redis(), None);
        assert_eq!(read(json!({})).unit, RateLimitUnit::Second);
        let shared = read(json!({"unit": "month", "global": {"redis": {"address": "r:6379"}}}));
        assert_eq!(shared.shared_redis().map(|redis| redis.address.as_str()), Some("r:6379"));
    }
}
