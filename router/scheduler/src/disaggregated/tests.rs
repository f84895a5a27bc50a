use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    Candidate, Endpoint, Filter, Load, Needs, Picker, Plugin, ScoreLine, Scorer, Scores, SystemClock,
};
use parking_lot::Mutex;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use super::*;
use crate::profile::Profile;
use crate::testing::{Drops, Fixed, Heard, cycle, endpoint};

const KEY: &str = "group";

/// `D:a` decodes in group a, `P:a` prefills there, `B:a` does both; `D` has no label, `D:` an empty one.
fn pool(words: &[&str]) -> Candidates {
    let candidate = |(index, word): (usize, &&str)| {
        let (role, group) = word.split_once(':').map_or((*word, None), |(role, group)| (role, Some(group)));
        let role = match role {
            "D" => Role::Decode,
            "P" => Role::Prefill,
            _ => Role::Both,
        };
        let labels: BTreeMap<String, String> =
            group.map(|group| (KEY.to_owned(), group.to_owned())).into_iter().collect();
        let endpoint = Endpoint { role, labels, ..(*endpoint(index as u32)).clone() };
        Candidate { endpoint: Arc::new(endpoint), load: Load::default() }
    };
    Candidates::new(words.iter().enumerate().map(candidate).collect())
}

/// Best first, equal ones by chance.
struct Best(usize);

impl Plugin for Best {
    fn name(&self) -> &'static str {
        "best"
    }
}

impl Picker for Best {
    fn pick(&self, scores: ScorerTotals, pool: &Candidates, mut rng: &mut dyn Rng) -> Decision {
        let mut picks: Vec<Pick> = pool
            .kept()
            .map(|(index, candidate)| Pick {
                index,
                endpoint: Arc::clone(&candidate.endpoint),
                prefill: None,
                total: scores.totals[index].unwrap_or_default(),
            })
            .collect();
        picks.shuffle(&mut rng);
        picks.sort_by(|one, other| other.total.total_cmp(&one.total));
        picks.truncate(self.0);
        Decision { picks, scores, filtered: Vec::new() }
    }
}

/// Notes the runs: the phase and who took part. Expects as many seconds as a decode candidate's index.
#[derive(Default)]
struct Runs(Mutex<Vec<(Phase, Vec<usize>)>>);

impl Plugin for Runs {
    fn name(&self) -> &'static str {
        "runs"
    }
}

impl Scorer for Runs {
    fn score(&self, _: &CycleState, pool: &Candidates, _: &mut Scores) {
        self.0.lock().push((pool.phase(), pool.kept().map(|(index, _)| index).collect()));
    }

    fn score_and_expect(
        &self,
        cycle: &CycleState,
        pool: &Candidates,
        out: &mut Scores,
        expected: &mut Scores,
    ) {
        self.score(cycle, pool, out);
        if pool.phase() == Phase::Prefill {
            *expected = (0..pool.len()).map(|index| pool.is_kept(index).then_some(index as f64)).collect();
        }
    }
}

/// Drops the listed candidates in one phase only.
struct DropsIn(Phase, Drops);

impl Plugin for DropsIn {
    fn name(&self) -> &'static str {
        self.1.0
    }
}

impl Filter for DropsIn {
    fn filter(&self, cycle: &CycleState, pool: &mut Candidates) {
        if pool.phase() == self.0 {
            self.1.filter(cycle, pool);
        }
    }
}

struct Room {
    scheduler: Scheduler,
    runs: Arc<Runs>,
}

fn room(scores: &[f64], filters: Vec<Arc<dyn Filter>>, most: usize) -> Room {
    let runs = Arc::new(Runs::default());
    let fixed = Fixed("fixed", scores.iter().copied().map(Some).collect());
    let profile = Profile {
        filters,
        scorers: vec![(Arc::new(fixed), 1.0), (Arc::clone(&runs) as Arc<dyn Scorer>, 1.0)],
        picker: Arc::new(Best(most)),
        observers: Vec::new(),
    };
    let scheduler = Scheduler::new(
        profile,
        Vec::new(),
        Duration::from_millis(50),
        Arc::new(Heard::default()),
        Arc::new(SystemClock),
        Needs::NONE,
    );
    Room { scheduler, runs }
}

fn pairs(decision: &Decision) -> Vec<(usize, usize)> {
    decision.picks.iter().map(|pick| (pick.index, pick.prefill.as_ref().unwrap().index)).collect()
}

