//! What one user used within a sliding window, in buckets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::spend::Spend;

/// Buckets of a window. With a second each they are five minutes; of a longer window each is longer, so that a user's
/// memory is bounded.
const MOST_BUCKETS: u32 = 300;

/// Cuts time into buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calendar {
    origin: Instant,
    bucket: Duration,
    /// Whole buckets in the window.
    length: u32,
}

impl Calendar {
    pub(crate) fn new(origin: Instant, window: Duration) -> Self {
        let bucket = Duration::from_secs(1).max(window / MOST_BUCKETS);
        let length = (window.as_millis() / bucket.as_millis().max(1)) as u32;
        Self { origin, bucket, length: length.max(1) }
    }

    /// The bucket of a moment. 32 bits of seconds are 136 years.
    pub(crate) fn bucket(&self, at: Instant) -> u32 {
        let passed = at.saturating_duration_since(self.origin).as_millis();
        u32::try_from(passed / self.bucket.as_millis().max(1)).unwrap_or(u32::MAX)
    }

    /// The first bucket in which a bucket does not count any more: it counts as long as it is not older than the
    /// window.
    fn end_of(&self, bucket: u32) -> u32 {
        bucket.saturating_add(self.length).saturating_add(1)
    }

    /// Seconds since the calendar began.
    pub(crate) fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.origin).as_secs_f64()
    }
}

/// One user's buckets, the oldest first. A bucket in which nothing was used is not there.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Window {
    buckets: VecDeque<(u32, Spend)>,
    total: Spend,
}

impl Window {
    pub(crate) fn total(&self) -> Spend {
        self.total
    }

    pub(crate) fn add(&mut self, bucket: u32, spend: Spend) {
        if spend.is_nothing() {
            return;
        }
        self.total = self.total + spend;
        match self.buckets.back_mut() {
            // A clock that steps back would only blur by a bucket.
            Some((last, sum)) if *last >= bucket => *sum = *sum + spend,
            _ => self.buckets.push_back((bucket, spend)),
        }
    }

    /// Forgets what does not count any more in bucket `now`.
    pub(crate) fn expire(&mut self, calendar: &Calendar, now: u32) {
        while let Some((bucket, spend)) = self.buckets.front().copied()
            && calendar.end_of(bucket) <= now
        {
            self.total = self.total - spend;
            self.buckets.pop_front();
        }
        if self.buckets.is_empty() {
            *self = Self::default();
        }
    }

    /// The bucket in which something is to be forgotten next.
    pub(crate) fn next_expiry(&self, calendar: &Calendar) -> Option<u32> {
        self.buckets.front().map(|(bucket, _)| calendar.end_of(*bucket))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_counts_as_long_as_the_window() {
        let origin = Instant::now();
        let calendar = Calendar::new(origin, Duration::from_secs(60));
        let mut window = Window::default();
        window.add(calendar.bucket(origin + Duration::from_millis(5999)), Spend::one(7));
        window.add(calendar.bucket(origin + Duration::from_secs(8)), Spend::one(1));
        assert_eq!(window.next_expiry(&calendar), Some(66));
        window.expire(&calendar, calendar.bucket(origin + Duration::from_secs(65)));
        assert_eq!(window.total(), Spend { cost: 8, requests: 2 });
        window.expire(&calendar, calendar.bucket(origin + Duration::from_secs(66)));
        assert_eq!(window.total(), Spend::one(1));
        window.expire(&calendar, 1000);
        assert_eq!((window.total(), window.next_expiry(&calendar)), (Spend::default(), None));
    }

    #[test]
    fn memory_is_bounded_in_long_windows() {
        let origin = Instant::now();
        let calendar = Calendar::new(origin, Duration::from_secs(3600));
        let mut window = Window::default();
        for second in 0..20_000 {
            let bucket = calendar.bucket(origin + Duration::from_secs(second));
            window.expire(&calendar, bucket);
            window.add(bucket, Spend::one(1));
            assert!(window.buckets.len() <= 301, "{}", window.buckets.len());
        }
        let hour = window.total().requests;
        assert!((3600..=3612).contains(&hour), "{hour}");
        assert_eq!(size_of::<(u32, Spend)>(), 24);
    }

    proptest! {
        #[test]
        fn the_total_is_what_a_log_says(uses in prop::collection::vec((0_u64..20, 0_u64..1000), 1..200)) {
            let origin = Instant::now();
            let calendar = Calendar::new(origin, Duration::from_secs(30));
            let (mut window, mut log, mut now) = (Window::default(), Vec::new(), 0);
            for (pause, cost) in uses {
                now += pause;
                let bucket = calendar.bucket(origin + Duration::from_secs(now));
                window.expire(&calendar, bucket);
                window.add(bucket, Spend::one(cost));
                log.push((now, cost));
                log.retain(|(at, _)| now - at <= 30);
                let wanted = Spend { cost: log.iter().map(|(_, cost)| cost).sum(), requests: log.len() as u32 };
                prop_assert_eq!(window.total(), wanted);
            }
        }
    }
}
