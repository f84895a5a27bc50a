//! The routing table: which request goes to which target.

mod choice;
mod conditions;
mod hosts;
mod http_route;
mod http_table;
mod listener;
mod listing;
mod model_route;
mod path;
mod weighted;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kvasir_core::AdapterName;
use rand::Rng;
use smallvec::SmallVec;

use crate::plan::{ObjectName, PlanAttachment, PlanGateway, PlanHttpRoute, PlanModel, PlanRoute, TargetId};
use crate::query::{NoRoute, Resolved, RouteQuery, Routed};
use crate::target::Target;
use http_route::HttpRoute;
use http_table::HttpTable;
use listener::Listeners;
use model_route::ModelRoute;

pub(crate) use choice::Targets;
pub use listener::Listener;
pub use listing::Listing;

/// The part of a path that model names are looked up under.
const INFERENCE: &str = "/v1/";

/// Every route. Immutable: a change is a new table, which shares with the one before what did not change.
#[derive(Debug, Default)]
pub(crate) struct RoutingTable {
    /// Routes by the names of models, and by those of adapters. The latter are looked at only for names that are not
    /// among the former.
    names: HashMap<Arc<str>, Claims>,
    adapters: HashMap<Arc<str>, Claims>,
    listings: Arc<[Listing]>,
    /// `None`: not in Gateway mode.
    listeners: Option<Listeners>,
    /// What the next table may take over.
    routes: HashMap<ObjectName, Arc<ModelRoute>>,
    http_routes: HashMap<ObjectName, Arc<HttpRoute>>,
    attached: HashMap<PlanAttachment, Arc<HttpTable>>,
}

/// The routes that claim one name, in order of precedence.
type Claims = SmallVec<[Claim; 1]>;

#[derive(Clone, Debug)]
struct Claim {
    route: Arc<ModelRoute>,
    /// The adapter, when the name is one.
    adapter: Option<AdapterName>,
}

/// The routes of a plan.
#[derive(Debug)]
pub(crate) struct PlannedRoutes {
    /// Models of the settings, each with its target.
    pub(crate) models: Vec<(PlanModel, TargetId)>,
    pub(crate) routes: Vec<PlanRoute>,
    pub(crate) http_routes: Vec<PlanHttpRoute>,
    pub(crate) gateways: Option<Vec<PlanGateway>>,
}

/// Building.
impl RoutingTable {
    /// The table of `planned`. Claims that lost, and settings that do nothing, become sentences in `conflicts`.
    pub(crate) fn next(
        &self,
        planned: PlannedRoutes,
        targets: &Targets,
        conflicts: &mut Vec<String>,
    ) -> Self {
        let mut next = Self::default();
        next.claim_models(&planned.models, targets, conflicts);
        for plan in planned.routes {
            let before = self.routes.get(&plan.id);
            next.claim_route(ModelRoute::build(plan, before, targets));
        }
        next.listings = listing::list(&planned.models, &next, &self.listings);
        if let Some(gateways) = &planned.gateways {
            next.attach(planned.http_routes, gateways, self, targets, conflicts);
        }
        next
    }

    /// Models' names come before aliases, aliases before adapters; among equals the first has the name.
    fn claim_models(
        &mut self,
        models: &[(PlanModel, TargetId)],
        targets: &Targets,
        conflicts: &mut Vec<String>,
    ) {
        let mut taken: HashMap<&str, (&PlanModel, Option<&AdapterName>)> = HashMap::new();
        let own = models.iter().map(|(model, target)| (model, target, model.name.as_str(), None));
        let aliases = models.iter().flat_map(|(model, target)| {
            model.aliases.iter().map(move |alias| (model, target, alias.as_str(), None))
        });
        let adapters = models.iter().flat_map(|(model, target)| {
            model.adapters.iter().map(move |adapter| (model, target, adapter.as_str(), Some(adapter)))
        });
        for (model, target, name, adapter) in own.chain(aliases).chain(adapters) {
            if let Some((holder, before)) = taken.get(name) {
                let same = holder.name == model.name && holder.served == model.served && *before == adapter;
                if !same {
                    conflicts.push(format!(
                        "the name {name:?} of model {:?} already belongs to model {:?} and stays there",
                        model.name.as_str(),
                        holder.name.as_str()
                    ));
                }
                continue;
            }
            taken.insert(name, (model, adapter));
            let route = Arc::new(ModelRoute::standalone(target, targets));
            let index = if adapter.is_some() { &mut self.adapters } else { &mut self.names };
            index.entry(name.into()).or_default().push(Claim { route, adapter: adapter.cloned() });
        }
    }

