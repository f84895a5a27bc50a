//! Attempts: their guards, and what they say of health.

use std::collections::{BTreeMap, HashMap};
use std::thread;

use proptest::prelude::*;

use super::*;

const PODS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn cost(prefill_tokens: u32) -> InFlightCost {
    InFlightCost { prefill_tokens, ..InFlightCost::default() }
}

fn fail(state: &State, pod: &str, attempt: Attempt, times: usize) {
    for _ in 0..times {
        state.report(&id(pod), attempt);
    }
}

#[test]
fn a_guard_goes_through_its_phases() {
    let (state, _) = state();
    state.replace(plan(&["a"]));
    let endpoint = state.endpoint(&id("a")).expect("a");
    let mut one = state.begin(&endpoint, cost(100));
    let two = state.begin(&endpoint, cost(50));
    let load =
        |in_flight, prefill_tokens, decoding| Load { in_flight, prefill_tokens, decoding, ..Load::default() };
    assert_eq!(state.load(&id("a")), load(2, 150, 0));
    one.first_byte();
    one.first_byte();
    assert_eq!(state.load(&id("a")), load(2, 50, 1));
    assert_eq!(state.in_flight(&id("a")), 2);
    drop(one);
    assert_eq!(state.load(&id("a")), load(1, 50, 0));
    drop(two);
    assert_eq!(state.load(&id("a")), load(0, 0, 0));
    assert_eq!(state.endpoints()[0].requests, 2);
}

/// CAN-02: 1,000 requests, each dropped in some phase, some after their endpoint was removed or came back.
#[test]
fn aborted_requests_leave_nothing_behind() {
    let (state, _) = state();
    state.replace(plan(&PODS));
    let mut held = Vec::new();
    for number in 0..1000_usize {
        let candidates = candidates(&state, &served(), None);
        let endpoint = &candidates.all()[number % candidates.len()].endpoint;
        let mut guard = state.begin(endpoint, cost(number as u32));
        if number % 3 == 0 {
            guard.first_byte();
        }
        if number % 2 == 0 {
            held.push(guard);
        }
        match number {
            400 => drop(state.replace(plan(&PODS[..2]))),
            600 => drop(state.replace(plan(&PODS))),
            _ => {}
        }
    }
    assert!(state.endpoints().iter().any(|status| status.load.in_flight > 0));
    while let Some(mut guard) = held.pop() {
        if held.len() % 4 == 0 {
            guard.first_byte();
        }
    }
    for status in state.endpoints() {
        assert_eq!(status.load, Load::default(), "{}", status.id);
    }
}

/// RET-03: 400s from every engine change nothing; the next request finds them all.
#[test]
fn bad_requests_take_nobody_out() {
    let (state, _) = state();
    state.replace(plan(&["a", "b"]));
    for pod in ["a", "b"] {
        fail(&state, pod, Attempt::Ok, 20);
    }
    assert_eq!(candidates(&state, &served(), None).len(), 2);
    assert!(
        state
            .endpoints()
            .iter()
            .all(|status| status.failures == Default::default() && status.health == "healthy")
    );
}

/// RET-08: an engine that takes requests and never answers is avoided after a few.
#[test]
fn a_hanging_engine_is_avoided() {
    let (state, _) = state();
    state.replace(plan(&["hung", "well"]));
    fail(&state, "hung", Attempt::FirstByteTimeout, 2);
    assert_eq!(candidates(&state, &served(), None).len(), 2);
    fail(&state, "hung", Attempt::FirstByteTimeout, 1);
    assert_eq!(pods(&candidates(&state, &served(), None)), ["well"]);
    assert!(state.unhealthy(&id("hung")) && !state.unhealthy(&id("well")));
    state.drain("default/well:8000", true);
    assert!(state.unhealthy(&id("well")), "a 500 from a draining endpoint is its own fault");
}

#[test]
fn one_request_at_a_time_tries_an_endpoint_that_was_out() {
    let (state, clock) = state();
    state.replace(plan(&["a", "b"]));
    eject(&state, "a");
    let endpoint = state.endpoint(&id("a")).expect("a");
    let early = state.begin(&endpoint, cost(1));
    clock.advance(Duration::from_secs(1));
    assert_eq!(pods(&candidates(&state, &served(), None)), ["a", "b"], "a request from before is no trial");
    assert_eq!(state.endpoints()[0].health, "trial");
    let trial = state.begin(&endpoint, cost(1));
    assert_eq!(pods(&candidates(&state, &served(), None)), ["b"]);
    drop(early);
    assert_eq!(pods(&candidates(&state, &served(), None)), ["b"]);
    drop(trial);
    assert_eq!(pods(&candidates(&state, &served(), None)), ["a", "b"], "the client of the trial went away");
    let trial = state.begin(&endpoint, cost(1));
    state.report(&id("a"), Attempt::DiedAfterSend);
    drop(trial);
    clock.advance(Duration::from_millis(1999));
    assert_eq!(pods(&candidates(&state, &served(), None)), ["b"]);
    clock.advance(Duration::from_millis(1));
    let trial = state.begin(&endpoint, cost(1));
    state.report(&id("a"), Attempt::Ok);
    assert_eq!(
        pods(&candidates(&state, &served(), None)),
        ["a", "b"],
        "its answer streams on, and it is back"
    );
    eject(&state, "a");
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        pods(&candidates(&state, &served(), None)),
        ["a", "b"],
        "that stream does not block the next trial"
    );
    drop(trial);
}

