//! The names that clients may use.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::RoutingTable;
use crate::plan::{PlanModel, TargetId};

/// One name clients may use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listing {
    /// The name.
    pub id: String,
    /// The model in the settings that it stands for; an adapter, and the name of a ModelRoute, stands for itself.
    pub root: String,
    /// The model that an adapter adapts.
    pub parent: Option<String>,
    /// Whether it is an adapter.
    pub adapter: bool,
}

/// Every name of `table` once, sorted by its bytes; `before` where nothing changed.
pub(super) fn list(
    models: &[(PlanModel, TargetId)],
    table: &RoutingTable,
    before: &Arc<[Listing]>,
) -> Arc<[Listing]> {
    let mut roots: BTreeMap<&str, &str> = BTreeMap::new();
    for (model, _) in models {
        roots.entry(model.name.as_str()).or_insert(model.name.as_str());
    }
    for (model, _) in models {
        for name in &model.aliases {
            roots.entry(name.as_str()).or_insert(model.name.as_str());
        }
    }
    let parents: BTreeMap<&str, &str> = models
        .iter()
        .rev()
        .flat_map(|(model, _)| model.adapters.iter().map(|name| (name.as_str(), model.name.as_str())))
        .collect();
    let mut listed: Vec<Listing> = table
        .names
        .keys()
        .map(|name| Listing {
            id: name.to_string(),
            root: roots.get(&**name).copied().unwrap_or(name).to_owned(),
            parent: None,
            adapter: false,
        })
        .collect();
    let adapters = table.adapters.iter().filter(|(name, _)| !table.names.contains_key(&***name));
    listed.extend(adapters.map(|(name, claims)| {
        let of_route = || claims.first().and_then(|claim| claim.route.adapted());
        let parent = parents.get(&**name).copied().or_else(of_route);
        Listing {
            id: name.to_string(),
            root: name.to_string(),
            parent: parent.map(str::to_owned),
            adapter: true,
        }
    }));
    listed.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    if **before == *listed { Arc::clone(before) } else { listed.into() }
}
