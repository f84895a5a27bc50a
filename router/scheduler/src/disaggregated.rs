//! Scheduling where one endpoint computes the prompt and another one of the same group generates.

use std::collections::HashMap;

use kvasir_core::{
    Candidates, CycleState, Decision, Phase, Pick, PrefillPick, Role, ScheduleError, ScorerTotals,
};
use rand::Rng;

use crate::aggregated::Scheduler;

/// Decode runs of one decision at most. Another one begins only where the filters left no prefill endpoint to any
/// pick, and then without the groups found so; under such load many groups may be in that state, and a decision
/// must not become a walk through all of them.
const MOST_DECODE_RUNS: usize = 3;

/// A pair is plainly later than the soonest one by this factor and an engine step, seconds: estimates are no better.
const LATER: f64 = 1.1;
const STEP: f64 = 0.005;

impl Scheduler {
    /// The ranked pairs: every pick is a decode endpoint with the best prefill endpoint of its group.
    ///
    /// Endpoints that have the same non-empty value of the label `group_key` are a group; without the label an
    /// endpoint is in none, and never chosen. Without a key all are one group. One run of the profile ranks the
    /// decode endpoints of those groups that have a prefill endpoint; then one run for each group among the picks
    /// ranks its prefill endpoints. Picks of one group share its best prefill endpoint, and take turns where several
    /// are equally good, in an order of chance. Where scorers expect times, pairs that would begin plainly later than the
    /// soonest one come after the others: a group whose prefill endpoint holds the prompt is worth a busier decoder.
    ///
    /// Pure. Only what `pool` keeps takes part; afterwards it keeps what any run kept. The scores of all runs are one
    /// set: no candidate takes part in two of them.
    ///
    /// # Errors
    /// [`ScheduleError::NoDecode`] without any decode endpoint, [`ScheduleError::NoPair`] when no group has both
    /// roles, [`ScheduleError::AllFiltered`] with the filter that dropped the last decode endpoint, or the last
    /// prefill endpoint of the groups that were tried.
    pub fn decide_pairs(
        &self,
        cycle: &CycleState,
        pool: &mut Candidates,
        group_key: Option<&str>,
        rng: &mut dyn Rng,
    ) -> Result<Decision, ScheduleError> {
        let mut groups = Groups::of(pool, group_key);
        let mut gains = Gains::new(pool.len());
        let mut last = groups.missing();
        for _ in 0..MOST_DECODE_RUNS {
            if !groups.any_open() {
                break;
            }
            groups.begin_decode(pool);
            let mut decision = self.decide(cycle, pool, rng)?;
            let decoders: Vec<bool> = (0..pool.len()).map(|index| pool.is_kept(index)).collect();
            for pick in &decision.picks {
                let Some(group) = groups.untried(pick.index) else { continue };
                groups.begin_prefill(pool, group);
                let found = self.decide(cycle, pool, rng);
                if let Err(error) = &found {
                    last = error.clone();
                }
                groups.tried(group, found.map(|found| gains.take_in(found, pool)).unwrap_or_default());
            }
            decision.picks = decision.picks.into_iter().filter_map(|pick| groups.pair(pick)).collect();
            if !decision.picks.is_empty() {
                gains.give(&mut decision);
                soonest_first(&mut decision);
                let mut kept = gains.kept.iter().zip(decoders);
                pool.begin_phase(Phase::Whole, |_| {
                    kept.next().is_some_and(|(prefill, decode)| *prefill || decode)
                });
                return Ok(decision);
            }
        }
        Err(last)
    }
}

/// Puts the pairs whose prompt and first token together are expected plainly later than the soonest pair's behind the
/// others, in the order of what is expected. The others keep the order of the decode run, and all do where nothing is
/// expected.
fn soonest_first(decision: &mut Decision) {
    let lines = &decision.scores.lines;
    let expected =
        |index: usize| lines.iter().find_map(|line| line.expected_seconds.get(index).copied().flatten());
    let of_pair = |pick: &Pick| {
        let prefill = pick.prefill.as_ref()?;
        Some(expected(prefill.index)? + expected(pick.index)?)
    };
    let soonest = decision.picks.iter().filter_map(of_pair).fold(f64::INFINITY, f64::min);
    let late = |pick: &Pick| of_pair(pick).filter(|seconds| *seconds > soonest * LATER + STEP).unwrap_or(0.0);
    // Stable: pairs that are not late are equal here.
    decision.picks.sort_by(|one, other| late(one).total_cmp(&late(other)));
}

/// What one candidate may be chosen for, and in which group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Prefill(usize),
    Decode(usize),
}

/// One group's way through a decision.
#[derive(Default)]
struct Group {
    prefills: usize,
    decodes: usize,
    /// The best prefill endpoints, equally good ones only; `None` before its run.
    best: Option<Vec<PrefillPick>>,
    /// How many picks have got one.
    given: usize,
}

impl Group {
    /// Whether its decode endpoints can still be paired, as far as is known.
    fn is_open(&self) -> bool {
        self.prefills > 0 && self.decodes > 0 && self.best.as_ref().is_none_or(|best| !best.is_empty())
    }
}