    fn claim_route(&mut self, route: Arc<ModelRoute>) {
        let Some(plan) = &route.plan else { return };
        if let Some(model) = &plan.model {
            let claims = self.names.entry(model.as_str().into()).or_default();
            claims.push(Claim { route: Arc::clone(&route), adapter: None });
        }
        for adapter in &plan.adapters {
            let claims = self.adapters.entry(adapter.as_str().into()).or_default();
            claims.push(Claim { route: Arc::clone(&route), adapter: Some(adapter.clone()) });
        }
        self.routes.insert(plan.id.clone(), route);
    }

    fn attach(
        &mut self,
        planned: Vec<PlanHttpRoute>,
        gateways: &[PlanGateway],
        before: &Self,
        targets: &Targets,
        conflicts: &mut Vec<String>,
    ) {
        let mut attached: HashMap<PlanAttachment, Vec<Arc<HttpRoute>>> = HashMap::new();
        for plan in planned {
            let known = before.http_routes.get(&plan.id);
            let route = HttpRoute::build(plan, known, targets);
            conflicts.extend(route.conflict.clone());
            for parent in &route.plan.parents {
                attached.entry(parent.clone()).or_default().push(Arc::clone(&route));
            }
            self.http_routes.insert(route.plan.id.clone(), route);
        }
        let tables = &mut self.attached;
        let routes_of = |gateway: &ObjectName, listener: &str, port: u16| {
            let key = PlanAttachment { gateway: gateway.clone(), listener: listener.into(), port };
            let routes = attached.remove(&key).unwrap_or_default();
            let table = HttpTable::build(routes, before.attached.get(&key));
            tables.insert(key, Arc::clone(&table));
            table
        };
        self.listeners = Some(Listeners::build(gateways, routes_of, conflicts));
    }
}

/// Asking.
impl RoutingTable {
    /// Where a request goes: by the name of its model where its path is under `/v1/`, else by HTTPRoutes.
    pub(crate) fn resolve(&self, query: &RouteQuery<'_>, rng: &mut dyn Rng) -> Result<Routed, NoRoute> {
        let path = path::decode(query.path);
        let Some(listeners) = &self.listeners else {
            return self.by_model(query, &path, None, rng).unwrap_or(Err(NoRoute::NoMatch));
        };
        let host = hosts::host_of(query.host);
        let listener = listeners.find(query.port, &host).ok_or(NoRoute::NoListener)?;
        let mut routed = match self.by_model(query, &path, Some(listener), rng) {
            Some(routed) => routed?,
            None => {
                let found = listener.routes.find(&host, &path, query).ok_or(NoRoute::NoMatch)?;
                found.route.answer(found.rule, query, &path, found.prefix, rng)?
            }
        };
        if let Routed::To(resolved) = &mut routed {
            resolved.listener = Some(Arc::clone(listener));
        }
        Ok(routed)
    }

    /// `None` where no route of the model's name takes the request.
    fn by_model(
        &self,
        query: &RouteQuery<'_>,
        path: &str,
        at: Option<&Arc<Listener>>,
        rng: &mut dyn Rng,
    ) -> Option<Result<Routed, NoRoute>> {
        let name = query.model.filter(|_| path.starts_with(INFERENCE))?;
        let claims = self.claims(name)?;
        claims.iter().find_map(|claim| {
            let chosen = claim.route.choose(query, path, at.map(Arc::as_ref), rng)?;
            Some(
                chosen.map(|destination| {
                    Routed::To(Resolved::new(destination, Some(name), claim.adapter.clone()))
                }),
            )
        })
    }

    fn claims(&self, name: &str) -> Option<&Claims> {
        self.names.get(name).or_else(|| self.adapters.get(name))
    }

    /// Whether a ModelRoute, or a model of the settings, claims this name.
    pub(crate) fn is_claimed(&self, name: &str) -> bool {
        self.claims(name).is_some()
    }

    /// The targets that requests for this name may go to; one that two rules choose comes twice.
    pub(crate) fn targets_of(&self, name: &str) -> impl Iterator<Item = &Arc<Target>> {
        self.claims(name).into_iter().flatten().flat_map(|claim| claim.route.targets())
    }

    /// Every name that clients may use, sorted by its bytes.
    pub(crate) fn listings(&self) -> &Arc<[Listing]> {
        &self.listings
    }

    pub(crate) fn is_in_gateway_mode(&self) -> bool {
        self.listeners.is_some()
    }

    /// The ports of all listeners; `None` outside Gateway mode.
    pub(crate) fn ports(&self) -> Option<BTreeSet<u16>> {
        self.listeners.as_ref().map(Listeners::ports)
    }
}

#[cfg(test)]
mod tests;
