//! Targets whose endpoints prefill or decode for each other.

use std::collections::BTreeMap;
use std::time::Duration;

use kvasir_core::{ConnectorKind, Role};

use super::*;
use crate::plan::{Disaggregation, PlanTarget};

/// `a:D:g` is pod `a`, which decodes in group `g`; `b:P` prefills and has no group, `c:B:g` has no part.
fn endpoint(word: &str) -> PlanEndpoint {
    let mut parts = word.split(':');
    let mut planned = planned(parts.next().expect("a pod"));
    planned.role = match parts.next() {
        Some("D") => Role::Decode,
        Some("P") => Role::Prefill,
        _ => Role::Both,
    };
    planned.labels = parts
        .next()
        .map(|group| ("group".to_owned(), group.to_owned()))
        .into_iter()
        .collect::<BTreeMap<_, _>>();
    planned
}

fn apart(group_key: Option<&str>) -> Option<Disaggregation> {
    Some(Disaggregation { group_key: group_key.map(Into::into), connector: ConnectorKind::Http })
}

fn target(name: &str, disaggregation: Option<Disaggregation>, words: &[&str]) -> PlanTarget {
    let endpoints = words.iter().map(|word| endpoint(word)).collect();
    let target = PlanTarget::new(TargetId::model_server("ns", name), "m".into(), endpoints);
    PlanTarget { served: Some("m".into()), disaggregation, ..target }
}

fn pd(words: &[&str]) -> Plan {
    Plan { targets: vec![target("s", apart(Some("group")), words)], ..Plan::default() }
}

fn resolved(state: &State, name: &str) -> Resolved {
    let target = state.target(&TargetId::model_server("ns", name)).expect("a target");
    let route = RouteName::Model(Arc::clone(&target.label));
    let destination = Destination { target, route, timeout: None, deadline: None, edits: None };
    let mut resolved = Resolved::new(&Arc::new(destination), None, None);
    resolved.generation = state.snapshot.load().generation;
    resolved
}

fn chosen(state: &State) -> String {
    pods(&state.candidates(&resolved(state, "s"))).join(" ")
}

#[test]
fn only_endpoints_with_a_part_and_a_group_are_candidates() {
    let (state, _) = state();
    state.replace(pd(&["a:D:g", "b:P:g", "c:B:g", "d:D", "e:P", "f:D:", "g:P:h"]));
    assert_eq!(chosen(&state), "a b g");
    assert_eq!(state.endpoints().len(), 7, "all are known");
    let words = ["a:D:g", "b:P", "c:B:g"];
    state.replace(Plan { targets: vec![target("s", apart(None), &words)], ..Plan::default() });
    assert_eq!(chosen(&state), "a b", "without a key all are one group");
}

/// Every sentence: who is out, who is left.
#[test]
fn each_part_keeps_its_own_when_all_of_it_are_out() {
    let words = ["d1:D:g", "d2:D:g", "p1:P:g", "p2:P:g"];
    for (out, left) in [
        ("", "d1 d2 p1 p2"),
        ("d1", "d2 p1 p2"),
        ("d1 d2", "d1 d2 p1 p2"),
        ("d1 d2 p1", "d1 d2 p2"),
        ("p1 p2 d2", "d1 p1 p2"),
        ("d1 d2 p1 p2", "d1 d2 p1 p2"),
    ] {
        let (state, _) = state();
        state.replace(pd(&words));
        out.split_whitespace().for_each(|pod| eject(&state, pod));
        assert_eq!(chosen(&state), left, "{out} out");
    }
}

#[test]
fn health_does_not_tear_the_last_pair_apart() {
    let (state, _) = state();
    state.replace(pd(&["d1:D:g", "p1:P:g", "d2:D:h", "p2:P:h"]));
    eject(&state, "d1");
    assert_eq!(chosen(&state), "p1 d2 p2");
    eject(&state, "p2");
    assert_eq!(chosen(&state), "d1 p1 d2 p2", "what is left is of two groups");
    assert!(state.drain("default/d1:8000", true));
    assert_eq!(chosen(&state), "p1 d2 p2", "who drains gets nothing, whatever is out");
}