/// The candidates sorted into groups.
struct Groups {
    places: Vec<Place>,
    groups: Vec<Group>,
}

impl Groups {
    fn of(pool: &Candidates, group_key: Option<&str>) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut places = vec![Place::Nowhere; pool.len()];
        for ((index, candidate), place) in pool.all().iter().enumerate().zip(&mut places) {
            let endpoint = &*candidate.endpoint;
            let value = match group_key {
                None => "",
                Some(key) => match endpoint.labels.get(key) {
                    Some(value) if !value.is_empty() => value,
                    _ => continue,
                },
            };
            if !pool.is_kept(index) || endpoint.role == Role::Both {
                continue;
            }
            let number = *numbers.entry(value).or_insert_with(|| {
                groups.push(Group::default());
                groups.len() - 1
            });
            let Some(group) = groups.get_mut(number) else { continue };
            if endpoint.role == Role::Prefill {
                group.prefills += 1;
                *place = Place::Prefill(number);
            } else {
                group.decodes += 1;
                *place = Place::Decode(number);
            }
        }
        Self { places, groups }
    }

    /// What is wrong when no group is open.
    fn missing(&self) -> ScheduleError {
        if self.groups.iter().all(|group| group.decodes == 0) {
            ScheduleError::NoDecode
        } else {
            ScheduleError::NoPair
        }
    }

    fn any_open(&self) -> bool {
        self.groups.iter().any(Group::is_open)
    }

    /// Decode endpoints that cannot be paired must not take the places of those that can.
    fn begin_decode(&self, pool: &mut Candidates) {
        let mut places = self.places.iter();
        pool.begin_phase(Phase::Decode, |_| {
            matches!(places.next(), Some(Place::Decode(group)) if self.groups.get(*group).is_some_and(Group::is_open))
        });
    }

    fn begin_prefill(&self, pool: &mut Candidates, group: usize) {
        let mut places = self.places.iter();
        pool.begin_phase(Phase::Prefill, |_| places.next() == Some(&Place::Prefill(group)));
    }

    /// The group of decode candidate `index`, when its prefill endpoints have not been ranked yet.
    fn untried(&self, index: usize) -> Option<usize> {
        let Some(Place::Decode(number)) = self.places.get(index) else { return None };
        self.groups.get(*number).filter(|group| group.best.is_none()).map(|_| *number)
    }

    /// Notes what a group's run gave, best first.
    fn tried(&mut self, group: usize, ranked: Vec<Pick>) {
        let Some(group) = self.groups.get_mut(group) else { return };
        let top = ranked.first().map(|pick| pick.total);
        let equals = ranked.into_iter().take_while(|pick| Some(pick.total) == top);
        group.best = Some(
            equals
                .map(|pick| PrefillPick { index: pick.index, endpoint: pick.endpoint, total: pick.total })
                .collect(),
        );
    }

    /// The pick with its group's next prefill endpoint; `None` where the group has none.
    fn pair(&mut self, mut pick: Pick) -> Option<Pick> {
        let Some(Place::Decode(number)) = self.places.get(pick.index) else { return None };
        let group = self.groups.get_mut(*number)?;
        let best = group.best.as_ref()?;
        let turn = group.given.checked_rem(best.len())?;
        group.given += 1;
        pick.prefill = best.get(turn).cloned();
        pick.prefill.is_some().then_some(pick)
    }
}

/// What the prefill runs add to the decode run.
struct Gains {
    kept: Vec<bool>,
    scores: Vec<ScorerTotals>,
    filtered: Vec<(&'static str, usize)>,
}

impl Gains {
    fn new(pool: usize) -> Self {
        Self { kept: vec![false; pool], scores: Vec::new(), filtered: Vec::new() }
    }

    /// Remembers a run's scores and mask; its ranked picks are what is left.
    fn take_in(&mut self, found: Decision, pool: &Candidates) -> Vec<Pick> {
        for (index, _) in pool.kept() {
            if let Some(kept) = self.kept.get_mut(index) {
                *kept = true;
            }
        }
        self.scores.push(found.scores);
        self.filtered.extend(found.filtered);
        found.picks
    }

    fn give(&mut self, decision: &mut Decision) {
        for scores in self.scores.drain(..) {
            merge(&mut decision.scores, scores);
        }
        for (name, count) in self.filtered.drain(..) {
            match decision.filtered.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => decision.filtered.push((name, count)),
            }
        }
    }
}

/// Fills what `into` has no number for. Both come from one profile: their lines are of the same scorers.
fn merge(into: &mut ScorerTotals, from: ScorerTotals) {
    fill(&mut into.totals, from.totals);
    for (line, other) in into.lines.iter_mut().zip(from.lines) {
        fill(&mut line.scores, other.scores);
        fill(&mut line.expected_seconds, other.expected_seconds);
    }
}

fn fill(into: &mut Vec<Option<f64>>, from: Vec<Option<f64>>) {
    if into.len() < from.len() {
        into.resize(from.len(), None);
    }
    for (slot, value) in into.iter_mut().zip(from) {
        *slot = slot.or(value);
    }
}

#[cfg(test)]
mod tests;
