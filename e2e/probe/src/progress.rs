//! How far a run is, for whoever watches.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that rise while a run goes on. Reading them costs the run nothing.
#[derive(Debug, Default)]
pub struct Progress {
    started: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Requests expected in all; 0 when only the time is known.
    expected: AtomicU64,
}

impl Progress {
    /// Requests started.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }

    /// Requests that ended well.
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// Requests that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.started().saturating_sub(self.succeeded() + self.failed())
    }

    pub(crate) fn expect(&self, requests: u64) {
        self.expected.store(requests, Ordering::Relaxed);
    }

    /// Counts a request as started, unless `limit` have been.
    pub(crate) fn start(&self, limit: Option<u64>) -> bool {
        let next = |started| (limit.is_none_or(|limit| started < limit)).then_some(started + 1);
        self.started.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    pub(crate) fn end(&self, succeeded: bool) {
        let counter = if succeeded { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.succeeded() + self.failed();
        match self.expected.load(Ordering::Relaxed) {
            0 => write!(f, "{done} requests")?,
            expected => write!(f, "{done} of {expected} requests")?,
        }
        write!(f, ", {} in flight, {} failed", self.in_flight(), self.failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_start_than_the_limit() {
        let progress = Progress::default();
        progress.expect(2);
        assert_eq!([(); 4].map(|()| progress.start(Some(2))), [true, true, false, false]);
        progress.end(true);
        progress.end(false);
        assert_eq!(progress.to_string(), "2 of 2 requests, 0 in flight, 1 failed");
        assert!(progress.start(None));
        assert_eq!(progress.in_flight(), 1);
    }
}