#[test]
fn each_part_keeps_its_own_when_none_of_it_has_the_adapter() {
    let (state, _) = state();
    state.replace(pd(&["d1:D:g", "d2:D:g", "p1:P:g", "p2:P:g"]));
    let mut asked = resolved(&state, "s");
    asked.adapter = Some("adapter".into());
    state.models_listed(&id("d2"), vec!["m".to_owned(), "adapter".to_owned()]);
    assert_eq!(pods(&state.candidates(&asked)).join(" "), "d2 p1 p2");
}

#[test]
fn a_change_of_part_or_group_counts_at_once() {
    let (state, clock) = state();
    state.replace(pd(&["a:D:g", "b:P:g"]));
    let before = resolved(&state, "s");
    let (decode, prefill) = (state.endpoint(&id("a")).expect("a"), state.endpoint(&id("b")).expect("b"));
    assert!(state.still_takes(&decode) && state.still_takes(&prefill));
    let running = state.begin(&decode, InFlightCost::default());
    for (words, left, takes) in [
        (["a:D:h", "b:P:g"], "a b", [false, true]),
        (["a:P:g", "b:P:g"], "a b", [false, true]),
        (["a:D:g", "b:B:g"], "a", [true, false]),
        (["a:D", "b:P:g"], "b", [false, true]),
        (["a:D:g", "b:P:g"], "a b", [true, true]),
    ] {
        let changes = state.replace(pd(&words));
        assert!(changes.added.is_empty() && changes.removed.is_empty(), "the engines are the same");
        assert_eq!(chosen(&state), left, "{words:?}");
        assert_eq!(pods(&state.candidates(&before)).join(" "), left, "{words:?}");
        assert_eq!([&decode, &prefill].map(|endpoint| state.still_takes(endpoint)), takes, "{words:?}");
        assert_eq!(state.load(&id("a")).in_flight, 1);
    }
    drop(running);
    clock.advance(Duration::from_secs(1));
    assert_eq!(state.load(&id("a")).in_flight, 0);
}

/// A request that was written for pairs is of no use to engines that serve it whole, and the other way round.
#[test]
fn a_request_keeps_to_the_way_that_it_was_resolved_under() {
    let (state, _) = state();
    state.replace(pd(&["a:D:g", "b:P:g"]));
    let paired = resolved(&state, "s");
    let whole = Plan { targets: vec![target("s", None, &["c"])], ..Plan::default() };
    state.replace(whole);
    assert_eq!(pods(&state.candidates(&paired)).join(" "), "a b");
    assert_eq!(chosen(&state), "c");
}

#[test]
fn an_endpoint_of_two_targets_has_one_part() {
    let key = || apart(Some("group"));
    for (first, second, expected, conflict) in [
        ((key(), "D"), (key(), "D"), ["a", "a"], false),
        ((key(), "P"), (key(), "D"), ["a", ""], true),
        ((key(), "B"), (key(), "D"), ["", "a"], false),
        ((None, "B"), (key(), "D"), ["a", "a"], false),
        ((key(), "D"), (None, "B"), ["a", "a"], false),
    ] {
        let (state, _) = state();
        let case = format!("{first:?} {second:?}");
        let word = |role: &str| format!("a:{role}:g");
        let targets =
            vec![target("s", first.0, &[&word(first.1)]), target("t", second.0, &[&word(second.1)])];
        let changes = state.replace(Plan { targets, ..Plan::default() });
        let of = |name| pods(&state.candidates(&resolved(&state, name))).join(" ");
        assert_eq!([of("s"), of("t")], expected, "{case}");
        assert_eq!(changes.conflicts.len(), usize::from(conflict), "{case}");
        assert!(
            changes.conflicts.iter().all(|text| text.contains("default/a:8000") && text.contains("prefill"))
        );
    }
}

#[test]
fn models_of_the_settings_are_kept_apart_too() {
    let (state, _) = state();
    let split = PlanModel {
        endpoints: vec![endpoint("a:D"), endpoint("b:P"), endpoint("c:B")],
        disaggregation: apart(None),
        ..model("m", &[])
    };
    state.replace(models(vec![model("alias", &[]), split]));
    for name in ["m", "alias"] {
        let resolved = named(&state, name).expect("a route");
        assert!(resolved.target.disaggregation.is_some());
        assert_eq!(pods(&state.candidates(&resolved)), ["a", "b"], "{name}");
    }
}
