//! One ModelRoute, ready for requests.

use std::sync::Arc;

use kvasir_core::ModelName;
use rand::Rng;

use super::choice::{Choice, Footing, Targets};
use super::conditions::HeaderTests;
use super::listener::Listener;
use super::weighted::Weighted;
use crate::plan::{PlanParent, PlanRoute, PlanRule, PlanTo, TargetId};
use crate::query::{Destination, NoRoute, RouteName, RouteQuery};
use crate::string_test::StringTest;
use crate::target::Target;

/// A ModelRoute, or a model of the settings.
#[derive(Debug)]
pub(super) struct ModelRoute {
    pub(super) name: RouteName,
    /// As planned; `None` for a model of the settings.
    pub(super) plan: Option<PlanRoute>,
    rules: Vec<Rule>,
    footing: Footing,
}

#[derive(Debug)]
struct Rule {
    headers: HeaderTests,
    uri: Option<StringTest>,
    body_model: Option<Arc<str>>,
    to: Weighted<Choice>,
}

impl ModelRoute {
    /// A route of its own for a model of the settings: always eligible, one rule, one target.
    pub(super) fn standalone(target: &TargetId, targets: &Targets) -> Self {
        let name = RouteName::Model(target.name.to_string().into());
        let rule = PlanRule { to: vec![(PlanTo::Target(target.clone()), 1)], ..PlanRule::default() };
        let mut footing = Footing::default();
        let rules = vec![Rule::new(&rule, &name, targets, &mut footing)];
        Self { name, plan: None, rules, footing }
    }

    /// `plan`, or `before` where that is the same.
    pub(super) fn build(plan: PlanRoute, before: Option<&Arc<Self>>, targets: &Targets) -> Arc<Self> {
        if let Some(before) = before
            && before.plan.as_ref() == Some(&plan)
            && before.footing.holds(targets)
        {
            return Arc::clone(before);
        }
        let name = RouteName::Model(plan.id.to_string().into());
        let mut footing = Footing::default();
        let rules = plan.rules.iter().map(|rule| Rule::new(rule, &name, targets, &mut footing)).collect();
        Arc::new(Self { name, plan: Some(plan), rules, footing })
    }

    /// Where a request goes; `None` leaves it to the next route of the name.
    pub(super) fn choose(
        &self,
        query: &RouteQuery<'_>,
        path: &str,
        at: Option<&Listener>,
        rng: &mut dyn Rng,
    ) -> Option<Result<&Arc<Destination>, NoRoute>> {
        if !self.is_eligible(at) {
            return None;
        }
        let rule = self.rules.iter().find(|rule| rule.matches(query, path))?;
        let choice = rule.to.pick(rng)?;
        if let Some(what) = self.plan.as_ref().and_then(|plan| plan.refused) {
            return Some(Err(NoRoute::Refused { route: self.name.clone(), what }));
        }
        Some(choice.follow(&self.name))
    }

    /// Whether it serves the listener of the request, or the one door.
    fn is_eligible(&self, at: Option<&Listener>) -> bool {
        let Some(plan) = &self.plan else { return true };
        match (&plan.parents, at) {
            (None, None) => true,
            (None, Some(listener)) => listener.gateway.namespace == plan.id.namespace,
            (Some(_), None) => false,
            (Some(parents), Some(listener)) => parents.iter().any(|parent| is_at(parent, listener)),
        }
    }

    /// Every target that a rule of it may choose.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.footing.targets()
    }

    /// What its adapters adapt: the name that clients use, or that of the model behind the first target.
    pub(super) fn adapted(&self) -> Option<&str> {
        let named = self.plan.as_ref().and_then(|plan| plan.model.as_ref());
        named.or_else(|| self.footing.model()).map(ModelName::as_str)
    }
}

fn is_at(parent: &PlanParent, listener: &Listener) -> bool {
    parent.gateway == listener.gateway
        && parent.section.as_ref().is_none_or(|section| *section == listener.name)
        && parent.port.is_none_or(|port| port == listener.port)
}

impl Rule {
    fn new(plan: &PlanRule, name: &RouteName, targets: &Targets, footing: &mut Footing) -> Self {
        let make = |target: Arc<Target>| Destination {
            timeout: target.timeout,
            target,
            route: name.clone(),
            deadline: None,
            edits: None,
        };
        let to = plan.to.iter().map(|(to, weight)| (footing.choose(to, targets, make), *weight));
        Self {
            to: Weighted::new(to),
            headers: HeaderTests::all(&plan.headers),
            uri: plan.uri.clone(),
            body_model: plan.body_model.clone(),
        }
    }

    fn matches(&self, query: &RouteQuery<'_>, path: &str) -> bool {
        self.body_model.as_deref().is_none_or(|model| query.model == Some(model))
            && self.uri.as_ref().is_none_or(|test| test.passes(path))
            && self.headers.pass_leniently(query.headers)
    }
}
