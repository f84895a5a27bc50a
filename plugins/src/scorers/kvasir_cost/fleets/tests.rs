use std::time::Duration;

use kvasir_core::{EndpointId, InFlightCost, PlacementObserver};

use super::*;
use crate::scorers::kvasir_cost::KvasirCost;
use crate::testing::{cycle, endpoint};

fn teach(fleets: &Fleets, endpoint: &Endpoint, each: f64, count: u32) {
    for turn in 0..count {
        let work = f64::from(turn % 8 + 1) * 400.0;
        fleets.learn(endpoint, &"m".into(), work, 0.01 + each * work);
    }
}

fn pace(fleets: &Fleets, endpoint: &Endpoint) -> Pace {
    let (prior, answers) = fleets.of(&"m".into()).unwrap().known();
    fleets.pace(endpoint, prior, answers)
}

#[test]
fn a_slot_that_is_given_out_again_brings_nothing_along() {
    let fleets = Fleets::new();
    teach(&fleets, &endpoint(1), 1.0e-4, 200);
    teach(&fleets, &endpoint(0), 1.0e-3, 60);
    let fleet = fleets.of(&"m".into()).unwrap().known().0;
    assert!(pace(&fleets, &endpoint(0)).each > fleet.each * 1.5);
    let id = EndpointId::new("default", "another", 8000, 0);
    assert_eq!(pace(&fleets, &Endpoint { id, ..endpoint(0) }), fleet);
    assert_eq!(
        pace(&fleets, &Endpoint { started_at: Some(5), ..endpoint(0) }),
        fleet,
        "a restart may be another GPU"
    );
}

#[test]
fn a_new_endpoint_that_stalls_at_its_first_request_is_not_taken_to_be_slow() {
    let fleets = Fleets::new();
    teach(&fleets, &endpoint(1), 1.0e-4, 100);
    fleets.learn(&endpoint(0), &"m".into(), 100.0, 60.0);
    let fleet = fleets.of(&"m".into()).unwrap().known().0;
    let new = pace(&fleets, &endpoint(0));
    assert!(new.time(1000.0) < 1.5 * fleet.time(1000.0), "{new:?} in {fleet:?}");
    // One that is slow is found out all the same.
    teach(&fleets, &endpoint(0), 1.0e-3, 40);
    let slow = pace(&fleets, &endpoint(0));
    assert!(slow.time(1000.0) > 3.0 * fleet.time(1000.0), "{slow:?} in {fleet:?}");
}

#[test]
fn an_answer_that_ends_between_two_readings_takes_nothing_away() {
    let fleets = Fleets::new();
    teach(&fleets, &endpoint(1), 1.0e-4, 100);
    teach(&fleets, &endpoint(0), 1.0e-3, 60);
    let (prior, answers) = fleets.of(&"m".into()).unwrap().known();
    let slow = fleets.pace(&endpoint(0), prior, answers);
    assert_eq!(fleets.pace(&endpoint(0), prior, answers - 1), slow);
    assert_ne!(slow, prior);
}

#[test]
fn what_was_learned_long_ago_fades() {
    let fleets = Fleets::new();
    teach(&fleets, &endpoint(1), 1.0e-4, 100);
    teach(&fleets, &endpoint(0), 1.0e-3, 60);
    let mut before = f32::INFINITY;
    for answers in [0, STALE, STALE / 2, STALE / 2] {
        teach(&fleets, &endpoint(1), 1.0e-4, answers);
        let fleet = fleets.of(&"m".into()).unwrap().known().0;
        let apart = pace(&fleets, &endpoint(0)).each / fleet.each;
        assert!(apart <= before.max(1.0) * 12.0, "{apart}");
        before = apart;
    }
    assert!((before - 1.0).abs() < 1e-6, "{before}");
}

