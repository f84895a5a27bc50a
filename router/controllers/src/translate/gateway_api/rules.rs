//! The rules of an HTTPRoute, each translated for itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kvasir_api::gateway::{HttpRouteRule, HttpRouteTimeouts};
use kvasir_state::plan::{ObjectName, PlanHttpRule};

use super::reasons::{self, Refusal};
use super::{backends, filters, matches};
use crate::objects::Objects;

/// The rules of one route.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// In order, those that are refused among them.
    pub(super) planned: Vec<PlanHttpRule>,
    /// Why rules are refused.
    pub(super) problems: Vec<Problem>,
    /// Backends that are not there, or may not be named.
    pub(super) unresolved: Vec<Refusal>,
    /// The pools that are named, and may be.
    pub(super) pools: BTreeSet<ObjectName>,
}

/// Something of a rule that cannot be done, so that the whole rule is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// What it is, in words for the client: "... is not available".
    pub(super) what: &'static str,
    /// For programs.
    pub(super) reason: &'static str,
    /// For the route's owner: which field, and what to change.
    pub(super) message: String,
}

impl Problem {
    /// A value that is not understood, or asks for what is not done.
    pub(super) fn unsupported(what: &'static str, message: impl Into<String>) -> Self {
        Self { what, reason: reasons::UNSUPPORTED_VALUE, message: message.into() }
    }

    /// Filters that exclude each other.
    pub(super) fn incompatible(message: impl Into<String>) -> Self {
        let (what, reason) = ("this combination of HTTPRoute filters", reasons::INCOMPATIBLE_FILTERS);
        Self { what, reason, message: message.into() }
    }
}

impl Rules {
    /// The numbers of the rules that are refused.
    pub(super) fn refused(&self) -> impl Iterator<Item = usize> {
        self.planned.iter().enumerate().filter(|(_, rule)| rule.refused.is_some()).map(|(number, _)| number)
    }

    /// Whether nothing of the route can be used.
    pub(super) fn are_all_refused(&self) -> bool {
        self.planned.iter().all(|rule| rule.refused.is_some())
    }
}

/// The rules of a route of `namespace`. A route without rules has one, for every path, without a backend.
pub(super) fn translate(rules: &[HttpRouteRule], namespace: &Arc<str>, objects: &Objects) -> Rules {
    let mut translated = Rules::default();
    for (number, rule) in rules.iter().enumerate() {
        let at = format!("spec.rules[{number}]");
        let mut problems = Vec::new();
        let matches = matches::translate(&at, &rule.matches, &mut problems);
        let filters = filters::of_rule(&at, rule, &matches, &mut problems);
        let (timeout, attempt_timeout) = timeouts(&at, rule.timeouts.as_ref(), &mut problems);
        experiments(&at, rule, &mut problems);
        let backends: Vec<_> = rule
            .backend_refs
            .iter()
            .enumerate()
            .map(|(number, backend)| {
                let at = format!("{at}.backendRefs[{number}]");
                let named = backends::resolve(&at, backend, namespace, objects);
                translated.unresolved.extend(named.unresolved);
                translated.pools.extend(named.pool);
                backends::plan(&at, backend, named.to, &mut problems)
            })
            .collect();
        let refused = problems.first().map(|problem| problem.what);
        translated.problems.append(&mut problems);
        let rule = PlanHttpRule { matches, backends, filters, timeout, attempt_timeout, refused };
        translated.planned.push(rule);
    }
    if rules.is_empty() {
        translated.planned.push(PlanHttpRule::default());
    }
    translated
}

/// Fields of the experimental channel that ask for what is not done.
fn experiments(at: &str, rule: &HttpRouteRule, problems: &mut Vec<Problem>) {
    if rule.retry.is_some() {
        let message = format!(
            "{at}.retry: the router tries again by rules of its own, and a retry of an HTTPRoute is not available; \
             remove it"
        );
        problems.push(Problem::unsupported("a retry of this HTTPRoute", message));
    }
    if rule.session_persistence.is_some() {
        let message = format!(
            "{at}.sessionPersistence: requests go to the endpoint that is best for each, and session persistence is \
             not available; remove it"
        );
        problems.push(Problem::unsupported("session persistence of this HTTPRoute", message));
    }
}

/// The limits of a request and of an attempt; zero is no limit.
fn timeouts(
    at: &str,
    timeouts: Option<&HttpRouteTimeouts>,
    problems: &mut Vec<Problem>,
) -> (Option<Duration>, Option<Duration>) {
    let limit =
        |said: Option<kvasir_api::DurationText>| said.map(|said| said.0).filter(|limit| !limit.is_zero());
    let request = limit(timeouts.and_then(|timeouts| timeouts.request));
    let attempt = limit(timeouts.and_then(|timeouts| timeouts.backend_request));
    if let (Some(request), Some(attempt)) = (request, attempt)
        && attempt > request
    {
        let message = format!(
            "{at}.timeouts: backendRequest is longer than request, which holds all attempts; make it shorter"
        );
        problems.push(Problem::unsupported("a timeout of one attempt beyond that of the request", message));
    }
    (request, attempt)
}
