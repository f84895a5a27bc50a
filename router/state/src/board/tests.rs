use std::time::Duration;

use kvasir_core::{EngineSample, InFlightCost, Load, SampleSink};
use proptest::prelude::*;

use super::*;
use crate::testing::{candidates, id, plan, state};
use crate::{Attempt, InFlight};

const PODS: [&str; 3] = ["a", "b", "c"];

fn shared(in_flight: u32, prefill_tokens: u64, decoding: u32) -> SharedLoad {
    SharedLoad { in_flight, prefill_tokens, decoding }
}

fn begin(state: &State, pod: &str, prefill_tokens: u32) -> InFlight {
    let endpoint = state.endpoint(&id(pod)).expect("an endpoint");
    state.begin(&endpoint, InFlightCost { prefill_tokens, ..InFlightCost::default() })
}

#[test]
fn our_own_goes_out_and_the_peers_come_in() {
    let (state, _) = state();
    state.replace(plan(&PODS));
    assert_eq!((state.own(), LoadBoard::endpoints(&*state)), (vec![], PODS.map(id).to_vec()));
    let mut running = begin(&state, "b", 100);
    let waiting = begin(&state, "b", 50);
    running.first_byte();
    state.set_peers(&[
        (id("b"), shared(3, 700, 1)),
        (id("c"), shared(1, 0, 1)),
        (id("gone"), shared(9, 9, 9)),
    ]);
    assert_eq!(state.own(), [(id("b"), shared(2, 50, 1))], "peers' are not ours to tell");
    let expected =
        Load { in_flight: 5, prefill_tokens: 750, decoding: 2, peers_in_flight: 3, ..Load::default() };
    assert_eq!(state.load(&id("b")), expected);
    let status = State::endpoints(&state).remove(1);
    assert_eq!((status.load, status.own), (expected, shared(2, 50, 1)));
    assert_eq!(SampleSink::in_flight(&*state, &id("b")), 5);
    assert_eq!(candidates(&state, &"served".into(), None).all()[2].load.peers_in_flight, 1);
    state.set_peers(&[(id("a"), shared(1, 10, 0))]);
    drop((running, waiting));
    assert_eq!(state.load(&id("b")), Load::default(), "what is left out is nothing");
    assert_eq!((state.load(&id("a")).in_flight, state.own()), (1, vec![]));
    state.set_peers(&[]);
    assert!(PODS.iter().all(|pod| state.load(&id(pod)) == Load::default()));
}

/// What a peer told may be torn or wrong; it never makes more decode than are there, nor wraps.
#[test]
fn odd_numbers_of_peers_stay_within_bounds() {
    let (state, _) = state();
    state.replace(plan(&["a"]));
    let _one = begin(&state, "a", 1);
    state.set_peers(&[(id("a"), shared(2, u64::MAX, 9))]);
    let load = state.load(&id("a"));
    assert_eq!((load.in_flight, load.prefill_tokens, load.decoding), (3, u64::MAX, 2));
    state.set_peers(&[(id("a"), shared(u32::MAX, 0, u32::MAX))]);
    assert_eq!(state.load(&id("a")).in_flight, u32::MAX);
    assert_eq!(SampleSink::in_flight(&*state, &id("a")), u32::MAX);
}

#[test]
fn an_endpoint_that_moved_forgets_the_peers_until_they_tell_again() {
    let (state, _) = state();
    state.replace(plan(&["a"]));
    state.set_peers(&[(id("a"), shared(4, 0, 4))]);
    state.replace(plan(&["a", "b"]));
    assert_eq!(state.load(&id("a")).peers_in_flight, 4, "it stayed where it was");
    state.replace(plan(&["b"]));
    state.replace(plan(&["a", "b"]));
    assert_eq!(state.load(&id("a")).peers_in_flight, 0);
}

/// The one trial of an endpoint that is out is a matter of this router's own requests.
#[test]
fn peers_do_not_stand_in_the_way_of_a_trial() {
    let (state, clock) = state();
    state.replace(plan(&["a", "b"]));
    state.report(&id("a"), Attempt::ConnectFailed);
    state.set_peers(&[(id("a"), shared(7, 0, 7))]);
    clock.advance(Duration::from_secs(1));
    assert_eq!(candidates(&state, &"served".into(), None).len(), 2);
    let trial = begin(&state, "a", 1);
    assert_eq!(candidates(&state, &"served".into(), None).len(), 1);
    drop(trial);
}

/// Decision D5: what an engine runs beyond what this router and its peers had there is others', and fades.
#[test]
fn foreign_requests_are_beyond_ours_and_the_peers_and_fade() {
    let (state, clock) = state();
    state.replace(plan(&["a"]));
    let _one = begin(&state, "a", 1);
    state.set_peers(&[(id("a"), shared(3, 0, 3))]);
    let known = SampleSink::in_flight(&*state, &id("a"));
    let sample =
        EngineSample { running: 10, waiting: 2, in_flight_at_scrape: known, ..EngineSample::default() };
    state.sampled(&id("a"), Ok(sample));
    let foreign = || state.load(&id("a")).foreign();
    assert_eq!(foreign(), 8);
    state.set_peers(&[]);
    assert_eq!(foreign(), 8, "a peer that ended its requests since then changes nothing about then");
    for (after, expected) in [(1000, 8), (500, 6), (500, 4), (500, 2), (500, 0), (1000, 0)] {
        clock.advance(Duration::from_millis(after));
        assert_eq!(foreign(), expected);
    }
    assert!(state.load(&id("a")).sample.is_some(), "its other numbers still count");
    state.sampled(&id("a"), Ok(sample));
    assert_eq!(foreign(), 8);
}

proptest! {
    /// In any order of our requests and our peers' news, the load is the sum of both, and what goes out is ours alone.
    #[test]
    fn the_load_is_the_sum(steps in prop::collection::vec((0..3_usize, 0..4_u8, 0..100_u32), 1..60)) {
        let (state, _) = state();
        state.replace(plan(&PODS));
        let mut held: Vec<(usize, InFlight, u64)> = Vec::new();
        let mut peers = [SharedLoad::default(); 3];
        for (pod, kind, number) in steps {
            match kind {
                0 => held.push((pod, begin(&state, PODS[pod], number), u64::from(number))),
                1 if !held.is_empty() => drop(held.swap_remove(number as usize % held.len())),
                2 if !held.is_empty() => {
                    let at = number as usize % held.len();
                    held[at].1.first_byte();
                    held[at].2 = 0;
                }
                _ => {
                    peers = [SharedLoad::default(); 3];
                    peers[pod] = shared(number + 1, u64::from(number), number);
                    state.set_peers(&[(id(PODS[pod]), peers[pod])]);
                }
            }
            for (index, pod) in PODS.iter().enumerate() {
                let ours = held.iter().filter(|(at, ..)| *at == index);
                let count = ours.clone().count() as u32;
                let tokens: u64 = ours.map(|(_, _, tokens)| tokens).sum();
                let load = state.load(&id(pod));
                prop_assert_eq!(load.in_flight, count + peers[index].in_flight);
                prop_assert_eq!(load.prefill_tokens, tokens + peers[index].prefill_tokens);
                prop_assert_eq!(load.peers_in_flight, peers[index].in_flight);
                let own = state.own().into_iter().find(|(own, _)| *own == id(pod)).map(|(_, own)| own);
                prop_assert_eq!(own.map_or(0, |own| own.in_flight), count);
            }
        }
    }
}
