//! Leaves a store alone that keeps failing, and finds out by itself when it is well again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// When to give up, and how often to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerLimits {
    /// Failures in a row that open it.
    pub failures: u32,
    /// The first wait before a probe.
    pub first_wait: Duration,
    /// The longest wait between two probes.
    pub longest_wait: Duration,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures: 5, first_wait: Duration::from_millis(100), longest_wait: Duration::from_secs(5) }
    }
}

/// Whether calls go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BreakerState {
    /// They do.
    Closed,
    /// They do not; the next probe is waited for.
    Open,
    /// They do not; a probe is under way.
    HalfOpen,
}

impl BreakerState {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Counts failures in a row. Whoever is told that it opened looks after the store until it is closed again; requests
/// never do.
#[derive(Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: BreakerState,
    failures: u32,
    /// How long to wait before the next probe.
    wait: Duration,
    closed_at: Option<Instant>,
    openings: u64,
}

impl Breaker {
    /// A closed one.
    pub fn new(limits: BreakerLimits) -> Self {
        let inner = Inner {
            state: BreakerState::Closed,
            failures: 0,
            wait: limits.first_wait,
            closed_at: None,
            openings: 0,
        };
        Self { limits, inner: Mutex::new(inner) }
    }

    /// Whether a call may be tried.
    pub fn allows(&self) -> bool {
        self.inner.lock().state == BreakerState::Closed
    }

    /// A call went well.
    pub fn succeeded(&self) {
        self.inner.lock().failures = 0;
    }

    /// A call failed at `now`. Whether this opened the breaker: then the caller must see to the probes.
    pub fn failed(&self, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        if inner.state != BreakerState::Closed {
            return false;
        }
        inner.failures += 1;
        if inner.failures < self.limits.failures {
            return false;
        }
        // A store that was well for a while is looked at again soon; one that only seemed to be goes on waiting longer.
        if inner.closed_at.is_none_or(|at| now.saturating_duration_since(at) > 2 * self.limits.longest_wait) {
            inner.wait = self.limits.first_wait;
        }
        inner.state = BreakerState::Open;
        inner.openings += 1;
        true
    }

    /// How long to wait before the next probe. Doubles each time.
    pub fn next_wait(&self) -> Duration {
        let mut inner = self.inner.lock();
        let wait = inner.wait;
        inner.wait = (wait * 2).min(self.limits.longest_wait);
        wait
    }

    /// A probe begins.
    pub fn probing(&self) {
        self.inner.lock().state = BreakerState::HalfOpen;
    }

    /// A probe ended at `now`.
    pub fn probed(&self, well: bool, now: Instant) {
        let mut inner = self.inner.lock();
        if well {
            inner.state = BreakerState::Closed;
            inner.failures = 0;
            inner.closed_at = Some(now);
        } else {
            inner.state = BreakerState::Open;
        }
    }

    /// Whether calls go through.
    pub fn state(&self) -> BreakerState {
        self.inner.lock().state
    }

    /// How often it opened.
    pub fn openings(&self) -> u64 {
        self.inner.lock().openings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_only_a_probe_closes_it() {
        let breaker = Breaker::new(BreakerLimits { failures: 3, ..BreakerLimits::default() });
        let now = Instant::now();
        assert!(!breaker.failed(now) && !breaker.failed(now));
        breaker.succeeded();
        assert!(!breaker.failed(now) && !breaker.failed(now) && breaker.allows());
        assert!(breaker.failed(now), "the third in a row");
        assert!(!breaker.allows() && !breaker.failed(now), "it opens once");
        breaker.succeeded();
        assert!(!breaker.allows(), "a late answer does not close it");
        breaker.probing();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!breaker.allows(), "no request is used as a probe");
        breaker.probed(false, now);
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.probing();
        breaker.probed(true, now);
        assert!(breaker.allows());
        assert_eq!(breaker.openings(), 1);
    }

    #[test]
    fn waits_double_and_start_again_only_after_a_good_while() {
        let breaker = Breaker::new(BreakerLimits { failures: 1, ..BreakerLimits::default() });
        let begin = Instant::now();
        breaker.failed(begin);
        let waits: Vec<u128> = (0..8).map(|_| breaker.next_wait().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        breaker.probed(true, begin);
        breaker.failed(begin + Duration::from_secs(1));
        assert_eq!(breaker.next_wait(), Duration::from_secs(5), "it fell ill again at once");
        breaker.probed(true, begin + Duration::from_secs(2));
        breaker.failed(begin + Duration::from_secs(60));
        assert_eq!(breaker.next_wait(), Duration::from_millis(100));
    }
}
