//! When a renderer may be started again: a budget that refills, and pauses that grow.

use std::time::Duration;

/// Growth of a pause stops at so many times the first one.
const LONGEST: u32 = 16;

/// Restarts that may be spent. Time is told by the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartBudget {
    most: u32,
    left: u32,
    refill: Duration,
    /// Time of being ready that has not yet given a restart back.
    earned: Duration,
}

impl RestartBudget {
    /// A full budget of `most` restarts; one comes back for each `refill` of being ready.
    pub fn new(most: u32, refill: Duration) -> Self {
        Self { most, left: most, refill, earned: Duration::ZERO }
    }

    /// Counts time of being ready.
    pub fn earn(&mut self, ready: Duration) {
        self.earned = self.earned.saturating_add(ready);
        while self.left < self.most && self.earned >= self.refill {
            self.earned = self.earned.saturating_sub(self.refill);
            self.left += 1;
        }
        if self.left == self.most {
            self.earned = Duration::ZERO;
        }
    }

    /// Takes one restart; false when there is none.
    pub fn take(&mut self) -> bool {
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }

    /// Restarts left.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Restarts of a full budget.
    pub fn most(&self) -> u32 {
        self.most
    }
}

/// A pause that doubles, up to [`LONGEST`] times the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    first: Duration,
    factor: u32,
}

impl Pause {
    /// Begins with `first`.
    pub fn new(first: Duration) -> Self {
        Self { first, factor: 1 }
    }

    /// The pause to make now; the next one is longer.
    pub fn lengthen(&mut self) -> Duration {
        let pause = self.first.saturating_mul(self.factor);
        self.factor = (self.factor * 2).min(LONGEST);
        pause
    }

    /// Begins again with the first.
    pub fn reset(&mut self) {
        self.factor = 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_spent_restart_comes_back_after_its_time_of_being_ready() {
        let mut budget = RestartBudget::new(2, 10 * MINUTE);
        assert!(budget.take() && budget.take() && !budget.take());
        budget.earn(9 * MINUTE);
        assert_eq!(budget.left(), 0);
        budget.earn(MINUTE);
        assert_eq!(budget.left(), 1);
        budget.earn(100 * MINUTE);
        assert_eq!((budget.left(), budget.most()), (2, 2), "never more than at first");
        assert!(budget.take());
        budget.earn(9 * MINUTE);
        assert_eq!(budget.left(), 1, "time with a full budget is not saved up");
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_begin_again() {
        let mut pause = Pause::new(MINUTE);
        let seen: Vec<u64> = (0..7).map(|_| pause.lengthen().as_secs() / 60).collect();
        assert_eq!(seen, [1, 2, 4, 8, 16, 16, 16]);
        pause.reset();
        assert_eq!(pause.lengthen(), MINUTE);
    }

    proptest! {
        #[test]
        fn no_more_restarts_than_the_budget_and_what_was_earned(
            most in 0u32..6,
            lives in proptest::collection::vec(0u64..40, 0..60),
        ) {
            let mut budget = RestartBudget::new(most, 10 * MINUTE);
            let (mut taken, mut ready) = (0, 0);
            for minutes in lives {
                ready += minutes;
                budget.earn(u32::try_from(minutes).unwrap() * MINUTE);
                taken += u64::from(budget.take());
                prop_assert!(budget.left() <= most);
                prop_assert!(taken <= u64::from(most) + ready / 10, "{} after {} minutes", taken, ready);
            }
        }
    }
}
