use kvasir_core::{Address, EngineSample, SampleError, SampleSink as _};

use super::*;
use crate::plan::{PlanEndpoint, PlanModel};
use crate::testing::{candidates, id, model, models, named, plan, planned, state};

mod adapters;
mod pairs;
mod running;
mod secure;

fn served() -> ModelName {
    ModelName::from("served")
}

fn pods(candidates: &Candidates) -> Vec<&str> {
    candidates.all().iter().map(|candidate| &*candidate.endpoint.id.pod).collect()
}

fn names(endpoints: &[Arc<Endpoint>]) -> Vec<(String, u32)> {
    endpoints.iter().map(|endpoint| (endpoint.id.pod.to_string(), endpoint.slot.0)).collect()
}

fn slots(pairs: &[(&str, u32)]) -> Vec<(String, u32)> {
    pairs.iter().map(|(pod, slot)| ((*pod).to_owned(), *slot)).collect()
}

fn sample(running: u32) -> EngineSample {
    EngineSample { running, ..EngineSample::default() }
}

fn eject(state: &State, pod: &str) {
    state.report(&id(pod), Attempt::ConnectFailed);
}

#[test]
fn slots_are_dense_and_come_back_after_release() {
    let (state, _) = state();
    let first = state.replace(plan(&["a", "b", "c"]));
    assert_eq!(
        (names(&first.added), names(&first.removed)),
        (slots(&[("a", 0), ("b", 1), ("c", 2)]), vec![])
    );
    let second = state.replace(plan(&["c", "d"]));
    assert_eq!(names(&second.added), slots(&[("d", 3)]), "the slots of a and b are not forgotten yet");
    assert_eq!(names(&second.removed), slots(&[("a", 0), ("b", 1)]));
    state.release_slot(OwnerSlot(1));
    state.release_slot(OwnerSlot(2));
    let third = state.replace(plan(&["a", "c", "d", "e"]));
    assert_eq!(names(&third.added), slots(&[("a", 1), ("e", 4)]), "slot 2 is in use and was not released");
    assert_eq!(state.endpoint_by_slot(OwnerSlot(1)).map(|endpoint| endpoint.id.clone()), Some(id("a")));
    assert!(state.endpoint_by_slot(OwnerSlot(0)).is_none());
    let fourth = state.replace(plan(&["a", "c", "d", "e"]));
    assert!(fourth.added.is_empty() && fourth.removed.is_empty());
}

#[test]
fn what_did_not_change_stays_the_same_value() {
    let (state, _) = state();
    state.replace(plan(&["a", "b"]));
    let before = state.endpoint(&id("a")).expect("a");
    state.sampled(&id("a"), Ok(sample(7)));
    assert!(state.drain("default/b:8000", true));
    let mut changed = plan(&["a", "b", "c"]);
    changed.models[0].endpoints[1].labels.insert("zone".to_owned(), "x".to_owned());
    let changes = state.replace(changed);
    assert_eq!((names(&changes.added), changes.removed.len()), (slots(&[("c", 2)]), 0));
    assert!(Arc::ptr_eq(&before, &state.endpoint(&id("a")).expect("a")));
    let relabelled = state.endpoint(&id("b")).expect("b");
    assert_eq!((relabelled.slot, relabelled.labels.len()), (OwnerSlot(1), 1));
    assert_eq!(state.load(&id("a")).sample.map(|sample| sample.running), Some(7));
    assert_eq!(pods(&candidates(&state, &served(), None)), ["a", "c"], "b still drains");
}

/// Another address, engine or model is another owner, though the name is the same.
#[test]
fn an_endpoint_that_moved_starts_anew() {
    type Change = fn(&mut Plan);
    let changes: [Change; 3] = [
        |plan| {
            plan.models[0].endpoints[0].address = Address::parse("http://10.0.0.9:8000").expect("a good URL")
        },
        |plan| plan.models[0].endpoints[0].engine = kvasir_core::EngineKind::Sglang,
        |plan| plan.models[0].served = "other".into(),
    ];
    for change in changes {
        let (state, _) = state();
        state.replace(plan(&["a"]));
        state.sampled(&id("a"), Ok(sample(7)));
        let before = state.endpoint(&id("a")).expect("a");
        let running = state.begin(&before, InFlightCost::default());
        let mut moved = plan(&["a"]);
        change(&mut moved);
        let changes = state.replace(moved);
        assert_eq!(
            (names(&changes.added), names(&changes.removed)),
            (slots(&[("a", 1)]), slots(&[("a", 0)]))
        );
        assert_eq!(state.load(&id("a")), Load::default(), "the request in flight runs at the old one");
        let late = state.begin(&before, InFlightCost::default());
        assert_eq!(
            state.load(&id("a")),
            Load::default(),
            "and so does one that was placed before the change"
        );
        drop((running, late));
        assert_eq!(state.load(&id("a")), Load::default());
        // How attempts at the old one went says nothing of the new one.
        let after = state.endpoint(&id("a")).expect("a");
        assert!(state.still_takes(&after) && !state.still_takes(&before));
        for _ in 0..10 {
            state.report_of(&before, Attempt::ConnectFailed);
        }
        assert!(!state.unhealthy(&id("a")));
        assert_eq!(state.endpoints()[0].failures.connect, 0);
        state.report_of(&after, Attempt::ConnectFailed);
        assert_eq!(state.endpoints()[0].failures.connect, 1);
    }
}

