//! Swaps: what is shared, what is torn down, and what a request inside sees of it.

use std::thread;

use kvasir_core::OwnerSlot;

use super::*;
use crate::plan::{PlanAttachment, PlanBackend, PlanHttpMatch, PlanHttpRoute, PlanHttpRule};
use crate::testing::id;

fn plan() -> Plan {
    let parent = PlanAttachment { gateway: object("ns/g"), listener: "l".into(), port: 8080 };
    let http_route = |name: &str| PlanHttpRoute {
        id: object(&format!("ns/{name}")),
        created: 0,
        parents: vec![parent.clone()],
        hostnames: Vec::new(),
        rules: vec![PlanHttpRule {
            matches: vec![PlanHttpMatch::default()],
            backends: vec![PlanBackend::new(to("ns", name), 1)],
            ..PlanHttpRule::default()
        }],
    };
    Plan {
        targets: vec![server("ns", "a"), server("ns", "b")],
        routes: vec![
            model_route("ns/a", "a", vec![rule_to("a")]),
            model_route("ns/b", "b", vec![rule_to("b")]),
        ],
        http_routes: vec![http_route("a"), http_route("b")],
        gateways: Some(vec![gateway("ns/g", &[("l", 8080, None)])]),
        ..Plan::default()
    }
}

/// Whether targets, model routes, HTTPRoutes and lists of two snapshots are the same values: a, b, table, list.
fn shared(state: &State, change: impl FnOnce(&mut Plan)) -> [bool; 6] {
    let before = state.snapshot.load_full();
    let mut next = plan();
    change(&mut next);
    state.replace(next);
    let after = state.snapshot.load_full();
    let target = |name| {
        let id = TargetId::model_server("ns", name);
        Arc::ptr_eq(&before.targets[&id], &after.targets[&id])
    };
    let model_route = |name: &str| {
        let id = object(&format!("ns/{name}"));
        Arc::ptr_eq(&before.table.routes[&id], &after.table.routes[&id])
    };
    let key = PlanAttachment { gateway: object("ns/g"), listener: "l".into(), port: 8080 };
    let table = Arc::ptr_eq(&before.table.attached[&key], &after.table.attached[&key]);
    let list = Arc::ptr_eq(&before.table.listings, &after.table.listings);
    [target("a"), target("b"), model_route("a"), model_route("b"), table, list]
}

#[test]
fn what_did_not_change_is_the_same_value() {
    type Change = fn(&mut Plan);
    let changes: [(&str, Change, [bool; 6]); 5] = [
        ("nothing", |_| {}, [true; 6]),
        (
            "a pod came",
            |plan| plan.targets[1].endpoints.push(planned("new")),
            [true, false, true, false, false, true],
        ),
        (
            "a policy",
            |plan| plan.targets[0].timeout = Some(std::time::Duration::from_secs(1)),
            [false, true, false, true, false, true],
        ),
        (
            "a rule",
            |plan| plan.routes[0].rules[0].body_model = Some("a".into()),
            [true, true, false, true, true, true],
        ),
        (
            "an adapter",
            |plan| plan.routes[1].adapters.push("lora".into()),
            [true, false, true, false, false, false],
        ),
    ];
    for (name, change, wanted) in changes {
        let state = with(plan());
        assert_eq!(shared(&state, change), wanted, "{name}");
    }
}

