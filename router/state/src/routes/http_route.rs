//! One HTTPRoute, ready for requests.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, header};
use rand::Rng;

use super::choice::{Choice, Footing, Targets};
use super::conditions::{HeaderTests, QueryTests};
use super::hosts::host_of;
use super::path;
use super::weighted::Weighted;
use crate::plan::{HeaderChanges, PlanBackend, PlanHttpMatch, PlanHttpRoute, PlanHttpRule, PlanRedirect};
use crate::query::{Destination, Edits, NoRoute, Redirect, Resolved, RouteName, RouteQuery, Routed};
use crate::target::Target;

/// An HTTPRoute.
#[derive(Debug)]
pub(super) struct HttpRoute {
    pub(super) plan: PlanHttpRoute,
    pub(super) rules: Vec<HttpRule>,
    /// What of it is in vain.
    pub(super) conflict: Option<String>,
    name: RouteName,
    footing: Footing,
}

#[derive(Debug)]
pub(super) struct HttpRule {
    /// The conditions beside the path; one for each match of the plan.
    pub(super) conditions: Vec<Conditions>,
    backends: Weighted<Choice>,
}

/// The conditions of a match beside the path.
#[derive(Debug)]
pub(super) struct Conditions {
    method: Option<Method>,
    headers: HeaderTests,
    query: QueryTests,
}

/// How specific a match is beside its path; the least comes first.
pub(super) type Rank = (bool, std::cmp::Reverse<usize>, std::cmp::Reverse<usize>);

impl HttpRoute {
    /// `plan`, or `before` where that is the same.
    pub(super) fn build(plan: PlanHttpRoute, before: Option<&Arc<Self>>, targets: &Targets) -> Arc<Self> {
        if let Some(before) = before
            && before.plan == plan
            && before.footing.holds(targets)
        {
            return Arc::clone(before);
        }
        let name = RouteName::Http(plan.id.to_string().into());
        let mut footing = Footing::default();
        let rules = plan
            .rules
            .iter()
            .map(|rule| {
                let backends =
                    rule.backends.iter().map(|b| (backend(rule, b, &name, targets, &mut footing), b.weight));
                HttpRule {
                    backends: Weighted::new(backends),
                    conditions: matches_of(rule).iter().map(Conditions::new).collect(),
                }
            })
            .collect();
        let framing = plan.rules.iter().flat_map(changed_names).find(|name| frames(name));
        let conflict = framing
            .map(|name| format!("HTTPRoute {}: the header {name} is the router's own and stays", plan.id));
        Arc::new(Self { plan, rules, conflict, name, footing })
    }

    /// What becomes of a request that rule `number` matched, with a prefix of `prefix` decoded bytes.
    pub(super) fn answer(
        &self,
        number: usize,
        query: &RouteQuery<'_>,
        decoded: &str,
        prefix: Option<usize>,
        rng: &mut dyn Rng,
    ) -> Result<Routed, NoRoute> {
        let none = || NoRoute::NoBackend { route: self.name.clone() };
        let (Some(plan), Some(rule)) = (self.plan.rules.get(number), self.rules.get(number)) else {
            return Err(none());
        };
        if let Some(what) = plan.refused {
            return Err(NoRoute::Refused { route: self.name.clone(), what });
        }
        if let Some(redirect) = &plan.filters.redirect {
            let location = location(redirect, query, decoded, prefix);
            let (status, route) = (redirect.status, self.name.clone());
            return Ok(Routed::Elsewhere(Redirect { status, location, route }));
        }
        let destination = rule.backends.pick(rng).ok_or_else(none)?.follow(&self.name)?;
        let adapter = query.model.and_then(|name| destination.target.adapter(name));
        let mut resolved = Resolved::new(destination, query.model, adapter);
        let change = destination.edits.as_ref().and_then(|edits| edits.path.as_ref());
        resolved.path = change.and_then(|change| path::changed(change, query.path, decoded, prefix));
        Ok(Routed::To(resolved))
    }
}

/// The matches of a rule; a rule without any matches every path.
pub(super) fn matches_of(rule: &PlanHttpRule) -> Cow<'_, [PlanHttpMatch]> {
    if rule.matches.is_empty() {
        Cow::Owned(vec![PlanHttpMatch::default()])
    } else {
        Cow::Borrowed(&rule.matches)
    }
}

