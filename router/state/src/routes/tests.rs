use std::sync::Arc;

use kvasir_core::AdapterName;

use crate::plan::{
    ObjectName, PlanGateway, PlanListener, PlanModel, PlanParent, PlanRoute, PlanRule, PlanTarget, PlanTo,
    TargetId,
};
use crate::testing::{chat, models, named, planned, route, state};
use crate::{NoRoute, Plan, Resolved, RouteName, RouteQuery, State, StringTest};

mod http_routes;
mod model_routes;
mod precedence;
mod sharing;

/// The target of a test: a ModelServer of its namespace with one pod of its name.
fn server(namespace: &str, name: &str) -> PlanTarget {
    let id = TargetId::model_server(namespace, name);
    PlanTarget::new(id, name.into(), vec![planned(&format!("{namespace}-{name}"))])
}

fn to(namespace: &str, name: &str) -> PlanTo {
    PlanTo::Target(TargetId::model_server(namespace, name))
}

/// A rule without conditions, for the ModelServer `name` in `ns`.
fn rule_to(name: &str) -> PlanRule {
    PlanRule { to: vec![(to("ns", name), 1)], ..PlanRule::default() }
}

fn model_route(id: &str, model: &str, rules: Vec<PlanRule>) -> PlanRoute {
    PlanRoute {
        id: object(id),
        model: Some(model).filter(|name| !name.is_empty()).map(Into::into),
        adapters: Vec::new(),
        parents: None,
        rules,
        refused: None,
    }
}

fn object(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    ObjectName::new(namespace, name)
}

fn gateway(id: &str, listeners: &[(&str, u16, Option<&str>)]) -> PlanGateway {
    let listener = |(name, port, hostname): &(&str, u16, Option<&str>)| PlanListener {
        name: (*name).into(),
        port: *port,
        hostname: hostname.map(Into::into),
    };
    PlanGateway { id: object(id), listeners: listeners.iter().map(listener).collect() }
}

fn with(plan: Plan) -> Arc<State> {
    let (state, _) = state();
    assert_eq!(state.replace(plan).conflicts, Vec::<String>::new());
    state
}

/// The target's name, or the error in a few letters.
fn went(routed: Result<Resolved, NoRoute>) -> String {
    match routed {
        Ok(resolved) => resolved.target.id.name.name.to_string(),
        Err(NoRoute::NoMatch) => "no match".to_owned(),
        Err(NoRoute::NoListener) => "no listener".to_owned(),
        Err(NoRoute::Refused { what, .. }) => format!("refused: {what}"),
        Err(NoRoute::NoTarget { .. }) => "no target".to_owned(),
        Err(NoRoute::NoBackend { .. }) => "no backend".to_owned(),
    }
}

/// Models of the settings: names, aliases, adapters.
mod standalone {
    use super::*;

    fn model(name: &str, served: &str, aliases: &[&str], adapters: &[&str]) -> PlanModel {
        PlanModel {
            name: name.into(),
            served: served.into(),
            aliases: aliases.iter().copied().map(Into::into).collect(),
            adapters: adapters.iter().copied().map(AdapterName::from).collect(),
            endpoints: Vec::new(),
            disaggregation: None,
        }
    }

    fn build(planned: Vec<PlanModel>) -> (Arc<State>, Vec<String>) {
        let (state, _) = state();
        let conflicts = state.replace(models(planned)).conflicts;
        (state, conflicts)
    }

    fn served(state: &State, name: &str) -> Option<String> {
        Some(named(state, name).ok()?.target.index_model.to_string())
    }

    #[test]
    fn names_resolve_to_the_served_name() {
        let (state, conflicts) = build(vec![
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
            let found = named(&state, name).expect(name);
            assert_eq!((found.target.index_model.as_str(), found.rewrite()), (served, rewrite), "{name}");
            assert_eq!(found.adapter.as_ref().map(AdapterName::as_str), adapter, "{name}");
            assert_eq!(found.route, RouteName::Model(format!("default/{served}").into()));
            assert_eq!(*found.target.label, format!("default/{served}"));
        }
        for name in ["", "Qwen", "QWEN", " qwen"] {
            assert_eq!(served(&state, name), None, "{name:?}");
        }
    }

    #[test]
    fn the_list_has_every_name_once_in_order() {
        let (state, _) = build(vec![model("b", "s", &["a", "b"], &["c"]), model("B", "s", &[], &[])]);
        let listed = state.models();
        let names: Vec<_> =
            listed.iter().map(|l| (l.id.as_str(), l.root.as_str(), l.parent.as_deref(), l.adapter)).collect();
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
        let (state, conflicts) = build(vec![
            model("a", "one", &["b", "x"], &["x", "y"]),
            model("b", "two", &[], &["y"]),
            model("a", "three", &[], &[]),
        ]);
        assert_eq!(served(&state, "b").as_deref(), Some("two"), "a model's name goes first");
        assert!(named(&state, "x").is_ok_and(|x| x.adapter.is_none()), "an alias goes before an adapter");
        assert_eq!(served(&state, "y").as_deref(), Some("one"));
        assert_eq!(served(&state, "a").as_deref(), Some("one"));
        assert_eq!(conflicts.len(), 4, "{conflicts:?}");
    }
}
