//! Endpoints that are spoken to over TLS, and the other words about endpoints that a plan changes.

use std::collections::BTreeSet;

use kvasir_core::{Address, UpstreamTls};

use crate::plan::{PlanTarget, TargetId};
use crate::testing::{id, plan, planned, state};
use crate::{Plan, State};

/// A ModelServer and a pool that select the same pod.
fn two_targets(server: Option<UpstreamTls>, pool: Option<UpstreamTls>) -> Plan {
    let target = |id, tls| PlanTarget { tls, ..PlanTarget::new(id, "m".into(), vec![planned("a")]) };
    let targets = vec![
        target(TargetId::inference_pool("ns", "p"), pool),
        target(TargetId::model_server("ns", "s"), server),
    ];
    Plan { targets, ..Plan::default() }
}

fn url(state: &State) -> String {
    state.endpoint(&id("a")).expect("a").address.url()
}

#[test]
fn an_endpoint_is_spoken_to_in_the_way_of_the_target_that_says_so() {
    let (state, _) = state();
    let changes = state.replace(two_targets(None, None));
    assert_eq!((url(&state).as_str(), changes.added.len()), ("http://a:8000", 1));
    let ways = [
        UpstreamTls::Unverified,
        UpstreamTls::Verified("a.test".into()),
        UpstreamTls::Verified("b.test".into()),
    ];
    for tls in ways {
        for (server, pool) in [(Some(tls.clone()), None), (None, Some(tls.clone()))] {
            let changes = state.replace(two_targets(server, pool));
            assert!(changes.added.is_empty() && changes.removed.is_empty(), "it is the same engine");
            assert!(changes.conflicts.is_empty(), "{:?}", changes.conflicts);
            let endpoint = state.endpoint(&id("a")).expect("a");
            assert_eq!((endpoint.address.tls.clone(), endpoint.slot.0), (Some(tls.clone()), 0));
        }
    }
    // What both targets choose from is what the directory has.
    for target in [TargetId::model_server("ns", "s"), TargetId::inference_pool("ns", "p")] {
        let target = state.target(&target).expect("planned");
        let chosen = target.endpoints().next().expect("a").address.url();
        assert_eq!(chosen, "https://a:8000");
    }
    state.replace(two_targets(None, None));
    assert_eq!(url(&state), "http://a:8000");
}

#[test]
fn an_address_that_says_how_keeps_to_it() {
    let (state, _) = state();
    let mut plan = plan(&["a"]);
    let said = Address::parse("https://a:8000").expect("a good URL");
    plan.models[0].endpoints[0].address = said.clone();
    plan.targets = two_targets(Some(UpstreamTls::Unverified), None).targets;
    state.replace(plan);
    assert_eq!(state.endpoint(&id("a")).expect("a").address, said);
}

#[test]
fn readiness_and_models_are_told_as_planned() {
    let (state, _) = state();
    let mut plan = two_targets(None, None);
    plan.targets[1].endpoints[0].ready = false;
    plan.targets[0].endpoints.clear();
    plan.targets[0].index_model = "n".into();
    state.replace(plan);
    assert!(!state.is_ready(&id("a")) && !state.is_ready(&id("gone")));
    assert_eq!(state.index_models(), BTreeSet::from(["m".into(), "n".into()]));
    state.replace(two_targets(None, None));
    assert!(state.is_ready(&id("a")));
}
