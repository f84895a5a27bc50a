//! The HTTPRoutes of one listener, found by host and path without looking at each.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use super::hosts::HostTable;
use super::http_route::{HttpRoute, Rank, matches_of};
use super::path::{canonical_prefix, prefixes};
use crate::plan::PlanPath;
use crate::query::RouteQuery;

/// The matches of all routes that a listener accepted.
#[derive(Debug, Default)]
pub(super) struct HttpTable {
    /// The routes, the older before the younger.
    attached: Vec<Arc<HttpRoute>>,
    hosts: HostTable<Paths>,
}

/// A match that fits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'t> {
    pub(super) route: &'t HttpRoute,
    pub(super) rule: usize,
    /// Decoded bytes of the path that a prefix matched.
    pub(super) prefix: Option<usize>,
}

/// The matches of one hostname by path. Exact paths come before prefixes, long prefixes before short ones, expressions
/// last; within one path, entries are in order of precedence.
#[derive(Debug, Default)]
struct Paths {
    exact: HashMap<Box<str>, Vec<Entry>>,
    prefix: HashMap<Box<str>, Vec<Entry>>,
    /// Bytes of the longest key of `prefix`.
    longest: usize,
    regex: Vec<(Regex, Entry)>,
}

/// One match of one rule.
#[derive(Clone, Debug)]
struct Entry {
    route: Arc<HttpRoute>,
    /// Number of the route in the order of age and name, of the rule in the route, of the match in the rule.
    order: (usize, usize, usize),
}

impl HttpTable {
    /// A table of `attached`, or `before` where that is the same.
    pub(super) fn build(mut attached: Vec<Arc<HttpRoute>>, before: Option<&Arc<Self>>) -> Arc<Self> {
        attached.sort_by(|one, other| {
            (one.plan.created, &one.plan.id).cmp(&(other.plan.created, &other.plan.id))
        });
        attached.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let same = |before: &Arc<Self>| {
            before.attached.len() == attached.len()
                && before.attached.iter().zip(&attached).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if let Some(before) = before.filter(|before| same(before)) {
            return Arc::clone(before);
        }
        let mut hosts: HostTable<Paths> = HostTable::default();
        for (age, route) in attached.iter().enumerate() {
            let names: Vec<Option<&str>> = match route.plan.hostnames.as_slice() {
                [] => vec![None],
                names => names.iter().map(|name| Some(&**name)).collect(),
            };
            for name in names {
                hosts.get_or_insert_with(name, Paths::default).add(route, age);
            }
        }
        hosts.values_mut().for_each(Paths::sort);
        Arc::new(Self { attached, hosts })
    }

    /// The match with the highest precedence.
    pub(super) fn find(&self, host: &str, path: &str, query: &RouteQuery<'_>) -> Option<Found<'_>> {
        self.hosts.matching(host).find_map(|paths| paths.find(path, query))
    }
}

impl Paths {
    fn add(&mut self, route: &Arc<HttpRoute>, age: usize) {
        for (rule, planned) in route.plan.rules.iter().enumerate() {
            for (number, matching) in matches_of(planned).iter().enumerate() {
                let entry = Entry { route: Arc::clone(route), order: (age, rule, number) };
                match &matching.path {
                    PlanPath::Exact(path) => self.exact.entry((**path).into()).or_default().push(entry),
                    PlanPath::Prefix(prefix) => {
                        let prefix = canonical_prefix(prefix);
                        self.longest = self.longest.max(prefix.len());
                        self.prefix.entry(prefix.into()).or_default().push(entry);
                    }
                    PlanPath::Regex(regex) => self.regex.push((regex.clone(), entry)),
                    PlanPath::Never => {}
                }
            }
        }
    }

    fn sort(&mut self) {
        for entries in self.exact.values_mut().chain(self.prefix.values_mut()) {
            entries.sort_by_key(Entry::precedence);
        }
        self.regex.sort_by_key(|(_, entry)| entry.precedence());
    }

    fn find(&self, path: &str, query: &RouteQuery<'_>) -> Option<Found<'_>> {
        if let Some(entry) = first_that_holds(self.exact.get(path), query) {
            return Some(entry.found(None));
        }
        let by_prefix = prefixes(path, self.longest).find_map(|prefix| {
            let entry = first_that_holds(self.prefix.get(prefix), query)?;
            Some(entry.found(Some(prefix.len())))
        });
        by_prefix.or_else(|| {
            let mut fitting = self.regex.iter();
            let (_, entry) = fitting.find(|(regex, entry)| entry.holds(query) && regex.is_match(path))?;
            Some(entry.found(None))
        })
    }
}

fn first_that_holds<'t>(entries: Option<&'t Vec<Entry>>, query: &RouteQuery<'_>) -> Option<&'t Entry> {
    entries?.iter().find(|entry| entry.holds(query))
}

impl Entry {
    fn precedence(&self) -> (Option<Rank>, (usize, usize, usize)) {
        let (_, rule, number) = self.order;
        let conditions = self.route.rules.get(rule).and_then(|rule| rule.conditions.get(number));
        (conditions.map(|conditions| conditions.rank()), self.order)
    }

    fn holds(&self, query: &RouteQuery<'_>) -> bool {
        let (_, rule, number) = self.order;
        let conditions = self.route.rules.get(rule).and_then(|rule| rule.conditions.get(number));
        conditions.is_some_and(|conditions| conditions.hold(query))
    }

    fn found(&self, prefix: Option<usize>) -> Found<'_> {
        Found { route: &self.route, rule: self.order.1, prefix }
    }
}