fn decide(room: &Room, pool: &mut Candidates, key: Option<&str>) -> Result<Decision, ScheduleError> {
    room.scheduler.decide_pairs(&cycle(), pool, key, &mut StdRng::seed_from_u64(3))
}

#[test]
fn every_pick_gets_the_best_prefill_endpoint_of_its_group() {
    for (name, words, key, scores, expected) in [
        ("one group", &["D:a", "P:a", "P:a"][..], Some(KEY), &[1.0, 2.0, 3.0][..], &[(0, 2)][..]),
        ("ranked", &["D:a", "D:b", "P:a", "P:b"], Some(KEY), &[1.0, 9.0, 5.0, 1.0], &[(1, 3), (0, 2)]),
        ("shared", &["D:a", "D:a", "P:a"], Some(KEY), &[1.0, 2.0, 0.0], &[(1, 2), (0, 2)]),
        (
            "no label",
            &["D", "P", "D:a", "P:a", "D:", "P:"],
            Some(KEY),
            &[9.0, 9.0, 1.0, 1.0, 9.0, 9.0],
            &[(2, 3)],
        ),
        ("no key", &["D", "P:x", "D:a", "P"], None, &[2.0, 1.0, 1.0, 5.0], &[(0, 3), (2, 3)]),
        ("both", &["B:a", "D:a", "P:a"], Some(KEY), &[9.0, 1.0, 1.0], &[(1, 2)]),
        ("half groups", &["D:a", "D:b", "P:b", "P:c"], Some(KEY), &[9.0, 1.0, 1.0, 9.0], &[(1, 2)]),
        ("negative", &["D:a", "P:a", "P:a"], Some(KEY), &[-1.0, -3.0, -2.0], &[(0, 2)]),
    ] {
        let decision = decide(&room(scores, Vec::new(), 5), &mut pool(words), key);
        assert_eq!(pairs(&decision.unwrap()), expected, "{name}");
    }
}

#[test]
fn what_is_missing_is_said() {
    for (name, words, key, error) in [
        ("nobody", &[][..], Some(KEY), ScheduleError::NoDecode),
        ("prefill only", &["P:a", "B:a"], Some(KEY), ScheduleError::NoDecode),
        ("decode without a group", &["D", "P:a"], Some(KEY), ScheduleError::NoDecode),
        ("decode only", &["D:a", "B:a"], Some(KEY), ScheduleError::NoPair),
        ("two halves", &["D:a", "P:b"], Some(KEY), ScheduleError::NoPair),
        ("no key, decode only", &["D", "D"], None, ScheduleError::NoPair),
    ] {
        let found = decide(&room(&[1.0; 4], Vec::new(), 5), &mut pool(words), key);
        assert_eq!(found.unwrap_err(), error, "{name}");
    }
}

#[test]
fn decode_endpoints_that_cannot_be_paired_take_no_places() {
    let words = ["D:a", "D:a", "D:a", "D:b", "P:b"];
    let decision = decide(&room(&[9.0, 8.0, 7.0, 1.0, 1.0], Vec::new(), 2), &mut pool(&words), Some(KEY));
    assert_eq!(pairs(&decision.unwrap()), [(3, 4)]);
}

#[test]
fn a_groups_prefill_endpoints_are_ranked_once() {
    let words = ["D:a", "D:b", "D:a", "P:a", "P:b", "P:a", "D:c", "P:c"];
    let room = room(&[9.0, 8.0, 7.0, 1.0, 1.0, 2.0, 0.0, 0.0], Vec::new(), 3);
    let decision = decide(&room, &mut pool(&words), Some(KEY)).unwrap();
    assert_eq!(pairs(&decision), [(0, 5), (1, 4), (2, 5)]);
    let expected =
        [(Phase::Decode, vec![0, 1, 2, 6]), (Phase::Prefill, vec![3, 5]), (Phase::Prefill, vec![4])];
    assert_eq!(*room.runs.0.lock(), expected, "group c is not among the picks");
}

