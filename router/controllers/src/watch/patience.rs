//! How a watch bears what goes wrong: how long it waits, and what of it is worth a line in the log.

use std::time::Duration;

use tokio::time::Instant;

use super::trouble::Trouble;
use crate::retry::{BackOff, Complaints};

/// A watch that the API server forgets this soon after its list is none of those that end by themselves: those last for
/// 5 to 10 minutes.
const SHORT_LIVED: Duration = Duration::from_secs(60);
/// So many of them in a row are named.
const ONE_AFTER_THE_OTHER: u32 = 3;
/// How long a call may take to fail: that a connection can be made is known after 5 s.
const CALL_LASTS: Duration = Duration::from_secs(10);

/// What was borne so far.
#[derive(Debug)]
pub(crate) struct Patience {
    longest: Duration,
    back_off: BackOff,
    complaints: Complaints,
    /// Whether nothing was heard since the last trouble.
    troubled: bool,
    expiries: Expiries,
}

/// Watches that the API server forgot. One now and then is usual; each costs a whole list.
#[derive(Debug)]
struct Expiries {
    /// When the list was complete that the watch goes on from.
    listed: Option<Instant>,
    in_a_row: u32,
    back_off: BackOff,
    complaints: Complaints,
}

impl Patience {
    /// Waits from `first` to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        let expiries = Expiries {
            listed: None,
            in_a_row: 0,
            back_off: BackOff::new(first, longest),
            complaints: Complaints::default(),
        };
        let back_off = BackOff::new(first, longest);
        Self { longest, back_off, complaints: Complaints::default(), troubled: false, expiries }
    }

    /// A list is complete.
    pub(crate) fn listed(&mut self) {
        self.expiries.listed = Some(Instant::now());
    }

    /// It works. Says whether there was trouble that was named.
    pub(crate) fn works(&mut self) -> bool {
        self.back_off.reset();
        self.troubled = false;
        self.complaints.over()
    }

    /// How long without an event after which the watch works, if nothing worse comes: what fails would have failed again
    /// by then, and a quiet kind tells nothing for days. `None`: there is no trouble.
    pub(crate) fn works_after(&self) -> Option<Duration> {
        self.troubled.then_some(self.longest + CALL_LASTS)
    }

    /// How long to wait after this, and whether it is to be named; `once`: not again while it lasts.
    pub(crate) fn bear(&mut self, trouble: &Trouble, once: bool) -> (Duration, bool) {
        self.troubled = true;
        if *trouble == Trouble::Expired {
            // The API server is there, and a list from it is needed soon.
            self.back_off.reset();
            return self.expiries.bear();
        }
        let sort = trouble.sort();
        let due = if once { self.complaints.due_once(sort) } else { self.complaints.due(sort) };
        (self.back_off.wait(), due)
    }

    /// How long to wait for a stream that has ended.
    pub(crate) fn wait(&mut self) -> Duration {
        self.back_off.wait()
    }
}

impl Expiries {
    fn bear(&mut self) -> (Duration, bool) {
        if self.listed.take().is_some_and(|listed| listed.elapsed() >= SHORT_LIVED) {
            self.in_a_row = 0;
            self.back_off.reset();
            self.complaints.over();
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let due = self.in_a_row >= ONE_AFTER_THE_OTHER && self.complaints.due("expired");
        (self.back_off.wait(), due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(800);
    const LONGEST: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_expires_again_and_again_is_listed_less_often_and_named() {
        let mut patience = Patience::new(FIRST, LONGEST);
        let mut named = 0;
        for round in 0..20 {
            patience.listed();
            patience.works();
            let (wait, due) = patience.bear(&Trouble::Expired, false);
            let whole = FIRST.saturating_mul(1 << round.min(10)).min(LONGEST);
            assert!((whole / 2..=whole).contains(&wait), "{wait:?} in round {round}");
            assert!(round >= 2 || !due, "one is usual");
            named += u32::from(due);
            tokio::time::advance(wait).await;
        }
        assert!((2..=4).contains(&named), "{named} lines in two minutes");
        // A watch that lived is forgotten one day, as all are.
        patience.listed();
        tokio::time::advance(Duration::from_secs(300)).await;
        let (wait, due) = patience.bear(&Trouble::Expired, false);
        assert!(wait <= FIRST && !due);
    }

    #[test]
    fn only_trouble_ends_by_silence() {
        let mut patience = Patience::new(FIRST, LONGEST);
        assert_eq!(patience.works_after(), None);
        patience.bear(&Trouble::Failed("no".to_owned()), false);
        assert!(patience.works_after().is_some_and(|after| after > LONGEST));
        assert!(patience.works() && patience.works_after().is_none());
    }
}
