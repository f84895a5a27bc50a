use std::time::{Duration, Instant};

use kvasir_core::{Candidate, EndpointId, EngineSample, SessionKey};
use parking_lot::Mutex;

use super::*;
use crate::testing::{cycle, endpoint, pool_of, sampled, scores_of};

/// A clock that stands until it is moved.
struct Stopped(Mutex<Instant>);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        *self.0.lock()
    }
}

fn plugin() -> (SessionAffinity, Arc<Stopped>) {
    let clock = Arc::new(Stopped(Mutex::new(Instant::now())));
    (SessionAffinity::new(&SessionAffinityArgs::default(), Arc::clone(&clock) as _), clock)
}

fn of_session(session: u64) -> CycleState {
    CycleState { session: Some(SessionKey(session)), ..cycle() }
}

fn favourite(plugin: &SessionAffinity, cycle: &CycleState, pool: &Candidates) -> usize {
    let scores = scores_of(plugin, cycle, pool);
    (0..scores.len()).max_by(|one, other| scores[*one].unwrap().total_cmp(&scores[*other].unwrap())).unwrap()
}

#[test]
fn the_bound_endpoint_gets_100_and_nobody_else_an_opinion() {
    let (plugin, clock) = plugin();
    let pool = pool_of([Load::default(); 3]);
    plugin.completed(&of_session(5), &endpoint(1), None);
    assert_eq!(scores_of(&plugin, &of_session(5), &pool), [None, Some(100.0), None]);
    assert_eq!(scores_of(&plugin, &cycle(), &pool), [None; 3], "no conversation");
    *clock.0.lock() += Duration::from_secs(30 * 60);
    assert!(scores_of(&plugin, &of_session(5), &pool)[1] < Some(1.0), "silent for too long");
}

#[test]
fn only_a_good_end_binds_and_the_last_one_counts() {
    let (plugin, _) = plugin();
    plugin.dispatched(&of_session(5), &endpoint(0), InFlightCost::default());
    plugin.failed(&of_session(5), &endpoint(0));
    assert_eq!(plugin.sessions(), (0, 0));
    plugin.completed(&of_session(5), &endpoint(0), None);
    plugin.completed(&of_session(5), &endpoint(2), None);
    plugin.completed(&cycle(), &endpoint(2), None);
    assert_eq!(plugin.sessions(), (1, 0));
    let pool = pool_of([Load::default(); 3]);
    assert_eq!(scores_of(&plugin, &of_session(5), &pool), [None, None, Some(100.0)]);
}

#[test]
fn an_overloaded_endpoint_is_no_opinion_and_the_next_success_moves_the_binding() {
    let (plugin, _) = plugin();
    plugin.completed(&of_session(5), &endpoint(0), None);
    let running = |in_flight| Load { in_flight, ..Load::default() };
    let waiting = |waiting| sampled(EngineSample { waiting, ..EngineSample::default() });
    for (name, loads, overloaded) in [
        ("as many as fit", [running(8), running(0)], false),
        ("one more", [running(9), running(0)], true),
        ("twice the others", [running(90), running(45)], false),
        ("more than twice the others", [running(91), running(45)], true),
        ("nine wait", [waiting(9), running(9)], false),
        ("ten wait", [waiting(10), running(9)], true),
    ] {
        let scores = scores_of(&plugin, &of_session(5), &pool_of(loads));
        assert_eq!(scores == [None, None], overloaded, "{name}: {scores:?}");
    }
    assert_eq!(scores_of(&plugin, &of_session(5), &pool_of([running(99)])), [Some(100.0)], "nobody else");
    plugin.completed(&of_session(5), &endpoint(1), None);
    assert_eq!(scores_of(&plugin, &of_session(5), &pool_of([running(9), running(0)])), [None, Some(100.0)]);
}

#[test]
fn prefill_and_decode_have_bindings_of_their_own() {
    let (plugin, _) = plugin();
    let with = |slot, role| Endpoint { role, ..endpoint(slot) };
    let endpoints =
        [with(0, Role::Prefill), with(1, Role::Prefill), with(2, Role::Decode), with(3, Role::Decode)];
    plugin.completed(&of_session(5), &endpoints[1], None);
    plugin.completed(&of_session(5), &endpoints[2], None);
    assert_eq!(plugin.sessions(), (1, 1));
    let candidates =
        endpoints.map(|endpoint| Candidate { endpoint: Arc::new(endpoint), load: Load::default() });
    let mut pool = Candidates::new(candidates.to_vec());
    for (phase, role, bound) in [(Phase::Decode, Role::Decode, 2), (Phase::Prefill, Role::Prefill, 1)] {
        pool.begin_phase(phase, |candidate| candidate.endpoint.role == role);
        let mut expected = [None; 4];
        expected[bound] = Some(100.0);
        assert_eq!(scores_of(&plugin, &of_session(5), &pool), expected, "{phase:?}");
    }
}

#[test]
fn an_endpoint_that_goes_takes_its_bindings_along() {
    let (plugin, _) = plugin();
    let old = Endpoint { started_at: Some(100), ..endpoint(0) };
    plugin.completed(&of_session(5), &old, None);
    let pool = |endpoint| {
        let also = Arc::new(crate::testing::endpoint(1));
        Candidates::new(vec![
            Candidate { endpoint: Arc::new(endpoint), load: Load::default() },
            Candidate { endpoint: also, load: Load::default() },
        ])
    };
    assert_eq!(scores_of(&plugin, &of_session(5), &pool(old.clone())), [Some(100.0), None]);
    let restarted = Endpoint { started_at: Some(200), ..old.clone() };
    assert!(scores_of(&plugin, &of_session(5), &pool(restarted)).iter().all(|score| *score < Some(1.0)));
    let id = EndpointId::new("default", "another", 8000, 0);
    assert!(
        scores_of(&plugin, &of_session(5), &pool(Endpoint { id, ..old }))
            .iter()
            .all(|score| *score < Some(1.0))
    );
}

#[test]
fn a_conversation_with_another_model_is_another_one() {
    let (plugin, _) = plugin();
    plugin.completed(&of_session(5), &endpoint(0), None);
    let elsewhere = CycleState { model: "other".into(), ..of_session(5) };
    assert!(scores_of(&plugin, &elsewhere, &pool_of([Load::default(); 2]))[0] < Some(1.0));
}

#[test]
fn replicas_agree_on_conversations_that_none_of_them_knows() {
    let ((one, _), (other, _)) = (plugin(), plugin());
    let mut counts = [0_u32; 8];
    let pool = pool_of([Load::default(); 8]);
    // The other replica knows one pod less, and another order: only the missing pod's conversations differ.
    let reversed: Vec<Candidate> = pool.all().iter().rev().take(7).cloned().collect();
    let others = Candidates::new(reversed);
    for session in 0..4000_u64 {
        let cycle = of_session(session.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let chosen = favourite(&one, &cycle, &pool);
        counts[chosen] += 1;
        let elsewhere = others.all()[favourite(&other, &cycle, &others)].endpoint.slot.0 as usize;
        assert!(chosen == elsewhere || chosen == 0, "{session}");
    }
    assert!(counts.iter().all(|count| (400..600).contains(count)), "{counts:?}");
    // Dropped candidates are not preferred.
    let mut pool = pool;
    pool.retain(|candidate| candidate.endpoint.slot.0 > 5);
    assert_eq!(scores_of(&one, &of_session(1), &pool).iter().flatten().count(), 2);
}