#[test]
fn the_scores_of_all_runs_are_one_set() {
    let words = ["P:a", "D:a", "B:a", "P:b", "D:b", "D:c"];
    let filters: Vec<Arc<dyn Filter>> = vec![Arc::new(Drops("full", vec![6, 7]))];
    let words: Vec<&str> = words.into_iter().chain(["D:a", "P:a"]).collect();
    let room = room(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], filters, 5);
    let mut pool = pool(&words);
    let decision = decide(&room, &mut pool, Some(KEY)).unwrap();
    assert_eq!(pairs(&decision), [(4, 3), (1, 0)]);
    let totals = [Some(1.0), Some(2.0), None, Some(4.0), Some(5.0), None, None, None];
    assert_eq!(decision.scores.totals, totals);
    assert_eq!(decision.scores.lines.len(), 2);
    assert_eq!(decision.scores.lines[0].scores, totals);
    let expected = [Some(0.0), None, None, Some(3.0), None, None, None, None];
    assert_eq!(decision.scores.lines[1].expected_seconds, expected);
    assert_eq!(decision.filtered, [("full", 2)], "one in the decode run, one in a prefill run");
    let kept: Vec<usize> = pool.kept().map(|(index, _)| index).collect();
    assert_eq!((kept, pool.phase()), (vec![0, 1, 3, 4], Phase::Whole));
    assert_eq!(decision.picks[0].prefill.as_ref().map(|prefill| prefill.total), Some(4.0));
}

#[test]
fn only_what_is_kept_takes_part() {
    let mut pool = pool(&["D:a", "P:a", "D:b", "P:b"]);
    pool.retain(|candidate| candidate.endpoint.slot.0 != 1);
    let decision = decide(&room(&[9.0; 4], Vec::new(), 5), &mut pool, Some(KEY)).unwrap();
    assert_eq!(pairs(&decision), [(2, 3)]);
}

#[test]
fn filters_that_leave_no_prefill_endpoint_take_the_picks_along() {
    let full = |phase, slots: &[u32]| -> Vec<Arc<dyn Filter>> {
        vec![Arc::new(DropsIn(phase, Drops("full", slots.to_vec())))]
    };
    let words = ["D:a", "P:a", "D:b", "P:b"];
    let scores = [9.0, 1.0, 1.0, 1.0];
    for (name, phase, slots, most, expected) in [
        ("one group's", Phase::Prefill, &[1][..], 5, Ok(vec![(2, 3)])),
        ("the only pick's", Phase::Prefill, &[1], 1, Ok(vec![(2, 3)])),
        ("everybody's", Phase::Prefill, &[1, 3], 5, Err(ScheduleError::AllFiltered("full"))),
        ("everybody's, one by one", Phase::Prefill, &[1, 3], 1, Err(ScheduleError::AllFiltered("full"))),
        ("decode", Phase::Decode, &[0, 2], 5, Err(ScheduleError::AllFiltered("full"))),
        ("some decode", Phase::Decode, &[0], 5, Ok(vec![(2, 3)])),
    ] {
        let room = room(&scores, full(phase, slots), most);
        let found = decide(&room, &mut pool(&words), Some(KEY));
        assert_eq!(found.map(|decision| pairs(&decision)), expected, "{name}");
    }
}

#[test]
fn a_decision_does_not_walk_through_all_groups() {
    let words: Vec<String> = (0..20).flat_map(|group| [format!("D:{group}"), format!("P:{group}")]).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let prefills = (0..20).map(|group| group * 2 + 1).collect();
    let room = room(&[1.0; 40], vec![Arc::new(DropsIn(Phase::Prefill, Drops("full", prefills)))], 2);
    let found = decide(&room, &mut pool(&words), Some(KEY));
    assert_eq!(found.unwrap_err(), ScheduleError::AllFiltered("full"));
    assert_eq!(room.runs.0.lock().len(), MOST_DECODE_RUNS);
}

#[test]
fn equally_good_prefill_endpoints_share_the_work() {
    let words = ["D:a", "D:a", "D:a", "P:a", "P:a", "P:a", "P:a"];
    let room = room(&[1.0, 1.0, 1.0, 7.0, 7.0, 7.0, 5.0], Vec::new(), 5);
    let mut first = [0_u32; 7];
    for seed in 0..3000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let decision = room.scheduler.decide_pairs(&cycle(), &mut pool(&words), Some(KEY), &mut rng).unwrap();
        let mut prefills: Vec<usize> = pairs(&decision).into_iter().map(|(_, prefill)| prefill).collect();
        first[prefills[0]] += 1;
        prefills.sort_unstable();
        assert_eq!(prefills, [3, 4, 5], "each once");
    }
    // 1000 of each are expected, with a standard deviation of 26.
    assert!(first[3..6].iter().all(|count| (870..1130).contains(count)), "{first:?}");
}