#[test]
fn small_differences_are_noise_and_large_ones_count_in_full() {
    let fleet = Pace { fixed: 0.05, each: 1.0e-4 };
    for (ratio, counted) in [(1.0, 1.0), (1.19, 1.0), (0.85, 1.0), (2.0, 2.0), (0.5, 0.5), (10.0, 10.0)] {
        let pace = set_apart(Pace { each: fleet.each * ratio, ..fleet }, fleet, 1.0);
        assert!((pace.each / fleet.each - counted).abs() < 1e-3, "{ratio}: {pace:?}");
    }
    let mut before = fleet.each * 0.49;
    for step in 50..200_u8 {
        let ratio = f32::from(step) / 100.0;
        let each = set_apart(Pace { each: fleet.each * ratio, ..fleet }, fleet, 1.0).each;
        assert!(each >= before && each - before < fleet.each * 0.05, "{ratio}");
        before = each;
    }
    assert_eq!(set_apart(Pace { each: 9.0e-4, ..fleet }, fleet, 0.0), fleet);
    for (fixed, counted) in [(0.06, 0.05), (0.03, 0.05), (0.25, 0.23), (0.0, 0.02)] {
        let pace = set_apart(Pace { fixed, ..fleet }, fleet, 1.0);
        assert!((pace.fixed - counted).abs() < 1e-6, "{fixed}: {pace:?}");
    }
}

#[test]
fn models_beyond_the_bound_share_a_pace() {
    let fleets = Fleets::new();
    fleets.models.store(Arc::new(
        (0..MOST_MODELS).map(|index| (format!("m{index}").into(), Arc::new(Fleet::new()))).collect(),
    ));
    let model: ModelName = "one more".into();
    for _ in 0..50 {
        fleets.learn(&endpoint(0), &model, 1000.0, 1.0);
    }
    assert_eq!(fleets.models.load().len(), MOST_MODELS);
    let shared = fleets.of(&"another".into()).unwrap().known();
    assert!(shared.0.each > Pace::UNSEEN.each * 5.0 && shared.1 == 50, "{shared:?}");
}

/// What is not the whole way of one streamed request from a decision to a good end.
#[test]
fn only_whole_ways_teach() {
    let scorer = KvasirCost::default();
    let (pod, cost, took) = (endpoint(0), InFlightCost::default(), Duration::from_secs(1));
    let ways: [(&str, u8, bool); 5] = [
        ("never decided", 0b1110, false),
        ("never sent", 0b1101, false),
        ("no first byte", 0b1011, false),
        ("failed", 0b0111, false),
        ("whole", 0b1111, true),
    ];
    for (name, steps, teaches) in ways {
        let mut cycle = cycle();
        cycle.streamed = true;
        if steps & 1 > 0 {
            scorer.fleets.saw(&pod, &cycle, 1000.0);
        }
        if steps & 2 > 0 {
            scorer.dispatched(&cycle, &pod, cost);
        }
        if steps & 4 > 0 {
            scorer.first_byte(&cycle, &pod, cost, took);
        }
        if steps & 8 > 0 {
            scorer.completed(&cycle, &pod, None);
        }
        assert_eq!(scorer.fleets.of(&cycle.model).is_some(), teaches, "{name}");
    }
}

#[test]
fn a_decode_endpoint_does_not_teach_and_a_prefill_endpoint_does_without_a_stream() {
    for (role, teaches) in [(Role::Decode, false), (Role::Prefill, true), (Role::Both, false)] {
        let scorer = KvasirCost::default();
        let pod = Endpoint { role, ..endpoint(0) };
        let cycle = cycle();
        scorer.fleets.saw(&pod, &cycle, 1000.0);
        scorer.dispatched(&cycle, &pod, InFlightCost::default());
        scorer.first_byte(&cycle, &pod, InFlightCost::default(), Duration::from_secs(1));
        scorer.completed(&cycle, &pod, None);
        assert_eq!(scorer.fleets.of(&cycle.model).is_some(), teaches, "{role:?}");
    }
}
