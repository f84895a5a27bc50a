//! The routing table: which name means which model, adapter and endpoints.

use std::collections::HashMap;
use std::sync::Arc;

use kvasir_core::{AdapterName, Endpoint, ModelName};
use serde::Serialize;

use crate::plan::PlanModel;

/// What one name means.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model's name in the settings.
    pub model: ModelName,
    /// The engine's served name.
    pub served: ModelName,
    /// The adapter, when the name is one.
    pub adapter: Option<AdapterName>,
    /// Who serves it.
    pub endpoints: Arc<[Arc<Endpoint>]>,
    rewrite: Option<Arc<str>>,
}

/// What a request needs of its route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The engine's served name.
    pub served: ModelName,
    /// The adapter, when the client asked for one.
    pub adapter: Option<AdapterName>,
    /// What to write into the body's `model`; `None` when the client already wrote what the engine knows. An adapter
    /// is asked for by its own name.
    pub rewrite: Option<Arc<str>>,
}

/// One name clients may use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listing {
    /// The name.
    pub id: String,
    /// The model in the settings that it stands for; an adapter stands for itself.
    pub root: String,
    /// The model that an adapter adapts.
    pub parent: Option<String>,
    /// Whether it is an adapter.
    pub adapter: bool,
}

/// Every name. Immutable: a change is a new table.
#[derive(Clone, Debug, Default)]
pub struct RoutingTable {
    routes: HashMap<Arc<str>, Route>,
    listings: Vec<Listing>,
}

impl RoutingTable {
    /// Builds the table. Models' names come before aliases, aliases before adapters; among equals the first has the
    /// name. Every claim that lost becomes a sentence in `conflicts`.
    pub(crate) fn build(
        models: &[PlanModel],
        endpoints_of: impl Fn(&ModelName) -> Arc<[Arc<Endpoint>]>,
        conflicts: &mut Vec<String>,
    ) -> Self {
        let mut table = Self::default();
        for model in models {
            table.claim(model, model.name.as_str(), None, endpoints_of(&model.served), conflicts);
        }
        for model in models {
            for alias in &model.aliases {
                table.claim(model, alias.as_str(), None, endpoints_of(&model.served), conflicts);
            }
        }
        for model in models {
            for adapter in &model.adapters {
                table.claim(model, adapter.as_str(), Some(adapter), endpoints_of(&model.served), conflicts);
            }
        }
        table.listings = table.routes.iter().map(|(name, route)| listing(name, route)).collect();
        table.listings.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        table
    }

    fn claim(
        &mut self,
        model: &PlanModel,
        name: &str,
        adapter: Option<&AdapterName>,
        endpoints: Arc<[Arc<Endpoint>]>,
        conflicts: &mut Vec<String>,
    ) {
        if let Some(taken) = self.routes.get(name) {
            let same = taken.model == model.name
                && taken.served == model.served
                && taken.adapter.as_ref() == adapter;
            if !same {
                conflicts.push(format!(
                    "the name {name:?} of model {:?} already belongs to model {:?} and stays there",
                    model.name.as_str(),
                    taken.model.as_str()
                ));
            }
            return;
        }
        let rewrite =
            (adapter.is_none() && name != model.served.as_str()).then(|| model.served.as_str().into());
        let route = Route {
            model: model.name.clone(),
            served: model.served.clone(),
            adapter: adapter.cloned(),
            endpoints,
            rewrite,
        };
        self.routes.insert(name.into(), route);
    }

    /// The route of `name`, exactly as the client wrote it.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.get(name)
    }

    /// What a request for `name` needs; `None` for a name that nobody has.
    pub fn resolve(&self, name: &str) -> Option<Resolved> {
        self.route(name).map(|route| Resolved {
            served: route.served.clone(),
            adapter: route.adapter.clone(),
            rewrite: route.rewrite.clone(),
        })
    }

    /// Every name, sorted by its bytes.
    pub fn listings(&self) -> &[Listing] {
        &self.listings
    }
}

fn listing(name: &str, route: &Route) -> Listing {
    let adapter = route.adapter.is_some();
    Listing {
        id: name.to_owned(),
        root: if adapter { name.to_owned() } else { route.model.to_string() },
        parent: adapter.then(|| route.model.to_string()),
        adapter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, served: &str, aliases: &[&str], adapters: &[&str]) -> PlanModel {
        PlanModel {
            name: name.into(),
            served: served.into(),
            aliases: aliases.iter().copied().map(ModelName::from).collect(),
            adapters: adapters.iter().copied().map(AdapterName::from).collect(),
            endpoints: Vec::new(),
        }
    }

    fn build(models: &[PlanModel]) -> (RoutingTable, Vec<String>) {
        let mut conflicts = Vec::new();
        (RoutingTable::build(models, |_| Arc::default(), &mut conflicts), conflicts)
    }

    #[test]
    fn names_resolve_to_the_served_name() {
        let (table, conflicts) = build(&[
            model("qwen", "Qwen/Qwen2.5-7B", &["gpt-4", "Qwen/Qwen2.5-7B"], &["sql"]),
            model("llama", "llama", &[], &[]),
        ]);
        assert_eq!(conflicts, Vec::<String>::new());
        for (name, served, adapter, rewrite) in [
            ("qwen", "Qwen/Qwen2.5-7B", None, Some("Qwen/Qwen2.5-7B")),
            ("gpt-4", "Qwen/Qwen2.5-7B", None, Some("Qwen/Qwen2.5-7B")),
            ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B", None, None),
            ("sql", "Qwen/Qwen2.5-7B", Some("sql"), None),
            ("llama", "llama", None, None),
        ] {
            let found = table.resolve(name).expect(name);
            assert_eq!((found.served.as_str(), found.rewrite.as_deref()), (served, rewrite), "{name}");
            assert_eq!(found.adapter.as_ref().map(AdapterName::as_str), adapter, "{name}");
        }
        for name in ["", "Qwen", "QWEN", " qwen"] {
            assert_eq!(table.resolve(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_list_has_every_name_once_in_order() {
        let (table, _) = build(&[model("b", "s", &["a", "b"], &["c"]), model("B", "s", &[], &[])]);
        let names: Vec<_> = table
            .listings()
            .iter()
            .map(|l| (l.id.as_str(), l.root.as_str(), l.parent.as_deref(), l.adapter))
            .collect();
        assert_eq!(
            names,
            [
                ("B", "B", None, false),
                ("a", "b", None, false),
                ("b", "b", None, false),
                ("c", "c", Some("b"), true)
            ]
        );
    }

    #[test]
    fn a_name_that_is_claimed_twice_stays_with_the_first() {
        let (table, conflicts) = build(&[
            model("a", "one", &["b", "x"], &["x", "y"]),
            model("b", "two", &[], &["y"]),
            model("a", "three", &[], &[]),
        ]);
        assert_eq!(
            table.resolve("b").map(|found| found.served),
            Some("two".into()),
            "a model's name goes first"
        );
        assert_eq!(
            table.resolve("x").and_then(|found| found.adapter),
            None,
            "an alias goes before an adapter"
        );
        assert_eq!(table.resolve("y").map(|found| found.served), Some("one".into()));
        assert_eq!(table.resolve("a").map(|found| found.served), Some("one".into()));
        assert_eq!(conflicts.len(), 4, "{conflicts:?}");
    }
}
