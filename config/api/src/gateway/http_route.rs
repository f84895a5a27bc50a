//! HTTPRoute: which requests go to which backends.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::http_filter::HttpFilter;
use crate::duration::DurationText;
use crate::parent_reference::ParentReference;

/// Rules for requests that arrive at the Gateways named.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    root = "HttpRoute",
    plural = "httproutes",
    namespaced,
    schema = "disabled",
    status = "RouteStatus",
    doc = "Rules for HTTP requests.",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentReference>,
    /// Names, or `*.` and a suffix; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// Empty means one rule that matches everything and has no backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HttpRouteRule>,
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The rule applies if any of these matches; empty means every path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<HttpRouteMatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<HttpFilter>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<HttpBackendRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<HttpRouteTimeouts>,
    /// Further attempts. Of the experimental channel: that it is asked for counts, not what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<serde_json::Value>,
    /// One backend for a client. Of the experimental channel, as `retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<serde_json::Value>,
}

/// Conditions on a request; all of them must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteMatch {
    /// Absent means the prefix `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<HttpPathMatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HttpHeaderMatch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<HttpHeaderMatch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<HttpMethod>,
}

/// A condition on the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpPathMatch {
    /// Absent means `PathPrefix`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<HttpPathMatchKind>,
    /// Absent means `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// How a path is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpPathMatchKind {
    Exact,
    /// By whole segments.
    PathPrefix,
    RegularExpression,
    /// A word of a later version.
    #[serde(untagged)]
    Other(String),
}

/// A condition on a header or on a parameter of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeaderMatch {
    /// Absent means `Exact`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<HttpValueMatchKind>,
    pub name: String,
    pub value: String,
}

/// How a value is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpValueMatchKind {
    Exact,
    RegularExpression,
    /// A word of a later version.
    #[serde(untagged)]
    Other(String),
}

/// A method of HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// A word of a later version.
    #[serde(untagged)]
    Other(String),
}

/// Where matching requests go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpBackendRef {
    /// Absent means the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Absent means `Service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub name: String,
    /// Absent means that of the route; another one needs a ReferenceGrant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Absent means 1; 0 means no request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<HttpFilter>,
}

/// Limits on time; zero means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteTimeouts {
    /// The whole of a request, further attempts included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<DurationText>,
    /// One attempt at a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<DurationText>,
}

/// What controllers say about a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    #[serde(default)]
    pub parents: Vec<RouteParentStatus>,
}

/// What one controller says about a route at one parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteParentStatus {
    pub parent_ref: ParentReference,
    pub controller_name: String,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