/// A pod that is not ready for a while keeps all that is known of it; one that started anew keeps nothing.
#[test]
fn readiness_and_restarts() {
    let state = with(plan());
    let change = |change: fn(&mut crate::PlanEndpoint)| {
        let mut plan = plan();
        plan.targets[0].endpoints[0].started_at = Some(5);
        change(&mut plan.targets[0].endpoints[0]);
        let changes = state.replace(plan);
        (changes.added.len(), changes.removed.len())
    };
    let count = || state.candidates(&named(&state, "a").expect("a")).len();
    assert_eq!((change(|_| {}), count()), ((0, 0), 1), "its start became known");
    assert_eq!((change(|pod| pod.ready = false), count()), ((0, 0), 0));
    let status = state.endpoints().remove(0);
    assert_eq!((status.health, status.available, status.slot), ("not_ready", false, OwnerSlot(0)));
    assert!(state.unhealthy(&id("ns-a")) && state.scrape_targets().len() == 1);
    assert_eq!((change(|_| {}), count()), ((0, 0), 1));
    assert_eq!((change(|pod| pod.started_at = None), count()), ((0, 0), 1), "nobody tells any more");
    assert_eq!((change(|pod| pod.started_at = Some(6)), count()), ((1, 1), 1), "another life");
}

#[test]
fn a_request_inside_keeps_its_route() {
    let state = with(plan());
    let inside = named(&state, "a").expect("a");
    let mut grown = plan();
    grown.targets[0].endpoints.push(planned("new"));
    state.replace(grown);
    assert_eq!(state.candidates(&inside).len(), 2, "of its target, today's endpoints");
    let mut renamed = plan();
    renamed.targets[0].served = Some("other".into());
    renamed.targets[0].endpoints = vec![planned("new")];
    state.replace(renamed);
    let pods = |resolved: &Resolved| -> Vec<String> {
        state.candidates(resolved).all().iter().map(|c| c.endpoint.id.pod.to_string()).collect()
    };
    assert_eq!(pods(&inside), ["ns-a"], "its body was not written for the new ones");
    assert_eq!(pods(&named(&state, "a").expect("a")), ["new"]);
    state.replace(Plan::default());
    assert_eq!(pods(&inside), ["ns-a"], "the target is gone, the request is not");
}

#[test]
fn the_way_to_an_endpoint_is_found() {
    let state = with(plan());
    let found = state.resolve_endpoint(&id("ns-b")).expect("a target");
    assert_eq!((&*found.target.label, found.rewrite()), ("ns/b", None));
    assert!(state.resolve_endpoint(&id("elsewhere")).is_none());
}

#[test]
fn a_target_that_is_planned_twice_is_the_first() {
    let (state, _) = state();
    let mut plan = plan();
    plan.targets.push(PlanTarget { endpoints: Vec::new(), ..server("ns", "a") });
    assert_eq!(state.replace(plan).conflicts.len(), 1);
    assert_eq!(named(&state, "a").map(|found| found.target.endpoints().len()), Ok(1));
}

/// Every request sees one plan: the rewritten name, the time limit and the endpoints belong together.
#[test]
fn no_request_sees_half_a_swap() {
    let world = |number: u64| {
        let name = format!("world-{number}");
        let mut target = PlanTarget {
            served: Some(name.as_str().into()),
            timeout: Some(std::time::Duration::from_secs(number)),
            endpoints: (0..3).map(|pod| planned(&format!("{name}-{pod}"))).collect(),
            ..server("ns", "a")
        };
        target.index_model = name.as_str().into();
        Plan {
            targets: vec![target],
            routes: vec![model_route("ns/r", "m", vec![rule_to("a")])],
            ..Plan::default()
        }
    };
    let (state, _) = state();
    state.replace(world(0));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..3_000 {
                        let found = named(&state, "m").expect("always routed");
                        let candidates = state.candidates(&found);
                        let name = found.rewrite().expect("a served name").to_owned();
                        let seconds = found.timeout.expect("a limit").as_secs();
                        assert_eq!(name, format!("world-{seconds}"));
                        assert_eq!(found.target.index_model.as_str(), name);
                        assert_eq!(candidates.len(), 3);
                        for candidate in candidates.all() {
                            assert!(candidate.endpoint.id.pod.starts_with(&name), "{candidate:?} for {name}");
                        }
                    }
                })
            })
            .collect();
        let mut number = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            number += 1;
            let changes = state.replace(world(number % 7));
            changes.removed.iter().for_each(|gone| state.release_slot(gone.slot));
        }
        assert!(number > 0);
    });
}
