//! Whether the router takes traffic: ready, draining, and how many requests are inside.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Flags and the count of requests inside, shared by the listeners, `/readyz` and the shutdown.
#[derive(Debug, Default)]
pub struct Readiness {
    ready: AtomicBool,
    draining: AtomicBool,
    inside: AtomicUsize,
    emptied: Notify,
}

impl Readiness {
    /// From now on `/readyz` is 200, until draining begins.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// From now on `/readyz` is 503 and connections are not kept alive. Requests are still served.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether new traffic is welcome.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.is_draining()
    }

    /// Whether a shutdown has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Counts one request in; it counts itself out when dropped.
    pub fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, Ordering::AcqRel);
        Inside(self)
    }

    /// Requests inside now.
    pub fn inside(&self) -> usize {
        self.inside.load(Ordering::Acquire)
    }

    /// Returns once nobody is inside.
    pub async fn emptied(&self) {
        loop {
            let notified = self.emptied.notified();
            if self.inside() == 0 {
                return;
            }
            notified.await;
        }
    }
}

/// One request inside.
#[derive(Debug)]
pub struct Inside<'a>(&'a Readiness);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.0.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readiness_falls_when_draining_and_emptied_waits_for_the_last() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready());
        readiness.set_ready();
        assert!(readiness.is_ready());
        let inside = readiness.enter();
        readiness.start_draining();
        assert!(!readiness.is_ready());
        let mut emptied = Box::pin(readiness.emptied());
        assert!(futures_util::poll!(&mut emptied).is_pending());
        drop(inside);
        emptied.await;
    }
}
