//! Whether the router takes traffic: ready, draining, and how many requests are inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Flags and the count of requests inside, shared by the listeners, `/readyz` and the shutdown.
#[derive(Debug, Default)]
pub struct Readiness {
    started: AtomicBool,
    /// What is waited for, in the order of asking.
    gates: Mutex<Vec<(usize, Arc<str>)>>,
    gates_made: AtomicUsize,
    lacks_routes: AtomicBool,
    draining: AtomicBool,
    inside: AtomicUsize,
    emptied: Notify,
}

/// Something that readiness waits for. Dropped without being opened, as when its task panics, it is waited for ever:
/// what was never seen to be complete is not.
#[derive(Debug)]
#[must_use = "a gate that is never opened keeps the router from being ready"]
pub struct Gate {
    readiness: Arc<Readiness>,
    number: usize,
}

impl Gate {
    /// It is here; nobody waits for it any more.
    pub fn open(self) {
        self.readiness.gates.lock().retain(|(number, _)| *number != self.number);
    }
}

impl Readiness {
    /// The start is over: from now on `/readyz` is 200, until draining begins, unless a gate is still closed.
    pub fn set_ready(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Readiness waits for this, too. `what` is shown in `/readyz`, so it must be fit for clients; for example
    /// `kubernetes: pods`. To be asked for before the start is over: later, it would take a ready router out.
    pub fn wait_for(self: &Arc<Self>, what: impl Into<Arc<str>>) -> Gate {
        let number = self.gates_made.fetch_add(1, Ordering::Relaxed);
        self.gates.lock().push((number, what.into()));
        Gate { readiness: Arc::clone(self), number }
    }

    /// What is waited for; empty when the router is ready.
    pub fn pending(&self) -> Vec<Arc<str>> {
        let mut pending: Vec<Arc<str>> = self.gates.lock().iter().map(|(_, what)| Arc::clone(what)).collect();
        if pending.is_empty() && !self.started.load(Ordering::Acquire) {
            pending.push("the first look at the engines".into());
        }
        if self.is_draining() {
            pending.push("the end: the router is shutting down".into());
        }
        pending
    }

    /// The routes come later. Until they do, a request that no route takes is asked to come again rather than refused.
    pub fn await_routes(&self) {
        self.lacks_routes.store(true, Ordering::Release);
    }

    /// The routes are here.
    pub fn routes_are_known(&self) {
        self.lacks_routes.store(false, Ordering::Release);
    }

    /// Whether the routes are still to come.
    pub fn lacks_routes(&self) -> bool {
        self.lacks_routes.load(Ordering::Acquire)
    }

    /// From now on `/readyz` is 503 and connections are not kept alive. Requests are still served.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether new traffic is welcome.
    pub fn is_ready(&self) -> bool {
        self.started.load(Ordering::Acquire) && !self.is_draining() && self.gates.lock().is_empty()
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
        assert!(readiness.is_ready() && readiness.pending().is_empty());
        let inside = readiness.enter();
        readiness.start_draining();
        assert!(!readiness.is_ready());
        assert_eq!(readiness.pending().len(), 1);
        let mut emptied = Box::pin(readiness.emptied());
        assert!(futures_util::poll!(&mut emptied).is_pending());
        drop(inside);
        emptied.await;
    }

    #[test]
    fn every_gate_must_open() {
        let readiness = Arc::new(Readiness::default());
        let [pods, routes, lost] = ["pods", "routes", "lost"].map(|what| readiness.wait_for(what));
        let pending = || readiness.pending().join(", ");
        assert_eq!(pending(), "pods, routes, lost");
        routes.open();
        readiness.set_ready();
        assert!(!readiness.is_ready());
        assert_eq!(pending(), "pods, lost");
        pods.open();
        drop(lost);
        assert!(!readiness.is_ready(), "nobody said that it is here");
        assert_eq!(pending(), "lost");
        let again = Arc::new(Readiness::default());
        again.set_ready();
        again.wait_for("lost").open();
        assert!(again.is_ready());
    }
}