#[test]
fn a_frozen_endpoint_takes_requests_until_it_leaves_service() {
    let (state, _) = state();
    state.replace(plan(&["a", "b"]));
    let frozen = state.endpoint(&id("a")).expect("a");
    assert!(state.still_takes(&frozen));
    let mut terminating = plan(&["a", "b"]);
    terminating.models[0].endpoints[0].ready = false;
    state.replace(terminating);
    assert!(!state.still_takes(&frozen), "it terminates");
    state.replace(plan(&["a", "b"]));
    assert!(state.still_takes(&frozen));
    state.drain(&frozen.id.to_string(), true);
    assert!(!state.still_takes(&frozen), "it is drained by hand");
    state.drain(&frozen.id.to_string(), false);
    state.replace(plan(&["b"]));
    assert!(!state.still_takes(&frozen), "it is gone");
}

#[test]
fn models_with_one_served_name_share_their_endpoints() {
    let (state, _) = state();
    let mut second = model("n", &["b", "c"]);
    second.adapters = vec!["sql".into()];
    let changes = state.replace(models(vec![model("m", &["a", "b"]), second]));
    assert_eq!(names(&changes.added), slots(&[("a", 0), ("b", 1), ("c", 2)]));
    assert_eq!(changes.conflicts, Vec::<String>::new());
    assert_eq!(pods(&candidates(&state, &served(), None)), ["a", "b", "c"]);
    assert_eq!(named(&state, "n").map(|found| found.target.endpoints().len()), Ok(3));
    assert_eq!(state.endpoint(&id("b")).map(|endpoint| endpoint.adapters.clone()), Some(vec!["sql".into()]));
}

#[test]
fn contradictions_in_a_plan_are_reported() {
    let (state, _) = state();
    let mut elsewhere = planned("a");
    elsewhere.address = Address::parse("http://z:8000").expect("a good URL");
    let other = PlanModel { served: "other".into(), endpoints: vec![elsewhere], ..model("n", &[]) };
    let changes = state.replace(models(vec![model("m", &["a"]), other]));
    assert_eq!(changes.conflicts.len(), 2, "{:?}", changes.conflicts);
    assert_eq!(changes.added.len(), 1);
    assert_eq!(pods(&candidates(&state, &"other".into(), None)), ["a"]);
}

#[test]
fn an_unknown_model_has_no_candidates() {
    let (state, _) = state();
    assert!(candidates(&state, &served(), None).is_empty());
    state.replace(models(vec![model("m", &[])]));
    assert!(candidates(&state, &served(), None).is_empty());
    assert!(named(&state, "m").is_ok_and(|found| found.rewrite() == Some("served")));
    assert!(named(&state, "x").is_err());
}

/// D8: if every endpoint is out, that is ignored; a drain never is.
#[test]
fn ejected_endpoints_are_passed_over_unless_all_are() {
    let (state, _) = state();
    state.replace(plan(&["a", "b", "c"]));
    eject(&state, "a");
    assert_eq!(pods(&candidates(&state, &served(), None)), ["b", "c"]);
    state.set_asleep(&id("b"), true);
    assert_eq!(pods(&candidates(&state, &served(), None)), ["c"]);
    state.drain("http://c:8000/", true);
    assert_eq!(pods(&candidates(&state, &served(), None)), ["a", "b"]);
    assert_eq!(state.endpoints_of(&served()).len(), 2);
    state.drain("default/a:8000", true);
    state.drain("default/b:8000", true);
    assert!(candidates(&state, &served(), None).is_empty());
    assert!(!state.drain("default/z:8000", true));
    state.drain("default/c:8000", false);
    assert_eq!(pods(&candidates(&state, &served(), None)), ["c"]);
}

