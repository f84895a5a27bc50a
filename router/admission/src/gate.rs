//! When the next request may begin.

use std::time::{Duration, Instant};

use kvasir_core::PodCount;

use crate::options::{FairnessOptions, SessionBoostOptions};

/// How far a pace may catch up. Timers ring some milliseconds late; without this every one of them would lower the rate.
const CATCH_UP: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) enum Gate {
    /// One request every `interval`.
    Pace {
        /// Between two requests.
        interval: Duration,
        /// When the next may begin.
        next: Instant,
    },
    /// So many at once.
    Places(usize),
    /// So many at once for each pod, and one pod whose engine has nobody waiting.
    Pods {
        /// Requests for each pod.
        per_pod: usize,
        /// How often to look while somebody waits.
        recheck: Duration,
    },
}

impl Gate {
    pub(crate) fn fairness(options: &FairnessOptions, now: Instant) -> Self {
        if options.max_concurrent > 0 {
            return Self::Places(options.max_concurrent);
        }
        // A year is as good as never, and fits.
        let interval = Duration::from_secs_f64((1.0 / options.max_qps).min(31_536_000.0));
        Self::Pace { interval, next: now }
    }

    pub(crate) fn session_boost(options: &SessionBoostOptions) -> Self {
        Self::Pods { per_pod: options.inflight_per_pod as usize, recheck: options.recheck }
    }

    /// Whether it opens without anybody's doing.
    pub(crate) fn needs_time(&self) -> bool {
        !matches!(self, Self::Places(_))
    }

    /// Whether one more may begin while `taken` places are taken.
    pub(crate) fn is_open(&self, taken: usize, pods: PodCount, now: Instant) -> bool {
        match self {
            Self::Pace { next, .. } => now >= *next,
            Self::Places(most) => taken < *most,
            Self::Pods { per_pod, .. } => {
                // With no pod known the request is let through: what becomes of it is for the scheduler to say.
                let room = per_pod.saturating_mul(pods.pods.max(1) as usize);
                taken < room && (pods.pods == 0 || pods.any_without_waiting)
            }
        }
    }

    /// One begins.
    pub(crate) fn passed(&mut self, now: Instant) {
        if let Self::Pace { interval, next } = self {
            let late = now.checked_sub(CATCH_UP).unwrap_or(now);
            *next = (*next).max(late) + *interval;
        }
    }

    /// How long until it is worth looking again, if nothing happens.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        match self {
            Self::Pace { next, .. } => next.saturating_duration_since(now),
            Self::Places(_) => Duration::MAX,
            Self::Pods { recheck, .. } => *recheck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_PODS: PodCount = PodCount { pods: 0, any_without_waiting: false };

    #[test]
    fn a_pace_is_kept_whether_timers_are_late_or_not() {
        let begun = Instant::now();
        for (late, qps) in [(0, 100.0), (1, 100.0), (3, 1000.0), (4, 250.0)] {
            let mut gate =
                Gate::fairness(&FairnessOptions { max_qps: qps, ..FairnessOptions::default() }, begun);
            let (mut now, mut passed) = (begun, 0);
            while now < begun + Duration::from_secs(10) {
                while gate.is_open(0, NO_PODS, now) {
                    gate.passed(now);
                    passed += 1;
                }
                now += gate.pause(now) + Duration::from_millis(late);
            }
            let wanted = qps * 10.0;
            assert!(
                (f64::from(passed) - wanted).abs() <= 0.01 * wanted + 2.0,
                "{passed} of {wanted}, {late}"
            );
        }
    }

    #[test]
    fn a_pace_saves_nothing_up() {
        let begun = Instant::now();
        let mut gate = Gate::fairness(&FairnessOptions::default(), begun);
        let now = begun + Duration::from_secs(100);
        gate.passed(now);
        assert!(!gate.is_open(0, NO_PODS, now));
        assert!(gate.pause(now) >= Duration::from_millis(5));
    }

    #[test]
    fn pods_give_room() {
        let gate = Gate::session_boost(&SessionBoostOptions::default());
        let now = Instant::now();
        let pods = |pods, any_without_waiting| PodCount { pods, any_without_waiting };
        for (taken, pods, open) in [
            (15, pods(1, true), true),
            (16, pods(1, true), false),
            (16, pods(2, true), true),
            (0, pods(2, false), false),
            (15, pods(0, false), true),
            (16, pods(0, false), false),
        ] {
            assert_eq!(gate.is_open(taken, pods, now), open, "{taken} {pods:?}");
        }
    }
}
