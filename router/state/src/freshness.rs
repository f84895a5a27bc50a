//! How long a scrape says something about now.

use std::time::Duration;

/// A sample is not trusted for less than this, however short the interval is: one slow scrape is no outage.
const MIN_STALE_AFTER: Duration = Duration::from_secs(5);

/// Ages of a sample, by how often there should be a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Freshness {
    interval: Duration,
    stale_after: Duration,
}

impl Freshness {
    /// For a scrape every `interval`.
    pub(crate) fn of(interval: Duration) -> Self {
        Self { interval, stale_after: (interval * 3).max(MIN_STALE_AFTER) }
    }

    /// Whether a sample of this age is used at all.
    pub(crate) fn trusts(self, age: Duration) -> bool {
        age <= self.stale_after
    }

    /// The share of what others had sent by a sample of this age that is taken to have ended since (decision D5):
    /// `(age - interval) / (2 x interval)`, between 0 and 1. So nothing fades while scrapes come in time, and what the
    /// last one showed is gone when the third after it is due: an engine that cannot be scraped is not shunned for
    /// requests that ended long ago, while our own and our peers' go on counting.
    pub(crate) fn faded(self, age: Duration) -> f64 {
        let late = age.saturating_sub(self.interval).as_secs_f64();
        if late > 0.0 { (late / (2.0 * self.interval.as_secs_f64())).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_others_sent_fades_from_one_interval_to_three() {
        for (interval, age, faded) in [
            (1000, 0, 0.0),
            (1000, 1000, 0.0),
            (1000, 1500, 0.25),
            (1000, 2000, 0.5),
            (1000, 3000, 1.0),
            (1000, 60_000, 1.0),
            (200, 400, 0.5),
            (0, 0, 0.0),
            (0, 1, 1.0),
        ] {
            let freshness = Freshness::of(Duration::from_millis(interval));
            let got = freshness.faded(Duration::from_millis(age));
            assert!((got - faded).abs() < 1e-9, "{interval} {age}: {got}");
        }
    }

    proptest! {
        #[test]
        fn fading_never_turns_back(interval in 0..100_000_u64, age in 0..1_000_000_u64, more in 0..1_000_000_u64) {
            let freshness = Freshness::of(Duration::from_millis(interval));
            let (now, later) = (Duration::from_millis(age), Duration::from_millis(age + more));
            prop_assert!((0.0..=1.0).contains(&freshness.faded(now)));
            prop_assert!(freshness.faded(now) <= freshness.faded(later));
            prop_assert!(freshness.trusts(now) || !freshness.trusts(later));
        }
    }
}
