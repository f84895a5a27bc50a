//! What heartbeats told of the server's clock and stream, and what may be thrown away by it.
//!
//! A server's clock may be set at any time. What is thrown away because it is old must have been seen to be old: so long
//! ago by our own time, which only ever measures how much time went by.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::publish::LONGEST_LEASE;
use crate::publish::exchange::DELTAS_KEPT;
use crate::publish::request::{Beaten, Tidy};

/// A difference between two heartbeats that no slow answer explains: the clock was set.
const SET: Duration = Duration::from_secs(5);
/// How often the stream's newest entry is remembered: so much later than it may be, entries are trimmed.
const MARK_EVERY: Duration = Duration::from_secs(15);

/// The server's clock as it was told.
#[derive(Debug, Default)]
pub(super) struct ServerTime {
    told: Option<(Instant, u64)>,
    /// Since when it went as ours does.
    steady_since: Option<Instant>,
    /// The newest entry's millisecond at some moments, oldest first.
    marks: VecDeque<(Instant, u64)>,
}

impl ServerTime {
    /// A heartbeat was answered.
    pub(super) fn tell(&mut self, now: Instant, beaten: &Beaten) {
        let expected = self.expected(now);
        if expected.is_none_or(|expected| expected.abs_diff(beaten.now) > SET.as_millis() as u64) {
            self.steady_since = Some(now);
        }
        self.told = Some((now, beaten.now));
        let newest = beaten.last.map_or(0, |last| last.ms);
        if self.marks.back().is_some_and(|(_, mark)| *mark > newest) {
            // The stream went back: what was seen is not there any more.
            self.marks.clear();
        }
        if self.marks.back().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= MARK_EVERY) {
            self.marks.push_back((now, newest));
        }
        while self.marks.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= DELTAS_KEPT) {
            self.marks.pop_front();
        }
    }

    /// What the next heartbeat may throw away.
    pub(super) fn tidy(&self, now: Instant) -> Tidy {
        let is_old = |at: Instant, age: Duration| now.saturating_duration_since(at) >= age;
        // Longer than any lease: every writer that is there has renewed its lease by the clock as it is now.
        let steady = self.steady_since.is_some_and(|since| is_old(since, LONGEST_LEASE));
        Tidy {
            trim_ms: self.marks.front().filter(|(at, _)| is_old(*at, DELTAS_KEPT)).map_or(0, |(_, ms)| *ms),
            now_ms: self.expected(now).filter(|_| steady).unwrap_or_default(),
        }
    }

    /// What the server's clock should say now.
    fn expected(&self, now: Instant) -> Option<u64> {
        self.told.map(|(at, ms)| ms + now.saturating_duration_since(at).as_millis() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::StreamId;

    struct Rig {
        server: ServerTime,
        now: Instant,
        server_ms: u64,
        newest_ms: u64,
    }

    impl Rig {
        /// Heartbeats for so many seconds, with a new entry before each.
        fn beat(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.server_ms += 1000;
                self.newest_ms = self.newest_ms.max(self.server_ms);
                self.tell();
            }
        }

        fn tell(&mut self) {
            let last = Some(StreamId { ms: self.newest_ms, seq: 0 });
            self.server.tell(self.now, &Beaten { first: None, last, length: 1, now: self.server_ms });
        }

        fn tidy(&self) -> Tidy {
            self.server.tidy(self.now)
        }
    }

    fn rig() -> Rig {
        let mut rig =
            Rig { server: ServerTime::default(), now: Instant::now(), server_ms: 10_000_000, newest_ms: 0 };
        rig.tell();
        rig
    }

    #[test]
    fn nothing_is_thrown_away_before_it_was_seen_to_be_old() {
        let mut rig = rig();
        rig.beat(59);
        assert_eq!(rig.tidy(), Tidy::default());
        rig.beat(61);
        let tidy = rig.tidy();
        assert_eq!(tidy.now_ms, rig.server_ms);
        let age = rig.server_ms - tidy.trim_ms;
        assert!((60_000..=75_000).contains(&age), "{age}");
        assert!(rig.server.marks.len() <= 6);
    }

    #[test]
    fn a_clock_that_is_set_forward_throws_nothing_away() {
        let mut rig = rig();
        rig.beat(120);
        let before = rig.server_ms;
        rig.server_ms += 3_600_000;
        // What is asked before the jump is known speaks of the time before it.
        rig.now += Duration::from_secs(1);
        assert_eq!(rig.tidy().now_ms, before + 1000);
        rig.beat(59);
        let tidy = rig.tidy();
        assert_eq!(tidy.now_ms, 0);
        assert!(tidy.trim_ms <= before, "{tidy:?}");
        rig.beat(16);
        assert_eq!(rig.tidy().now_ms, rig.server_ms);
    }

    #[test]
    fn a_clock_that_is_set_back_and_a_stream_that_went_back_are_waited_for() {
        let mut rig = rig();
        rig.beat(120);
        rig.server_ms -= 3_600_000;
        rig.beat(1);
        assert_eq!(rig.tidy().now_ms, 0);
        assert_ne!(rig.tidy().trim_ms, 0);
        rig.newest_ms = 5;
        rig.tell();
        assert_eq!(rig.tidy().trim_ms, 0);
    }
}
