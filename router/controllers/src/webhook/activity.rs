//! How long one connection may go on: by its oldest request, or by when its last one ended.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The requests of one connection that have not been answered to the end.
#[derive(Debug)]
pub struct Activity {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// When each began; few, as a connection has few streams.
    running: Vec<(u64, Instant)>,
    next: u64,
    quiet_since: Instant,
}

/// One request that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    activity: Arc<Activity>,
    number: u64,
}

impl Activity {
    /// Of a connection that was opened now.
    pub fn new() -> Arc<Self> {
        let inner = Inner { running: Vec::new(), next: 0, quiet_since: Instant::now() };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// A request begins.
    pub fn begin(self: &Arc<Self>) -> Running {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.running.push((number, Instant::now()));
        Running { activity: Arc::clone(self), number }
    }

    /// When the connection should end, unless something happens before: a request may take `request`, and between two of
    /// them `quiet` may pass.
    pub fn deadline(&self, request: Duration, quiet: Duration) -> Instant {
        let inner = self.inner.lock();
        match inner.running.first() {
            Some((_, oldest)) => *oldest + request,
            None => inner.quiet_since + quiet,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut inner = self.activity.inner.lock();
        inner.running.retain(|(number, _)| *number != self.number);
        if inner.running.is_empty() {
            inner.quiet_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_oldest_request_decides_and_else_the_quiet() {
        let start = Instant::now();
        let activity = Activity::new();
        let deadline = || activity.deadline(60 * SECOND, 30 * SECOND).duration_since(start).as_secs();
        assert_eq!(deadline(), 30);
        advance(5 * SECOND).await;
        let first = activity.begin();
        advance(5 * SECOND).await;
        let second = activity.begin();
        assert_eq!(deadline(), 65);
        drop(first);
        assert_eq!(deadline(), 70);
        advance(7 * SECOND).await;
        drop(second);
        assert_eq!(deadline(), 47);
    }
}
