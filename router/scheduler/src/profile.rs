//! One run over the candidates: filter, score, pick.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use kvasir_core::{
    Candidates, Clock, CycleState, Decision, Filter, ModelName, Needs, Picker, PlacementObserver,
    ScheduleError, ScheduleMeter, ScoreLine, Scorer, ScorerTotals, Scores,
};
use rand::Rng;

/// The parts of one run, in the order they were configured.
#[derive(Clone)]
pub struct Profile {
    /// Run in order; a filter that is listed twice runs twice.
    pub filters: Vec<Arc<dyn Filter>>,
    /// Scorers with their weights; their order does not matter.
    pub scorers: Vec<(Arc<dyn Scorer>, f64)>,
    /// Ranks by the totals.
    pub picker: Arc<dyn Picker>,
    /// Told where requests went.
    pub observers: Vec<Arc<dyn PlacementObserver>>,
}

impl Profile {
    /// What the enabled scorers read.
    pub fn needs(&self) -> Needs {
        self.scorers.iter().fold(Needs::NONE, |needs, (scorer, _)| needs | scorer.needs())
    }

    /// Filters `pool`, scores what is left and ranks it.
    ///
    /// # Errors
    /// [`ScheduleError::NoCandidates`] when nothing was kept to begin with, [`ScheduleError::AllFiltered`] with
    /// the filter that dropped the last candidate.
    pub fn run(
        &self,
        cycle: &CycleState,
        pool: &mut Candidates,
        rng: &mut dyn Rng,
        meter: &dyn ScheduleMeter,
        clock: &dyn Clock,
    ) -> Result<Decision, ScheduleError> {
        if pool.kept_count() == 0 {
            return Err(ScheduleError::NoCandidates);
        }
        let mut watch = Stopwatch { clock, meter, model: &cycle.model, last: clock.now() };
        let filtered = self.filter(cycle, pool, &mut watch)?;
        let totals = self.score(cycle, pool, &mut watch);
        let mut decision = self.picker.pick(totals, pool, rng);
        if decision.picks.is_empty() {
            return Err(ScheduleError::NoCandidates);
        }
        decision.filtered = filtered;
        Ok(decision)
    }

    /// The filters that dropped something, with how much.
    fn filter(
        &self,
        cycle: &CycleState,
        pool: &mut Candidates,
        watch: &mut Stopwatch<'_>,
    ) -> Result<Vec<(&'static str, usize)>, ScheduleError> {
        let mut filtered = Vec::new();
        let mut before = pool.kept_count();
        for filter in &self.filters {
            filter.filter(cycle, pool);
            watch.lap(filter.name(), "filter");
            let after = pool.kept_count();
            if after == 0 {
                return Err(ScheduleError::AllFiltered(filter.name()));
            }
            if after < before {
                filtered.push((filter.name(), before - after));
            }
            before = after;
        }
        Ok(filtered)
    }

    /// Every scorer's line and the weighted sums. "No opinion" adds nothing and drops nobody.
    fn score(&self, cycle: &CycleState, pool: &Candidates, watch: &mut Stopwatch<'_>) -> ScorerTotals {
        let mut totals: Scores = (0..pool.len()).map(|index| pool.is_kept(index).then_some(0.0)).collect();
        let mut lines = Vec::with_capacity(self.scorers.len());
        for (scorer, weight) in &self.scorers {
            let mut scores: Scores = vec![None; pool.len()];
            let mut expected_seconds: Scores = Vec::new();
            scorer.score_and_expect(cycle, pool, &mut scores, &mut expected_seconds);
            watch.lap(scorer.name(), "score");
            scores.resize(pool.len(), None);
            for (score, total) in scores.iter_mut().zip(&mut totals) {
                // A score that is no number would poison the order of the totals: it is no opinion. So is one
                // for a candidate that has been dropped.
                *score = score.filter(|value| value.is_finite() && total.is_some());
                if let (Some(value), Some(sum)) = (*score, total.as_mut()) {
                    *sum += value * weight;
                }
            }
            lines.push(ScoreLine { plugin: scorer.name(), weight: *weight, scores, expected_seconds });
        }
        ScorerTotals { lines, totals }
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scorers: Vec<_> = self.scorers.iter().map(|(scorer, weight)| (scorer.name(), *weight)).collect();
        f.debug_struct("Profile")
            .field("filters", &self.filters.iter().map(|filter| filter.name()).collect::<Vec<_>>())
            .field("scorers", &scorers)
            .field("picker", &self.picker.name())
            .field("observers", &self.observers.iter().map(|observer| observer.name()).collect::<Vec<_>>())
            .finish()
    }
}

/// Measures part after part with one reading of the clock between two of them.
struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    meter: &'a dyn ScheduleMeter,
    model: &'a ModelName,
    last: Instant,
}

impl Stopwatch<'_> {
    fn lap(&mut self, plugin: &'static str, kind: &'static str) {
        let now = self.clock.now();
        self.meter.plugin_ran(self.model, plugin, kind, now.saturating_duration_since(self.last));
        self.last = now;
    }
}

#[cfg(test)]
mod tests;
