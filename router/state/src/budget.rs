//! The retry budget: retries are a bounded share of requests, so that a failing fleet is not also doubled in load.

use std::time::Instant;

use parking_lot::Mutex;

/// Seconds that the window reaches back, one bucket for each.
const WINDOW_SECONDS: usize = 10;
/// Retries that are always allowed in a window, so that a quiet router can retry at all.
const FLOOR: u64 = 3;

/// Counts requests and retries of the last ten seconds.
#[derive(Debug)]
pub struct RetryBudget {
    share: f64,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    start: Option<Instant>,
    /// The second that the newest bucket stands for, from `start`.
    second: u64,
    buckets: [Bucket; WINDOW_SECONDS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// Retries are at most `share` of requests, 0 to 1, and always 3 in ten seconds. A share of 0 (or none at all,
    /// NaN) allows no retry.
    pub fn new(share: f64) -> Self {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        Self { share, window: Mutex::default() }
    }

    /// A request began, its first attempt.
    pub fn request(&self, now: Instant) {
        self.window.lock().bucket(now).requests += 1;
    }

    /// Takes one retry out of the budget; false when it is used up.
    pub fn try_retry(&self, now: Instant) -> bool {
        if self.share == 0.0 {
            return false;
        }
        let mut window = self.window.lock();
        window.bucket(now);
        let requests: u64 = window.buckets.iter().map(|bucket| bucket.requests).sum();
        let retries: u64 = window.buckets.iter().map(|bucket| bucket.retries).sum();
        let allowed = ((requests as f64 * self.share) as u64).max(FLOOR);
        if retries >= allowed {
            return false;
        }
        window.bucket(now).retries += 1;
        true
    }
}

impl Window {
    /// The bucket of `now`, with those that fell out of the window emptied. Threads read the clock before they get
    /// here, so a `now` slightly in the past belongs to the newest bucket.
    fn bucket(&mut self, now: Instant) -> &mut Bucket {
        let start = *self.start.get_or_insert(now);
        let second = now.saturating_duration_since(start).as_secs().max(self.second);
        let passed = second - self.second;
        for step in 0..passed.min(WINDOW_SECONDS as u64) {
            self.buckets[index_of(second - step)] = Bucket::default();
        }
        self.second = second;
        &mut self.buckets[index_of(second)]
    }
}

/// Always within the array.
fn index_of(second: u64) -> usize {
    (second % WINDOW_SECONDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn retries(budget: &RetryBudget, now: Instant, most: u32) -> u32 {
        (0..most).filter(|_| budget.try_retry(now)).count() as u32
    }

    #[test]
    fn a_few_retries_are_always_allowed() {
        let now = Instant::now();
        let budget = RetryBudget::new(0.2);
        assert_eq!(retries(&budget, now, 10), 3);
        assert_eq!(retries(&budget, now + Duration::from_secs(9), 10), 0);
        assert_eq!(retries(&budget, now + Duration::from_secs(10), 10), 3);
    }

    #[test]
    fn retries_are_a_share_of_requests() {
        let start = Instant::now();
        let budget = RetryBudget::new(0.2);
        for request in 0..1000 {
            budget.request(start + Duration::from_millis(request * 9));
        }
        let now = start + Duration::from_secs(9);
        assert_eq!(retries(&budget, now, 1000), 200);
        assert_eq!(retries(&budget, now + Duration::from_secs(60), 1000), 3, "the window has emptied");
    }

    #[test]
    fn old_requests_leave_the_window_second_by_second() {
        let start = Instant::now();
        let budget = RetryBudget::new(0.5);
        for second in 0..10 {
            for _ in 0..10 {
                budget.request(start + Duration::from_secs(second));
            }
        }
        assert_eq!(
            retries(&budget, start + Duration::from_secs(14), 1000),
            25,
            "five seconds of ten are left"
        );
    }

    #[test]
    fn a_share_of_nothing_allows_nothing() {
        let now = Instant::now();
        for share in [0.0, -1.0, f64::NAN] {
            assert_eq!(retries(&RetryBudget::new(share), now, 10), 0, "{share}");
        }
        let all = RetryBudget::new(7.0);
        for _ in 0..10 {
            all.request(now);
        }
        assert_eq!(retries(&all, now, 100), 10, "more than one retry a request is never the budget");
    }

    #[test]
    fn a_clock_read_before_another_threads_is_no_trouble() {
        let start = Instant::now();
        let budget = RetryBudget::new(1.0);
        budget.request(start + Duration::from_secs(5));
        budget.request(start);
        budget.request(start + Duration::from_secs(6));
        budget.request(start + Duration::from_secs(4));
        assert_eq!(retries(&budget, start + Duration::from_secs(6), 100), 4);
    }
}
