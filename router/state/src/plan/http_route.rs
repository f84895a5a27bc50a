//! HTTPRoutes of Gateway API: which requests mean which targets, and what happens to them on the way.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use regex::Regex;

use super::{ObjectName, PlanTo};
use crate::string_test::{StringTest, same_pattern};

/// One HTTPRoute.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanHttpRoute {
    /// Its name.
    pub id: ObjectName,
    /// When it was created, seconds since 1970: of equal matches the older route's counts.
    pub created: i64,
    /// The listeners that accepted it.
    pub parents: Vec<PlanAttachment>,
    /// Hosts, or `*.` and a suffix; empty means any.
    pub hostnames: Vec<Arc<str>>,
    /// In order.
    pub rules: Vec<PlanHttpRule>,
}

/// A listener that accepted a route.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PlanAttachment {
    /// Its Gateway.
    pub gateway: ObjectName,
    /// Its name.
    pub listener: Arc<str>,
    /// Its port.
    pub port: u16,
}

/// One rule.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanHttpRule {
    /// The rule applies if any of these matches; empty means every path.
    pub matches: Vec<PlanHttpMatch>,
    /// Where requests go, by weight. What cannot be used takes its share and is answered with an error.
    pub backends: Vec<PlanBackend>,
    /// What happens on the way.
    pub filters: PlanFilters,
    /// How long a request may take up to the answer's header, all attempts together; `None` is without end.
    pub timeout: Option<Duration>,
    /// The same for one attempt; the target's own limit holds too.
    pub attempt_timeout: Option<Duration>,
    /// What it asks for that cannot be done: requests that it matches are refused with this.
    pub refused: Option<&'static str>,
}

/// Conditions on a request; all must hold.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanHttpMatch {
    /// The path.
    pub path: PlanPath,
    /// The method.
    pub method: Option<Method>,
    /// Tests on headers by name; the header must be there. Of two tests of one name the first counts.
    pub headers: Vec<(Arc<str>, StringTest)>,
    /// Tests on parameters of the query; the first parameter of a name counts, and it must be there.
    pub query: Vec<(Arc<str>, StringTest)>,
}

/// A condition on the path.
#[derive(Clone, Debug)]
pub enum PlanPath {
    /// The whole path.
    Exact(Arc<str>),
    /// Leading segments.
    Prefix(Arc<str>),
    /// Found anywhere in the path.
    Regex(Regex),
    /// A condition that nothing fulfils, such as an expression that cannot be read.
    Never,
}

impl Default for PlanPath {
    fn default() -> Self {
        Self::Prefix("/".into())
    }
}

impl PartialEq for PlanPath {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) | (Self::Prefix(one), Self::Prefix(other)) => one == other,
            (Self::Regex(one), Self::Regex(other)) => same_pattern(one, other),
            (Self::Never, Self::Never) => true,
            _ => false,
        }
    }
}

/// A backend with its share.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanBackend {
    /// Where to.
    pub to: PlanTo,
    /// Its share; 0 is no request.
    pub weight: u32,
    /// Changes to the headers of its requests, after those of the rule.
    pub request_headers: HeaderChanges,
    /// Changes to the headers of its answers, after those of the rule.
    pub response_headers: HeaderChanges,
}

impl PlanBackend {
    /// A backend that changes nothing.
    pub fn new(to: PlanTo, weight: u32) -> Self {
        let (request_headers, response_headers) = (HeaderChanges::default(), HeaderChanges::default());
        Self { to, weight, request_headers, response_headers }
    }
}

/// What happens to a request and its answer on the way.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanFilters {
    /// An answer that sends the client elsewhere; no backend is asked.
    pub redirect: Option<PlanRedirect>,
    /// Another host or path.
    pub rewrite: Option<PlanUrlRewrite>,
    /// Changes to the request's headers.
    pub request_headers: HeaderChanges,
    /// Changes to the answer's headers.
    pub response_headers: HeaderChanges,
}

/// Another host or path towards the backend.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PlanUrlRewrite {
    /// The `Host` that is sent.
    pub hostname: Option<HeaderValue>,
    /// The path that is sent.
    pub path: Option<PathChange>,
}

/// Another path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathChange {
    /// The whole of it.
    Full(Arc<str>),
    /// What a prefix matched. Where no prefix matched, the path stays.
    Prefix(Arc<str>),
}

/// Where a client is sent; what is absent stays as in the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanRedirect {
    /// `http` or `https`.
    pub scheme: Option<Arc<str>>,
    /// Host.
    pub hostname: Option<Arc<str>>,
    /// Port.
    pub port: Option<u16>,
    /// Path.
    pub path: Option<PathChange>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// Changes to headers, made in this order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HeaderChanges {
    /// In the place of all values.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Beside the values that are there.
    pub add: Vec<(HeaderName, HeaderValue)>,
    /// Taken away.
    pub remove: Vec<HeaderName>,
}
