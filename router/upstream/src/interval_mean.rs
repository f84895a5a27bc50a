//! The mean of a histogram's observations between two scrapes.

use std::time::{Duration, Instant};

/// How long the last mean stands for an engine that observes nothing. Beyond it "never seen" is nearer the truth:
/// an engine that was slow once must not look slow for ever while it is idle.
const KEPT_WITHOUT_OBSERVATIONS: Duration = Duration::from_secs(30);

/// A histogram's sum and count, added up over its series.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HistogramTotals {
    /// Sum of all observations, seconds.
    pub sum: f64,
    /// How many.
    pub count: f64,
}

/// Remembers a histogram from one scrape to the next.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IntervalMean {
    previous: Option<HistogramTotals>,
    mean: f64,
    observed: Option<Instant>,
}

impl IntervalMean {
    /// Takes the totals of one scrape and gives the mean in seconds; 0 when there is none to give.
    ///
    /// The first scrape gives 0, for its totals reach back over the engine's whole life. Totals that fell tell of a
    /// restart, so the current ones are all there is. A page without the histogram forgets what was remembered.
    pub fn update(&mut self, now: Instant, totals: Option<HistogramTotals>) -> f64 {
        let Some(totals) = totals else {
            *self = Self::default();
            return 0.0;
        };
        let fresh = match self.previous.replace(totals) {
            None => HistogramTotals::default(),
            Some(before) if totals.sum < before.sum || totals.count < before.count => totals,
            Some(before) => {
                HistogramTotals { sum: totals.sum - before.sum, count: totals.count - before.count }
            }
        };
        if fresh.count > 0.0 {
            self.mean = fresh.sum / fresh.count;
            self.observed = Some(now);
        } else if self.observed.is_none_or(|at| now.duration_since(at) > KEPT_WITHOUT_OBSERVATIONS) {
            self.mean = 0.0;
        }
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(sum: f64, count: f64) -> Option<HistogramTotals> {
        Some(HistogramTotals { sum, count })
    }

    #[test]
    fn the_mean_covers_the_interval_only() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut mean = IntervalMean::default();
        let steps = [
            ("first scrape", 0, totals(100.0, 50.0), 0.0),
            ("two new observations", 1, totals(101.0, 52.0), 0.5),
            ("nothing new: the last mean stands", 2, totals(101.0, 52.0), 0.5),
            ("still", 31, totals(101.0, 52.0), 0.5),
            ("idle for too long", 32, totals(101.0, 52.0), 0.0),
            ("new again", 33, totals(105.0, 54.0), 2.0),
            ("restart: the current totals", 34, totals(3.0, 10.0), 0.3),
            ("restart without observations", 35, totals(0.0, 0.0), 0.3),
            ("the histogram is gone", 36, None, 0.0),
            ("and back: a first scrape again", 37, totals(9.0, 9.0), 0.0),
        ];
        for (what, seconds, page, expected) in steps {
            let got = mean.update(at(seconds), page);
            assert!((got - expected).abs() < 1e-9, "{what}: {got} instead of {expected}");
        }
    }
}
