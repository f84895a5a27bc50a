//! HTTPRoutes: where they are attached, what the state is told of them, and what their status says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvasir_api::conditions::types;
use kvasir_api::gateway::HttpRoute;
use kvasir_state::plan::{ObjectName, PlanAttachment, PlanHttpRoute};

use super::attachment::{Attached, attach};
use super::classes::generation;
use super::gateways::Gateways;
use super::reasons::{self, Refusal, joined};
use super::rules::{self, Rules};
use crate::objects::Objects;
use crate::status::{ParentSaid, Said, Status, StatusKind, Verdict};
use crate::translate::Translation;

/// The Gateways at which accepted routes name each pool.
pub(super) type Naming = BTreeMap<ObjectName, BTreeSet<ObjectName>>;

pub(super) fn translate(
    objects: &Objects,
    gateways: &mut Gateways<'_>,
    translation: &mut Translation,
) -> Naming {
    let mut naming = Naming::new();
    for (name, read) in &objects.http_routes {
        let parents = match &read.0 {
            Ok(route) => {
                let translated = one(name, route, objects, gateways);
                for (gateway, listener) in translated.counted {
                    gateways.count_route(gateway, listener);
                }
                for pool in translated.pools {
                    naming.entry(pool).or_default().extend(translated.accepted_at.iter().cloned());
                }
                translation.plan.http_routes.extend(translated.planned);
                translated.parents
            }
            Err(unreadable) => {
                // Which Gateways it names cannot be known, so there is nowhere to say it but in the log.
                let sentence = format!("the HTTPRoute cannot be read: {unreadable}");
                translation.skipped.push((name.clone(), sentence));
                Vec::new()
            }
        };
        translation.statuses.push(Status {
            kind: StatusKind::HttpRoute,
            name: name.clone(),
            generation: generation(read.as_ref()),
            said: Said::Parents(parents),
        });
    }
    naming
}

/// What follows from one route.
#[derive(Debug, Default)]
struct Translated {
    planned: Vec<PlanHttpRoute>,
    parents: Vec<ParentSaid>,
    /// The numbers of Gateways and listeners that count it.
    counted: BTreeSet<(usize, usize)>,
    pools: BTreeSet<ObjectName>,
    accepted_at: BTreeSet<ObjectName>,
}

fn one(name: &ObjectName, route: &HttpRoute, objects: &Objects, gateways: &Gateways<'_>) -> Translated {
    let mut translated = Translated::default();
    let rules = rules::translate(&route.spec.rules, &name.namespace, objects);
    // One planned route for each set of hosts: at listeners with hosts of their own a route has fewer than elsewhere.
    let mut places: BTreeMap<Vec<Arc<str>>, Vec<PlanAttachment>> = BTreeMap::new();
    for parent in &route.spec.parent_refs {
        let Some((number, gateway)) = gateways.named_by(parent, &name.namespace) else { continue };
        let attached = attach(parent, name, &route.spec.hostnames, gateway, objects);
        let conditions = conditions(&attached, &rules);
        translated.parents.push(ParentSaid { parent: parent.clone(), conditions });
        let Ok(attached) = attached else { continue };
        if !rules.are_all_refused() {
            translated.accepted_at.insert(gateway.name.clone());
            translated.counted.extend(attached.iter().map(|attached| (number, attached.number)));
        }
        // A route of which nothing can be used is planned too: its requests are told so, instead of going to whatever
        // else would match.
        for at in attached.into_iter().filter(|attached| attached.listener.is_served()) {
            let place = PlanAttachment {
                gateway: gateway.name.clone(),
                listener: at.listener.spec.name.as_str().into(),
                port: at.listener.spec.port,
            };
            let places = places.entry(at.hostnames).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    translated.planned = places
        .into_iter()
        .map(|(hostnames, parents)| PlanHttpRoute {
            id: name.clone(),
            created: route.metadata.creation_timestamp.as_ref().map_or(0, |created| created.0.as_second()),
            parents,
            hostnames,
            rules: rules.planned.clone(),
        })
        .collect();
    translated.pools = rules.pools;
    translated
}

fn conditions(attached: &Result<Vec<Attached<'_>>, Refusal>, rules: &Rules) -> Vec<Verdict> {
    let mut conditions = Vec::with_capacity(3);
    let problem = rules.problems.first();
    let told = || joined(rules.problems.iter().map(|problem| problem.message.as_str()));
    conditions.push(match (attached, problem) {
        (Err(refusal), _) => Verdict::fails(types::ACCEPTED, refusal.reason, refusal.message.clone()),
        (Ok(_), Some(problem)) if rules.are_all_refused() => {
            Verdict::fails(types::ACCEPTED, problem.reason, told())
        }
        (Ok(_), _) => Verdict::holds(types::ACCEPTED, reasons::ACCEPTED, "the route is used"),
    });
    conditions.push(match rules.unresolved.first() {
        None => {
            let message = "every backend exists and may be named";
            Verdict::holds(types::RESOLVED_REFS, reasons::RESOLVED_REFS, message)
        }
        Some(first) => {
            let message = joined(rules.unresolved.iter().map(|refusal| refusal.message.as_str()));
            Verdict::fails(types::RESOLVED_REFS, first.reason, message)
        }
    });
    if let (Ok(_), Some(problem), false) = (attached, problem, rules.are_all_refused()) {
        let numbers: Vec<String> = rules.refused().map(|number| number.to_string()).collect();
        // Gateway API asks for these first words.
        let message = format!(
            "Dropped Rule {} (counted from 0; its requests are answered with 503): {}",
            numbers.join(", "),
            told()
        );
        conditions.push(Verdict::holds(types::PARTIALLY_INVALID, problem.reason, message));
    }
    conditions
}
