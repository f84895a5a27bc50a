//! What holds whatever comes in.

use proptest::prelude::*;

use super::*;

/// An engine with a replay buffer of `window` batches, and what may happen to it.
#[derive(Clone, Copy, Debug)]
enum Event {
    Publish { heard: bool },
    Restart { noticed: bool },
    Answer { complete: bool },
    Wait,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => any::<bool>().prop_map(|heard| Event::Publish { heard }),
        1 => any::<bool>().prop_map(|noticed| Event::Restart { noticed }),
        4 => (0..5u8).prop_map(|roll| Event::Answer { complete: roll > 0 }),
        2 => Just(Event::Wait),
    ];
    proptest::collection::vec(event, 1..120)
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let any_batch = || (1..3u32, 0..8u64).prop_map(|(life, seq)| batch(life, seq));
    let input = prop_oneof![
        Just(Input::Connected),
        Just(Input::Disconnected),
        any::<bool>().prop_map(|complete| Input::ReplayEnded { complete }),
        Just(Input::Tick),
        any_batch().prop_map(Input::Live),
        any_batch().prop_map(Input::Replayed),
    ];
    proptest::collection::vec(input, 0..200)
}

proptest! {
    /// Whatever comes in, in whatever order: between two clears the applied numbers have no holes.
    #[test]
    fn nothing_is_applied_out_of_order(inputs in inputs(), has_replay in any::<bool>()) {
        let mut rig = Rig::new(has_replay);
        for input in inputs {
            rig.now += Duration::from_secs(7);
            rig.step(input);
            prop_assert!(rig.applied.windows(2).all(|pair| pair[0].1 + 1 == pair[1].1), "{:?}", rig.applied);
            prop_assert!(has_replay || !rig.follower.is_replaying());
        }
    }

    /// Whatever is lost, once the engine answers and publishes again, what was applied is the engine's own
    /// history since its last forgetting, without holes, and "exact" means from batch 0 on.
    #[test]
    fn what_is_applied_is_the_engines_history(events in events(), window in 1u64..30) {
        let mut rig = Rig::new(true);
        let (mut life, mut next) = (1, 0u64);
        // A new life is heard on a new connection only, however late the loss of the old one is noticed.
        let mut cut_off = false;
        let join = |rig: &mut Rig, cut_off: &mut bool| {
            if std::mem::take(cut_off) {
                rig.step(Input::Disconnected);
                rig.step(Input::Connected);
            }
        };
        rig.step(Input::Connected);
        let answer = |rig: &mut Rig, life: u32, next: u64, complete: bool| {
            if !rig.follower.is_replaying() {
                return;
            }
            let from = rig.log.iter().rev().find_map(|word| word.strip_prefix("replay ")).unwrap();
            let from: u64 = from.parse().unwrap();
            let first = from.max(next.saturating_sub(window));
            for seq in first..next {
                rig.step(Input::Replayed(batch(life, seq)));
            }
            rig.step(Input::ReplayEnded { complete });
        };
        for event in events {
            match event {
                Event::Publish { heard } => {
                    if heard {
                        join(&mut rig, &mut cut_off);
                        rig.live(life, [next]);
                    }
                    next += 1;
                }
                Event::Restart { noticed } => {
                    (life, next) = (life + 1, 0);
                    cut_off = true;
                    if noticed {
                        join(&mut rig, &mut cut_off);
                    }
                }
                Event::Answer { complete } => answer(&mut rig, life, next, complete),
                Event::Wait => rig.wait(Duration::from_secs(100)),
            }
        }
        // The engine settles: it publishes once more, and every question is answered.
        join(&mut rig, &mut cut_off);
        rig.live(life, [next]);
        next += 1;
        for _ in 0..20 {
            rig.wait(Duration::from_secs(100));
            answer(&mut rig, life, next, true);
        }
        prop_assert!(!rig.applied.is_empty());
        let first = rig.applied[0].1;
        let wanted: Vec<(u32, u64)> = (first..next).map(|seq| (life, seq)).collect();
        prop_assert_eq!(&rig.applied, &wanted);
        if rig.follower.completeness() == Completeness::Exact {
            prop_assert_eq!(first, 0);
        }
    }
}
