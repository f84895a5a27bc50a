//! What everything that tries again shares: growing waits, and complaints that do not flood the log.

use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;

/// How often one trouble that lasts is named in the log.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// Waits that double up to a longest one. Each is spread over its upper half by chance, so that replicas which lost the
/// API server together do not come back together.
#[derive(Debug)]
pub(crate) struct BackOff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl BackOff {
    /// Waits from `first` to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// How long to wait now.
    pub(crate) fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        spread(whole)
    }

    /// It worked: the next wait is a short one.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A duration between the half of `whole` and `whole`.
pub(crate) fn spread(whole: Duration) -> Duration {
    whole.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Decides when a trouble is named: when it begins, when it becomes another one, and once a minute while it lasts.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    last: Option<(&'static str, Instant)>,
}

impl Complaints {
    /// Whether trouble of this sort is to be named now.
    pub(crate) fn due(&mut self, sort: &'static str) -> bool {
        let now = Instant::now();
        let quiet =
            self.last.is_some_and(|(last, when)| last == sort && now.duration_since(when) < COMPLAIN_EVERY);
        if !quiet {
            self.last = Some((sort, now));
        }
        !quiet
    }

    /// The same for trouble that is not named again while it lasts: a router that may not do something works without it
    /// for good.
    pub(crate) fn due_once(&mut self, sort: &'static str) -> bool {
        let is_news = self.last.is_none_or(|(last, _)| last != sort);
        if is_news {
            self.last = Some((sort, Instant::now()));
        }
        is_news
    }

    /// The trouble is over. Says whether there was any.
    pub(crate) fn over(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_again() {
        let mut back_off = BackOff::new(Duration::from_millis(800), Duration::from_secs(30));
        for whole in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let wait = back_off.wait().as_secs_f64();
            assert!((whole / 2.0..=whole + 1e-6).contains(&wait), "{wait} for {whole}");
        }
        back_off.reset();
        assert!(back_off.wait() <= Duration::from_millis(800));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trouble_is_named_once_a_minute_and_when_it_changes() {
        let mut complaints = Complaints::default();
        assert!(!complaints.over());
        assert!(complaints.due("a") && !complaints.due("a"));
        assert!(complaints.due("b") && !complaints.due("b"));
        tokio::time::advance(COMPLAIN_EVERY).await;
        assert!(complaints.due("b"));
        tokio::time::advance(COMPLAIN_EVERY).await;
        assert!(!complaints.due_once("b") && complaints.due_once("a") && !complaints.due_once("a"));
        assert!(complaints.over() && complaints.due("b"));
    }
}