impl Conditions {
    fn new(plan: &PlanHttpMatch) -> Self {
        Self {
            method: plan.method.clone(),
            headers: HeaderTests::first_of_each(&plan.headers),
            query: QueryTests::first_of_each(&plan.query),
        }
    }

    /// A method before none, many headers before few, many parameters before few.
    pub(super) fn rank(&self) -> Rank {
        use std::cmp::Reverse;
        (self.method.is_none(), Reverse(self.headers.len()), Reverse(self.query.len()))
    }

    pub(super) fn hold(&self, query: &RouteQuery<'_>) -> bool {
        self.method.as_ref().is_none_or(|method| method == query.method)
            && self.headers.pass_strictly(query.headers)
            && self.query.pass(query.query)
    }
}

fn backend(
    rule: &PlanHttpRule,
    backend: &PlanBackend,
    name: &RouteName,
    targets: &Targets,
    footing: &mut Footing,
) -> Choice {
    footing.choose(&backend.to, targets, |target: Arc<Target>| Destination {
        timeout: shorter(target.timeout, rule.attempt_timeout),
        target,
        route: name.clone(),
        deadline: rule.timeout,
        edits: edits(rule, backend),
    })
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn edits(rule: &PlanHttpRule, backend: &PlanBackend) -> Option<Edits> {
    let (filters, none) = (&rule.filters, HeaderChanges::default());
    let both = |of_rule: &HeaderChanges, of_backend: &HeaderChanges| -> Vec<HeaderChanges> {
        [of_rule, of_backend].into_iter().filter(|changes| **changes != none).map(without_framing).collect()
    };
    let edits = Edits {
        host: filters.rewrite.as_ref().and_then(|rewrite| rewrite.hostname.clone()),
        path: filters.rewrite.as_ref().and_then(|rewrite| rewrite.path.clone()),
        request: both(&filters.request_headers, &backend.request_headers),
        response: both(&filters.response_headers, &backend.response_headers),
    };
    let changes = edits.host.is_some()
        || edits.path.is_some()
        || !edits.request.is_empty()
        || !edits.response.is_empty();
    changes.then_some(edits)
}

/// Headers that say where a message ends and for whom it is. A filter that changed them would break the connection.
fn frames(name: &HeaderName) -> bool {
    [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ]
    .contains(name)
}

fn without_framing(changes: &HeaderChanges) -> HeaderChanges {
    let mut changes = changes.clone();
    changes.set.retain(|(name, _)| !frames(name));
    changes.add.retain(|(name, _)| !frames(name));
    changes.remove.retain(|name| !frames(name));
    changes
}

/// Every header that a rule changes.
fn changed_names(rule: &PlanHttpRule) -> impl Iterator<Item = &HeaderName> {
    let of_rule = [&rule.filters.request_headers, &rule.filters.response_headers];
    let of_backends = rule.backends.iter().flat_map(|b| [&b.request_headers, &b.response_headers]);
    of_rule.into_iter().chain(of_backends).flat_map(|changes| {
        let written = changes.set.iter().chain(&changes.add).map(|(name, _)| name);
        written.chain(&changes.remove)
    })
}

/// Where a redirect leads. The port is left out where the scheme implies it.
fn location(redirect: &PlanRedirect, query: &RouteQuery<'_>, decoded: &str, prefix: Option<usize>) -> String {
    let scheme = redirect.scheme.as_deref().unwrap_or("http");
    let usual = if scheme == "https" { 443 } else { 80 };
    // Without a new scheme the listener's port stays; with one, its usual port is meant.
    let port = redirect.port.unwrap_or(if redirect.scheme.is_some() { usual } else { query.port });
    let host = host_of(query.host);
    let host = redirect.hostname.as_deref().unwrap_or(&host);
    let path = redirect.path.as_ref().and_then(|change| path::changed(change, query.path, decoded, prefix));
    let path = path.as_deref().unwrap_or(query.path);
    let port = if port == usual { String::new() } else { format!(":{port}") };
    let search = query.query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{path}{search}")
}