#[test]
fn a_drain_by_url_takes_every_rank() {
    let (state, _) = state();
    let rank = |rank| PlanEndpoint { id: EndpointId::new("default", "a", 8000, rank), ..planned("a") };
    state.replace(models(vec![PlanModel { endpoints: vec![rank(0), rank(1)], ..model("m", &[]) }]));
    state.drain("default/a:8000#1", true);
    assert_eq!(candidates(&state, &served(), None).len(), 1);
    state.drain("http://a:8000", true);
    assert!(candidates(&state, &served(), None).is_empty());
}

/// MET-06: a failed scrape keeps the old numbers until they are too old.
#[test]
fn old_samples_are_not_used() {
    let (state, clock) = state();
    state.replace(plan(&["a"]));
    state.sampled(&id("a"), Ok(sample(3)));
    clock.advance(Duration::from_secs(5));
    state.sampled(&id("a"), Err(SampleError::Garbage("status 500".to_owned())));
    assert_eq!(state.load(&id("a")).sample, Some(sample(3)));
    assert_eq!(candidates(&state, &served(), None).all()[0].load.sample, Some(sample(3)));
    let status = state.endpoints().remove(0);
    assert_eq!(status.scrape_error.as_deref(), Some("not a metrics page: status 500"));
    assert_eq!(status.sample_age_seconds, Some(5.0));
    clock.advance(Duration::from_millis(1));
    assert_eq!(state.load(&id("a")).sample, None);
    state.sampled(&id("a"), Ok(sample(4)));
    assert_eq!(state.load(&id("a")).sample, Some(sample(4)));
    assert_eq!(state.endpoints().remove(0).scrape_error, None);
    let slow = State::new(clock.clone(), StateOptions { scrape_interval: Duration::from_secs(10) });
    slow.replace(plan(&["a"]));
    slow.sampled(&id("a"), Ok(sample(1)));
    clock.advance(Duration::from_secs(30));
    assert_eq!(slow.load(&id("a")).sample, Some(sample(1)));
}

/// MET-03: nothing of an endpoint that is gone is reported, and late news of it is ignored.
#[test]
fn removed_endpoints_are_not_reported() {
    let (state, _) = state();
    for round in 0..100 {
        let pod = format!("pod{round}");
        let changes = state.replace(plan(&[&pod]));
        changes.removed.iter().for_each(|gone| state.release_slot(gone.slot));
        let gone = id(&format!("pod{}", round + 50));
        state.sampled(&gone, Ok(sample(1)));
        state.models_listed(&gone, vec!["x".to_owned()]);
        state.probed(&gone, true);
        state.report(&gone, Attempt::ConnectFailed);
        let endpoints = state.endpoints();
        assert_eq!(endpoints.len(), 1);
        assert!(endpoints[0].slot.0 < 2, "slots go round");
    }
    assert!(state.unhealthy(&id("pod0")), "an endpoint that is gone is terminating");
}

#[test]
fn statuses_say_it_all() {
    let (state, _) = state();
    let mut wanted = plan(&["b", "a", "c", "d"]);
    wanted.models[0].aliases = vec!["z".into()];
    state.replace(wanted);
    state.models_listed(&id("a"), vec!["y".to_owned(), "served".to_owned()]);
    eject(&state, "b");
    state.drain("default/c:8000", true);
    state.set_asleep(&id("d"), true);
    let running = state.begin(
        &state.endpoint(&id("a")).expect("a"),
        InFlightCost { prefill_tokens: 9, ..InFlightCost::default() },
    );
    let statuses = state.endpoints();
    let short: Vec<_> =
        statuses.iter().map(|status| (&*status.id.pod, status.health, status.available)).collect();
    assert_eq!(
        short,
        [("a", "healthy", true), ("b", "ejected", false), ("c", "draining", false), ("d", "asleep", false)]
    );
    let json = serde_json::to_value(&statuses[0]).expect("JSON");
    assert_eq!(json["id"], "default/a:8000");
    assert_eq!(json["listed_models"], serde_json::json!(["served", "y"]));
    assert_eq!((&json["load"]["prefill_tokens"], &json["slot"]), (&9.into(), &1.into()));
    assert_eq!(statuses[1].failures.connect, 1);
    assert_eq!(state.models().iter().map(|listing| listing.id.as_str()).collect::<Vec<_>>(), ["m", "z"]);
    drop(running);
}
