//! Filters of an HTTPRoute: what happens to a request or an answer on its way.

use serde::{Deserialize, Serialize};

/// One filter. The field named after its type holds what it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpFilter {
    #[serde(rename = "type")]
    pub kind: HttpFilterKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HttpHeaderModifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HttpHeaderModifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<HttpRequestMirror>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<HttpRequestRedirect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<HttpUrlRewrite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<LocalObjectReference>,
}

/// The types of filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpFilterKind {
    RequestHeaderModifier,
    ResponseHeaderModifier,
    RequestMirror,
    RequestRedirect,
    #[serde(rename = "URLRewrite")]
    UrlRewrite,
    ExtensionRef,
    /// One of a later version or of the experimental channel; a route with it must not be served without it.
    #[serde(untagged)]
    Other(String),
}

/// Changes to headers: first set, then add, then remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeaderModifier {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<HttpHeader>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<HttpHeader>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// A header and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

/// A copy of requests for another backend, whose answers are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRequestMirror {
    pub backend_ref: HttpBackendObject,
    /// How many of a hundred requests; excludes `fraction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
}

/// An object behind the route, without a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpBackendObject {
    /// Absent means the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Absent means `Service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A share of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fraction {
    pub numerator: i32,
    /// Absent means 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denominator: Option<i32>,
}

/// An answer that sends the client elsewhere; what is absent stays as in the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRequestRedirect {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<HttpPathModifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Absent means 302.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
}

/// Another host or path towards the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpUrlRewrite {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<HttpPathModifier>,
}

/// Another path. The field named after its type holds the new text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpPathModifier {
    #[serde(rename = "type")]
    pub kind: HttpPathModifierKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace_full_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace_prefix_match: Option<String>,
}

/// How a path is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpPathModifierKind {
    ReplaceFullPath,
    /// What a `PathPrefix` matched is replaced, the rest is kept.
    ReplacePrefixMatch,
    /// A word of a later version.
    #[serde(untagged)]
    Other(String),
}

/// An object of the route's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    pub group: String,
    pub kind: String,
    pub name: String,
}
