use super::*;
use crate::testing::{Drops, Fixed, Heard, Ranking, Ticking, cycle, pool};
use kvasir_core::{NoMeter, SystemClock};
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;

fn profile(filters: Vec<Arc<dyn Filter>>, scorers: Vec<(Arc<dyn Scorer>, f64)>) -> Profile {
    Profile { filters, scorers, picker: Arc::new(Ranking), observers: Vec::new() }
}

fn run(profile: &Profile, pool: &mut Candidates) -> Result<Decision, ScheduleError> {
    profile.run(&cycle(), pool, &mut StdRng::seed_from_u64(1), &NoMeter, &SystemClock)
}

fn fixed(name: &'static str, scores: Vec<Option<f64>>) -> Arc<dyn Scorer> {
    Arc::new(Fixed(name, scores))
}

#[test]
fn totals_are_weighted_sums_and_no_opinion_adds_nothing() {
    let profile = profile(
        Vec::new(),
        vec![
            (fixed("a", vec![Some(10.0), None, Some(50.0)]), 2.0),
            (fixed("b", vec![Some(1.0), None, Some(f64::NAN)]), 3.0),
        ],
    );
    let decision = run(&profile, &mut pool(3)).unwrap();
    assert_eq!(decision.scores.totals, [Some(23.0), Some(0.0), Some(100.0)]);
    assert_eq!(decision.scores.lines[1].scores, [Some(1.0), None, None]);
    assert_eq!(decision.picks.iter().map(|pick| pick.index).collect::<Vec<_>>(), [2, 0, 1]);
}

#[test]
fn a_scorer_that_answers_too_little_leaves_the_rest_without_an_opinion() {
    let profile = profile(Vec::new(), vec![(fixed("short", vec![Some(7.0)]), 1.0)]);
    let decision = run(&profile, &mut pool(3)).unwrap();
    assert_eq!(decision.scores.totals, [Some(7.0), Some(0.0), Some(0.0)]);
}

#[test]
fn filters_run_in_order_and_say_what_they_dropped() {
    let filters: Vec<Arc<dyn Filter>> = vec![
        Arc::new(Drops("none", vec![])),
        Arc::new(Drops("first", vec![0, 1])),
        Arc::new(Drops("second", vec![1, 2])),
    ];
    let profile = profile(filters, vec![(fixed("a", vec![Some(9.0); 4]), 1.0)]);
    let mut pool = pool(4);
    let decision = run(&profile, &mut pool).unwrap();
    assert_eq!(decision.filtered, [("first", 2), ("second", 1)]);
    assert_eq!(decision.scores.totals, [None, None, None, Some(9.0)]);
    assert_eq!(decision.scores.lines[0].scores, [None, None, None, Some(9.0)]);
}

#[test]
fn errors_name_the_filter_or_say_that_there_was_nobody() {
    let filters: Vec<Arc<dyn Filter>> = vec![Arc::new(Drops("a", vec![0])), Arc::new(Drops("b", vec![1]))];
    let profile = profile(filters, Vec::new());
    assert_eq!(run(&profile, &mut pool(2)).unwrap_err(), ScheduleError::AllFiltered("b"));
    assert_eq!(run(&profile, &mut pool(0)).unwrap_err(), ScheduleError::NoCandidates);
}

#[test]
fn without_scorers_everybody_stays() {
    let decision = run(&profile(Vec::new(), Vec::new()), &mut pool(3)).unwrap();
    assert_eq!(decision.picks.len(), 3);
    assert_eq!(decision.scores.totals, [Some(0.0); 3]);
}

#[test]
fn every_part_is_timed_by_the_given_clock_also_when_listed_twice() {
    let twice: Arc<dyn Filter> = Arc::new(Drops("f", vec![]));
    let profile = profile(vec![Arc::clone(&twice), twice], vec![(fixed("s", vec![None]), 1.0)]);
    let heard = Heard::default();
    profile.run(&cycle(), &mut pool(1), &mut StdRng::seed_from_u64(1), &heard, &Ticking::default()).unwrap();
    let tick = Duration::from_millis(1);
    assert_eq!(*heard.ran.lock(), [("f", "filter", tick), ("f", "filter", tick), ("s", "score", tick)]);
}

/// Scores in sixteenths: their weighted sums are exact, so equality is.
fn scores(count: usize) -> impl Strategy<Value = Vec<Option<f64>>> {
    let score = proptest::option::of((0_u32..=1600).prop_map(|sixteenths| f64::from(sixteenths) / 16.0));
    proptest::collection::vec(score, count)
}

/// How many candidates, the scorers' lines with their weights, and who is dropped.
type Case = (u32, Vec<(Vec<Option<f64>>, u32)>, Vec<u32>);

fn case() -> impl Strategy<Value = Case> {
    (1_usize..12).prop_flat_map(|count| {
        (
            Just(count as u32),
            proptest::collection::vec((scores(count), 0_u32..8), 0..5),
            proptest::collection::vec(0..count as u32, 0..count),
        )
    })
}

proptest! {
    #[test]
    fn a_dropped_candidate_has_no_total_and_is_never_picked((count, lines, dropped) in case()) {
        let scorers = lines.into_iter().map(|(line, weight)| (fixed("s", line), f64::from(weight))).collect();
        let profile = profile(vec![Arc::new(Drops("f", dropped.clone()))], scorers);
        match run(&profile, &mut pool(count)) {
            Ok(decision) => {
                for pick in &decision.picks {
                    prop_assert!(!dropped.contains(&pick.endpoint.slot.0));
                }
                for (index, total) in decision.scores.totals.iter().enumerate() {
                    prop_assert_eq!(total.is_none(), dropped.contains(&(index as u32)));
                }
            }
            Err(error) => {
                prop_assert_eq!(error, ScheduleError::AllFiltered("f"));
                prop_assert!((0..count).all(|index| dropped.contains(&index)));
            }
        }
    }

    #[test]
    fn totals_are_linear_in_the_weights((count, lines, _) in case(), factor in 0_u32..5) {
        let at = |scale: u32| {
            let scorers = lines
                .iter()
                .map(|(line, weight)| (fixed("s", line.clone()), f64::from(*weight * scale)))
                .collect();
            run(&profile(Vec::new(), scorers), &mut pool(count)).unwrap().scores.totals
        };
        let (one, scaled) = (at(1), at(factor));
        for (one, scaled) in one.iter().zip(&scaled) {
            prop_assert_eq!(one.map(|total| total * f64::from(factor)), *scaled);
        }
    }

    #[test]
    fn the_order_of_the_scorers_does_not_matter((count, lines, _) in case(), turn in any::<usize>()) {
        let mut scorers: Vec<_> =
            lines.into_iter().map(|(line, weight)| (fixed("s", line), f64::from(weight))).collect();
        let one = run(&profile(Vec::new(), scorers.clone()), &mut pool(count)).unwrap();
        let places = scorers.len().max(1);
        scorers.rotate_left(turn % places);
        scorers.reverse();
        let other = run(&profile(Vec::new(), scorers), &mut pool(count)).unwrap();
        prop_assert_eq!(&one.scores.totals, &other.scores.totals);
        let order = |decision: &Decision| decision.picks.iter().map(|pick| pick.index).collect::<Vec<_>>();
        prop_assert_eq!(order(&one), order(&other));
    }
}
