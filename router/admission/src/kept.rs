//! Places of requests that ended, kept for the next turns of their conversations.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// All are kept for the same time, so the one that was kept first is given up first.
#[derive(Debug, Default)]
pub(crate) struct KeptPlaces(VecDeque<KeptPlace>);

#[derive(Debug)]
struct KeptPlace {
    session: u64,
    until: Instant,
}

impl KeptPlaces {
    pub(crate) fn keep(&mut self, session: u64, until: Instant) {
        self.0.push_back(KeptPlace { session, until });
    }

    /// How many are kept now.
    pub(crate) fn number(&mut self, now: Instant) -> usize {
        while self.0.front().is_some_and(|place| place.until <= now) {
            self.0.pop_front();
        }
        self.0.len()
    }

    /// Takes one of the conversation's, if there is one.
    pub(crate) fn take(&mut self, session: u64) -> bool {
        let own = self.0.iter().position(|place| place.session == session);
        own.is_some_and(|own| self.0.remove(own).is_some())
    }

    /// How long until one is given up.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        self.0.front().map_or(Duration::MAX, |place| place.until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_its_conversations_until_it_is_given_up() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut kept = KeptPlaces::default();
        assert_eq!((kept.number(now), kept.pause(now)), (0, Duration::MAX));
        for (session, until) in [(7, 2), (8, 3), (7, 4)] {
            kept.keep(session, now + second * until);
        }
        assert_eq!((kept.number(now), kept.pause(now)), (3, second * 2));
        assert_eq!((kept.take(9), kept.take(8), kept.take(8)), (false, true, false));
        assert_eq!((kept.number(now + second * 2), kept.take(7), kept.take(7)), (1, true, false));
        assert_eq!(kept.number(now), 0);
    }
}