fn words() -> impl Strategy<Value = (Vec<&'static str>, Vec<i8>, Vec<u32>, usize, bool, u64)> {
    let word = prop_oneof![
        Just("D:a"),
        Just("P:a"),
        Just("D:b"),
        Just("P:b"),
        Just("D:c"),
        Just("P:c"),
        Just("D"),
        Just("P"),
        Just("B:a"),
        Just("D:"),
    ];
    proptest::collection::vec(word, 0..24).prop_flat_map(|words| {
        let count = words.len();
        (
            Just(words),
            proptest::collection::vec(any::<i8>(), count),
            proptest::collection::vec(0..24_u32, 0..8),
            1..6_usize,
            any::<bool>(),
            any::<u64>(),
        )
    })
}

proptest! {
    #[test]
    fn pairs_are_of_one_group_in_their_roles_and_ranked(
        (words, scores, dropped, most, keyed, seed) in words()
    ) {
        let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
        let room = room(&scores, vec![Arc::new(Drops("drops", dropped.clone()))], most);
        let mut pool = pool(&words);
        let key = keyed.then_some(KEY);
        let group = |index: usize| match key {
            None => Some("".to_owned()),
            Some(_) => label(&words, index),
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let found = room.scheduler.decide_pairs(&cycle(), &mut pool, key, &mut rng);
        let able = |role: &str, of: &str| (0..words.len()).any(|index| {
            words[index].starts_with(role) && group(index).as_deref() == Some(of) && !dropped.contains(&(index as u32))
        });
        let possible = ["", "a", "b", "c"].iter().any(|of| able("D", of) && able("P", of));
        let Ok(decision) = found else {
            // At most three groups, and every run closes at least one.
            prop_assert!(!possible, "{found:?}");
            return Ok(());
        };
        prop_assert!(possible && decision.picks.len() <= most);
        prop_assert!(decision.picks.is_sorted_by(|one, other| one.total >= other.total));
        for pick in &decision.picks {
            let prefill = pick.prefill.as_ref().unwrap();
            prop_assert_eq!((pick.endpoint.role, prefill.endpoint.role), (Role::Decode, Role::Prefill));
            let own = group(pick.index);
            prop_assert!(own.is_some() && own == group(prefill.index));
            prop_assert!(pool.is_kept(pick.index) && pool.is_kept(prefill.index));
            prop_assert!(decision.scores.totals[prefill.index] == Some(prefill.total));
            for index in (0..words.len()).filter(|index| words[*index].starts_with('P') && group(*index) == own) {
                prop_assert!(dropped.contains(&(index as u32)) || scores[index] <= prefill.total);
            }
        }
        for index in 0..words.len() {
            prop_assert_eq!(pool.is_kept(index), decision.scores.totals[index].is_some());
        }
    }
}

fn label(words: &[&str], index: usize) -> Option<String> {
    words[index].split_once(':').map(|(_, group)| group.to_owned()).filter(|group| !group.is_empty())
}

#[test]
fn pairs_that_would_begin_plainly_later_come_last() {
    let pick = |prefill, index| {
        let pair = PrefillPick { index: prefill, endpoint: endpoint(0), total: 0.0 };
        Pick { index, endpoint: endpoint(0), prefill: Some(pair), total: 0.0 }
    };
    // Pairs (0, 3), (1, 4), (2, 5), as the decode run ranked them.
    for (expected, order) in [
        (vec![], [3, 4, 5]),
        (vec![Some(0.024), Some(0.006), Some(0.008), Some(0.001), Some(0.002), Some(0.003)], [4, 5, 3]),
        (vec![Some(0.9), Some(0.5), Some(0.1), Some(0.0), Some(0.0), Some(0.0)], [5, 4, 3]),
        (vec![Some(0.1), Some(0.101), Some(0.102), Some(0.0), Some(0.0), Some(0.0)], [3, 4, 5]),
    ] {
        let line = ScoreLine { plugin: "p", weight: 1.0, scores: vec![None; 6], expected_seconds: expected };
        let mut decision = Decision {
            picks: vec![pick(0, 3), pick(1, 4), pick(2, 5)],
            scores: ScorerTotals { lines: vec![line], totals: Vec::new() },
            ..Decision::default()
        };
        soonest_first(&mut decision);
        assert_eq!(decision.picks.iter().map(|pick| pick.index).collect::<Vec<_>>(), order);
    }
}
