//! What a source is left alone for: a failure for all prompts, a long prompt that took too long for long ones only.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::Clock;

use super::breaker::{Attempt, Breaker, Verdict};
use crate::pool::Lane;

/// The breakers of one source.
pub struct Breakers {
    all: Breaker,
    /// Closed when long prompts are too much for it in the time they have. Short ones may still be none.
    long: Breaker,
}

/// One call that was let through.
pub struct Admitted<'a> {
    any: Attempt<'a>,
    /// For a long prompt.
    long: Option<Attempt<'a>>,
}

impl Breakers {
    /// Of a source without history.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { all: Breaker::new(Arc::clone(clock)), long: Breaker::new(Arc::clone(clock)) }
    }

    /// Whether a short prompt's call would be let through.
    pub fn allow(&self) -> bool {
        self.all.allows()
    }

    /// Lets a call through, or not.
    pub fn admit(&self, lane: Lane) -> Option<Admitted<'_>> {
        let any = self.all.admit()?;
        if lane == Lane::Short {
            return Some(Admitted { any, long: None });
        }
        match self.long.admit() {
            Some(long) => Some(Admitted { any, long: Some(long) }),
            None => {
                any.unused();
                None
            }
        }
    }
}

impl Admitted<'_> {
    /// It answered.
    pub fn succeeded(self) -> Verdict {
        match (self.any.succeeded(), self.long.map_or(Verdict::Unchanged, Attempt::succeeded)) {
            (Verdict::Unchanged, long) => long,
            (any, _) => any,
        }
    }

    /// It failed in a way that has nothing to do with the prompt.
    pub fn failed(self) -> Verdict {
        if let Some(long) = self.long {
            long.unused();
        }
        self.any.failed()
    }

    /// It did not answer in time.
    pub fn timed_out(self) -> Verdict {
        match self.long {
            Some(long) => {
                self.any.unused();
                long.failed()
            }
            None => self.any.failed(),
        }
    }

    /// It asked to be left alone for so long.
    pub fn paused(self, pause: Duration) {
        if let Some(long) = self.long {
            long.unused();
        }
        self.any.paused(pause);
    }

    /// It was not needed after all.
    pub fn unused(self) {
        if let Some(long) = self.long {
            long.unused();
        }
        self.any.unused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ManualClock;

    type End = fn(Admitted<'_>) -> Verdict;

    fn breakers() -> (Arc<ManualClock>, Breakers) {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = clock.clone();
        (clock, Breakers::new(&shared))
    }

    fn open(breakers: &Breakers) -> [bool; 2] {
        [Lane::Short, Lane::Long].map(|lane| breakers.admit(lane).map(Admitted::unused).is_some())
    }

    #[test]
    fn a_long_prompt_that_takes_too_long_closes_the_way_for_long_ones() {
        let (clock, breakers) = breakers();
        breakers.admit(Lane::Long).unwrap().timed_out();
        assert_eq!(open(&breakers), [true, false]);
        breakers.admit(Lane::Short).unwrap().succeeded();
        assert_eq!(open(&breakers), [true, false], "a short one proves nothing for long ones");
        clock.advance(Duration::from_millis(500));
        breakers.admit(Lane::Long).unwrap().succeeded();
        assert_eq!(open(&breakers), [true, true]);
    }

    #[test]
    fn any_other_failure_closes_it_for_all() {
        let pause = |call: Admitted<'_>| {
            call.paused(Duration::from_millis(500));
            Verdict::Unchanged
        };
        let ends: [(Lane, End); 4] = [
            (Lane::Short, |call| call.timed_out()),
            (Lane::Short, |call| call.failed()),
            (Lane::Long, |call| call.failed()),
            (Lane::Long, pause),
        ];
        for (lane, end) in ends {
            let (clock, breakers) = breakers();
            assert_eq!(end(breakers.admit(lane).unwrap()), Verdict::Unchanged);
            assert_eq!(open(&breakers), [false, false]);
            clock.advance(Duration::from_millis(500));
            assert_eq!(open(&breakers), [true, true]);
        }
    }
}