#[test]
fn probes_run_while_it_is_out_and_bring_it_back() {
    let (state, _) = state();
    state.replace(plan(&["a", "b"]));
    let probed = |state: &State| {
        let targets = state.scrape_targets();
        targets
            .into_iter()
            .filter(|(_, probe)| *probe)
            .map(|(endpoint, _)| endpoint.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(probed(&state), []);
    eject(&state, "a");
    assert_eq!(probed(&state), [id("a")]);
    state.probed(&id("a"), true);
    assert_eq!((probed(&state).len(), candidates(&state, &served(), None).len()), (0, 2));
}

/// Threads begin, advance and drop attempts while another swaps the endpoints under them.
#[test]
fn guards_balance_under_swaps() {
    let (state, _) = state();
    state.replace(plan(&PODS));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u32)
            .map(|worker| {
                let state = &state;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for number in 0..3000_u32 {
                        let candidates = candidates(state, &served(), None);
                        let chosen =
                            (number.wrapping_mul(2_654_435_761) ^ worker) as usize % candidates.len();
                        let endpoint = &candidates.all()[chosen].endpoint;
                        let mut guard = state.begin(endpoint, cost(number % 97));
                        if number % 2 == 0 {
                            guard.first_byte();
                        }
                        state.report(
                            &endpoint.id,
                            if number % 5 == 0 { Attempt::DiedAfterSend } else { Attempt::Ok },
                        );
                        held.push(guard);
                        if held.len() > 8 {
                            drop(held.swap_remove(number as usize % 8));
                        }
                    }
                })
            })
            .collect();
        let mut round = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            let changes = state.replace(plan(&PODS[round % 3..]));
            changes.removed.iter().for_each(|gone| state.release_slot(gone.slot));
            round += 1;
        }
        assert!(round > 0);
    });
    state.replace(plan(&PODS));
    for status in state.endpoints() {
        assert_eq!(status.load, Load::default(), "{}", status.id);
        assert!((status.slot.0 as usize) < 2 * PODS.len(), "slots are given out again");
    }
}

/// One step of the model test.
#[derive(Clone, Debug)]
enum Step {
    /// The pods whose bit is set are the plan.
    Replace(u8),
    Begin(usize, u32),
    FirstByte(usize),
    Drop(usize),
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => any::<u8>().prop_map(Step::Replace),
        6 => (0..PODS.len(), 0..1000_u32).prop_map(|(pod, tokens)| Step::Begin(pod, tokens)),
        3 => any::<usize>().prop_map(Step::FirstByte),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Release),
    ];
    prop::collection::vec(step, 1..120)
}

/// A guard, with what it should count and where: the slot tells one life of an endpoint from the next.
struct Held {
    guard: InFlight,
    slot: OwnerSlot,
    tokens: u64,
    decoding: bool,
}

fn expected(held: &[Held], slot: OwnerSlot) -> Load {
    let mut load = Load::default();
    for held in held.iter().filter(|held| held.slot == slot) {
        load.in_flight += 1;
        load.decoding += u32::from(held.decoding);
        load.prefill_tokens += if held.decoding { 0 } else { held.tokens };
    }
    load
}

proptest! {
    /// Whatever the order of swaps, attempts and drops: each endpoint counts exactly its own attempts, and no slot
    /// stands for two endpoints or comes back before it is released.
    #[test]
    fn live_numbers_survive_swaps(steps in steps()) {
        let (state, _) = state();
        let mut held: Vec<Held> = Vec::new();
        let mut resting: Vec<OwnerSlot> = Vec::new();
        let mut slots: BTreeMap<String, OwnerSlot> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Replace(bits) => {
                    let wanted: Vec<_> = PODS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, pod)| *pod).collect();
                    let changes = state.replace(plan(&wanted));
                    for gone in &changes.removed {
                        prop_assert_eq!(slots.remove(&*gone.id.pod), Some(gone.slot));
                        resting.push(gone.slot);
                    }
                    for new in &changes.added {
                        prop_assert!(!resting.contains(&new.slot) && slots.values().all(|slot| *slot != new.slot));
                        slots.insert(new.id.pod.to_string(), new.slot);
                    }
                    prop_assert_eq!(slots.keys().map(String::as_str).collect::<Vec<_>>(), wanted);
                }
                Step::Begin(pod, tokens) => {
                    if let Some(endpoint) = state.endpoint(&id(PODS[pod])) {
                        let guard = state.begin(&endpoint, cost(tokens));
                        held.push(Held { guard, slot: endpoint.slot, tokens: u64::from(tokens), decoding: false });
                    }
                }
                Step::FirstByte(at) if !held.is_empty() => {
                    let at = at % held.len();
                    held[at].guard.first_byte();
                    held[at].decoding = true;
                }
                Step::Drop(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                Step::FirstByte(_) | Step::Drop(_) => {}
                Step::Release => {
                    // Attempts of the removed endpoint go on; they must not show at the next owner of its slot.
                    for slot in resting.drain(..) {
                        state.release_slot(slot);
                        held.iter_mut().filter(|held| held.slot == slot).for_each(|held| held.slot = OwnerSlot(u32::MAX));
                    }
                }
            }
            let loads: HashMap<_, _> = state.endpoints().into_iter().map(|status| (status.slot, status.load)).collect();
            prop_assert_eq!(loads.len(), slots.len());
            for slot in slots.values() {
                prop_assert_eq!(loads.get(slot), Some(&expected(&held, *slot)));
            }
        }
    }
}
