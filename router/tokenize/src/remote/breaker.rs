//! Leaves a source alone after it failed: a moment at first, longer each time, and then one call tries again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::Clock;
use parking_lot::Mutex;

/// Pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long a trial call may take before another is let through: its caller may have been cancelled.
const TRIAL_PATIENCE: Duration = Duration::from_secs(2);

/// Failures in a row from which on a source counts as out: with the pauses between them, some two seconds.
const OUT: u32 = 3;

/// What an attempt's end means for its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing to tell.
    Unchanged,
    /// It has just failed too often.
    Out,
    /// It has just answered after that.
    Back,
}

/// The state of one source.
pub struct Breaker {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Failures in a row.
    failures: u32,
    /// Not asked before this.
    closed_until: Option<Instant>,
    /// Counts pauses, so that calls begun before one do not lengthen it.
    generation: u64,
}

/// One call that was let through. Dropped without a word it counts for nothing: the caller gave up.
pub struct Attempt<'a> {
    breaker: &'a Breaker,
    generation: u64,
}

impl Breaker {
    /// A source without history.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Whether a call would be let through.
    pub fn allows(&self) -> bool {
        let now = self.clock.now();
        self.state.lock().closed_until.is_none_or(|until| now >= until)
    }

    /// Lets a call through, or not. After a pause only one goes, until it is known how it fares.
    pub fn admit(&self) -> Option<Attempt<'_>> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if let Some(until) = state.closed_until {
            if now < until {
                return None;
            }
            state.closed_until = Some(now + TRIAL_PATIENCE);
            state.generation += 1;
        }
        Some(Attempt { breaker: self, generation: state.generation })
    }
}

impl State {
    /// Counts a failure, unless it belongs to an attempt from before the last pause.
    fn close(&mut self, generation: u64, until: Instant) -> bool {
        let counts = self.generation == generation;
        if counts {
            self.failures = self.failures.saturating_add(1);
            self.closed_until = Some(until);
            self.generation += 1;
        }
        counts
    }
}

impl Attempt<'_> {
    /// It answered.
    pub fn succeeded(self) -> Verdict {
        let mut state = self.breaker.state.lock();
        if state.generation != self.generation {
            return Verdict::Unchanged;
        }
        state.closed_until = None;
        let failures = std::mem::take(&mut state.failures);
        if failures >= OUT { Verdict::Back } else { Verdict::Unchanged }
    }

    /// It failed.
    pub fn failed(self) -> Verdict {
        let now = self.breaker.clock.now();
        let mut state = self.breaker.state.lock();
        let pause = FIRST_PAUSE.saturating_mul(1 << state.failures.min(16)).min(LONGEST_PAUSE);
        let counted = state.close(self.generation, now + pause);
        if counted && state.failures == OUT { Verdict::Out } else { Verdict::Unchanged }
    }

    /// It asked to be left alone for so long. That is no failure.
    pub fn paused(self, pause: Duration) {
        let now = self.breaker.clock.now();
        let mut state = self.breaker.state.lock();
        let failures = state.failures;
        state.close(self.generation, now + pause);
        state.failures = failures;
    }

    /// It was not needed after all.
    pub fn unused(self) {
        let mut state = self.breaker.state.lock();
        if state.generation == self.generation && state.closed_until.is_some() {
            state.closed_until = Some(self.breaker.clock.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ManualClock;

    #[test]
    fn pauses_grow_and_end_with_one_trial() {
        let clock = ManualClock::new();
        let breaker = Breaker::new(clock.clone());
        for pause in [500, 1_000, 2_000, 4_000] {
            breaker.admit().unwrap().failed();
            assert!(breaker.admit().is_none());
            clock.advance(Duration::from_millis(pause - 1));
            assert!(!breaker.allows());
            clock.advance(Duration::from_millis(1));
            assert!(breaker.allows());
        }
        let trial = breaker.admit().unwrap();
        assert!(breaker.admit().is_none(), "only one trial");
        trial.succeeded();
        assert!(breaker.admit().is_some() && breaker.admit().is_some());
    }

    #[test]
    fn a_source_is_out_once_and_back_once() {
        let clock = ManualClock::new();
        let breaker = Breaker::new(clock.clone());
        let fail = || {
            let verdict = breaker.admit().unwrap().failed();
            clock.advance(LONGEST_PAUSE);
            verdict
        };
        assert_eq!([fail(), fail()], [Verdict::Unchanged; 2]);
        assert_eq!(breaker.admit().unwrap().succeeded(), Verdict::Unchanged, "a hiccup");
        let verdicts = [fail(), fail(), fail(), fail()];
        assert_eq!(verdicts, [Verdict::Unchanged, Verdict::Unchanged, Verdict::Out, Verdict::Unchanged]);
        breaker.admit().unwrap().paused(Duration::from_secs(5));
        clock.advance(Duration::from_secs(5));
        assert_eq!(breaker.admit().unwrap().succeeded(), Verdict::Back);
        assert_eq!(breaker.admit().unwrap().succeeded(), Verdict::Unchanged);
    }

    #[test]
    fn calls_that_fail_together_count_once() {
        let clock = ManualClock::new();
        let breaker = Breaker::new(clock.clone());
        let attempts: Vec<_> = (0..50).map(|_| breaker.admit().unwrap()).collect();
        for attempt in attempts {
            attempt.failed();
        }
        clock.advance(FIRST_PAUSE);
        assert!(breaker.admit().is_some());
    }

    #[test]
    fn a_trial_that_is_never_heard_of_again_is_followed_by_another() {
        let clock = ManualClock::new();
        let breaker = Breaker::new(clock.clone());
        breaker.admit().unwrap().failed();
        clock.advance(FIRST_PAUSE);
        assert!(breaker.admit().is_some(), "the trial, which ends without a word");
        assert!(breaker.admit().is_none());
        clock.advance(TRIAL_PATIENCE);
        breaker.admit().unwrap().unused();
        assert!(breaker.admit().is_some());
    }

    #[test]
    fn long_histories_do_not_overflow() {
        let clock = ManualClock::new();
        let breaker = Breaker::new(clock.clone());
        for _ in 0..100 {
            breaker.admit().unwrap().failed();
            clock.advance(LONGEST_PAUSE);
        }
        assert!(breaker.admit().is_some());
    }
}
