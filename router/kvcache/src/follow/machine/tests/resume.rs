//! A saved state: proved, refuted, or left without an answer.

use proptest::prelude::*;

use super::*;

/// A follower that may go on after batches `first..=last` of life 1.
fn resuming(first: u64, last: u64, completeness: Completeness) -> Rig {
    let mut rig = Rig::new(true);
    let point = ResumePoint { seq: last, digest: batch(1, last).digest, completeness };
    rig.follower = Follower::resuming(rig.follower.options, rig.now, point);
    rig.saved = (first..=last).map(|seq| (1, seq)).collect();
    rig
}

#[test]
fn the_same_engine_goes_on() {
    let mut rig = resuming(0, 40, Completeness::Exact);
    rig.step(Input::Connected);
    rig.live(1, [43]);
    rig.did(&["partial", "replay 40"]);
    rig.replay(1, 40..=42);
    rig.did(&["restore", "exact", "apply 1/41", "apply 1/42", "apply 1/43"]);
    assert_eq!(rig.applied, (0..=43).map(|seq| (1, seq)).collect::<Vec<_>>());
    // From here on it is a follower like any other.
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.did(&["replay 43"]);
}

#[test]
fn a_partial_state_is_not_given_up_for_a_shorter_history() {
    let mut rig = resuming(7, 40, Completeness::Partial);
    rig.step(Input::Connected);
    rig.replay(1, [40]);
    rig.did(&["partial", "replay 40", "restore", "partial"]);
    rig.wait(Duration::from_secs(8));
    rig.did(&[]);
}

#[test]
fn another_engine_is_read_anew() {
    // With the saved number passed, and with fewer batches than were saved.
    let mut rig = resuming(0, 40, Completeness::Exact);
    rig.step(Input::Connected);
    rig.step(Input::Replayed(batch(2, 40)));
    rig.did(&["partial", "replay 40", "drop saved", "clear", "partial", "cancel", "replay 0"]);
    let mut rig = resuming(0, 40, Completeness::Exact);
    rig.step(Input::Connected);
    rig.replay(2, []);
    rig.did(&["partial", "replay 40", "drop saved", "clear", "partial", "replay 0"]);
    rig.replay(2, 0..=3);
    assert_eq!(rig.applied, (0..=3).map(|seq| (2, seq)).collect::<Vec<_>>());
    assert_eq!(rig.follower.completeness(), Completeness::Exact);
}

#[test]
fn a_state_that_the_buffer_no_longer_reaches_is_dropped() {
    let mut rig = resuming(0, 40, Completeness::Exact);
    rig.step(Input::Connected);
    rig.replay(1, 44..=45);
    rig.did(&[
        "partial",
        "replay 40",
        "drop saved",
        "clear",
        "partial",
        "apply 1/44",
        "apply 1/45",
        "partial",
    ]);
}

#[test]
fn without_an_answer_it_waits_and_then_goes_on_without() {
    let mut rig = resuming(0, 40, Completeness::Exact);
    rig.step(Input::Connected);
    rig.live(1, [41]);
    rig.fail();
    rig.did(&["partial", "replay 40"]);
    rig.live(1, [42]);
    rig.wait(Duration::from_secs(5));
    rig.did(&["replay 40"]);
    // A new connection asks again, at once.
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.did(&["cancel", "replay 40"]);
    let mut patient = Rig { follower: rig.follower, ..Rig::new(true) };
    patient.saved = (0..=40).map(|seq| (1, seq)).collect();
    patient.replay(1, 40..=42);
    assert_eq!(patient.applied.len(), 43);

    let mut rig = resuming(0, 40, Completeness::Exact);
    rig.step(Input::Connected);
    rig.live(1, [41]);
    for _ in 0..3 {
        rig.fail();
        rig.wait(Duration::from_secs(20));
    }
    rig.did(&[
        "partial",
        "replay 40",
        "replay 40",
        "replay 40",
        "drop saved",
        "partial",
        "apply 1/41",
        "replay 0",
    ]);
}

#[test]
fn without_a_replay_socket_nothing_is_proved() {
    let mut rig = resuming(0, 40, Completeness::Exact);
    let options = Options { has_replay: false, ..rig.follower.options };
    let point = rig.follower.resume.unwrap();
    rig.follower = Follower::resuming(options, rig.now, point);
    rig.step(Input::Connected);
    rig.live(1, [41]);
    rig.did(&["partial", "partial", "apply 1/41"]);
}

proptest! {
    /// However far the engine got, whether it restarted, and whatever its buffer holds: afterwards what is applied is
    /// its own history without holes, exact from batch 0 on only, and nothing of another life.
    #[test]
    fn what_is_held_is_the_engines_own(
        last in 0u64..20, first in 0u64..20, restarted: bool, next in 0u64..40, window in 1u64..30,
        answers in proptest::collection::vec(any::<bool>(), 0..6), lives in proptest::collection::vec(any::<bool>(), 0..6),
    ) {
        let first = first.min(last);
        let completeness = if first == 0 { Completeness::Exact } else { Completeness::Partial };
        let mut rig = resuming(first, last, completeness);
        let life = 1 + u32::from(restarted);
        let mut next = if restarted { next } else { last + 1 + next };
        rig.step(Input::Connected);
        let answer = |rig: &mut Rig, next: u64, complete: bool| {
            if !rig.follower.is_replaying() {
                return;
            }
            let from = rig.log.iter().rev().find_map(|word| word.strip_prefix("replay ")).unwrap();
            let from: u64 = from.parse().unwrap();
            for seq in from.max(next.saturating_sub(window))..next {
                rig.step(Input::Replayed(batch(life, seq)));
            }
            rig.step(Input::ReplayEnded { complete });
        };
        let mut heard = lives.into_iter();
        for complete in answers {
            answer(&mut rig, next, complete);
            if heard.next() == Some(true) {
                rig.live(life, [next]);
            }
            next += 1;
            rig.wait(Duration::from_secs(100));
        }
        rig.live(life, [next]);
        next += 1;
        for _ in 0..20 {
            rig.wait(Duration::from_secs(100));
            answer(&mut rig, next, true);
        }
        prop_assert!(!rig.applied.is_empty());
        let from = rig.applied[0].1;
        prop_assert_eq!(&rig.applied, &(from..next).map(|seq| (life, seq)).collect::<Vec<_>>());
        if rig.follower.completeness() == Completeness::Exact {
            prop_assert_eq!(from, 0);
        }
    }
}
