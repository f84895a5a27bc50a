//! What the cluster said when: which pods an answer may come from.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{PodNumber, Size, model_name, served_name};

/// For so long after a change was answered by the API, requests may still be routed as if it had not been made.
pub const GRACE: Duration = Duration::from_secs(1);

/// Everything that changes, with its past.
#[derive(Debug, Default)]
pub struct Truth(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Where routes point.
    routes: HashMap<usize, History<usize>>,
    /// Whether pods are there and ready.
    pods: HashMap<PodNumber, History<bool>>,
}

/// The values of something that changes. One change at a time.
#[derive(Debug)]
struct History<V>(Vec<Span<V>>);

/// A value may be seen from the moment when somebody set out to write it until the next one was answered, and a while
/// after that.
#[derive(Debug)]
struct Span<V> {
    value: V,
    from: Instant,
    until: Option<Instant>,
}

impl<V> Default for History<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V: PartialEq> History<V> {
    fn begin(&mut self, value: V, from: Instant) {
        self.0.push(Span { value, from, until: None });
    }

    fn settle(&mut self, answered: Instant) {
        let last = self.0.len().saturating_sub(1);
        for span in self.0.iter_mut().take(last) {
            span.until.get_or_insert(answered);
        }
    }

    /// Whether a request between these moments may have been routed by this value.
    fn may_be(&self, value: &V, sent: Instant, answered: Instant) -> bool {
        self.0.iter().any(|span| {
            span.value == *value
                && span.from <= answered
                && span.until.is_none_or(|until| until + GRACE >= sent)
        })
    }

    fn now(&self) -> Option<&V> {
        self.0.last().map(|span| &span.value)
    }
}

impl Truth {
    /// The truth about a cluster in which everything has always been as it is at first.
    pub fn new(size: Size) -> Self {
        let truth = Self::default();
        let now = Instant::now();
        {
            let mut inner = truth.0.lock();
            for route in 0..size.routes {
                inner.routes.entry(route).or_default().begin(size.first_target(route), now);
            }
            for server in 0..size.servers {
                for number in 0..size.pods_each {
                    inner.pods.entry(PodNumber { server, number }).or_default().begin(true, now);
                }
            }
        }
        truth
    }

    /// Somebody sets out to point a route elsewhere.
    pub fn pointing(&self, route: usize, server: usize) {
        self.0.lock().routes.entry(route).or_default().begin(server, Instant::now());
    }

    /// The API has answered.
    pub fn pointed(&self, route: usize, answered: Instant) {
        self.0.lock().routes.entry(route).or_default().settle(answered);
    }

    /// Somebody sets out to let a pod take requests or not.
    pub fn letting(&self, pod: PodNumber, is_ready: bool) {
        self.0.lock().pods.entry(pod).or_default().begin(is_ready, Instant::now());
    }

    /// The API has answered.
    pub fn let_be(&self, pod: PodNumber, answered: Instant) {
        self.0.lock().pods.entry(pod).or_default().settle(answered);
    }

    /// Where a route points now.
    pub fn target(&self, route: usize) -> Option<usize> {
        self.0.lock().routes.get(&route)?.now().copied()
    }

    /// Judges an answer of `pod`, which was asked for `served`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(
        &self,
        route: usize,
        (pod, served): (PodNumber, &str),
        (sent, answered): (Instant, Instant),
    ) -> Result<(), String> {
        // The name is rewritten for the pod's server: another one would be half of an old route and half of a new one.
        if served != served_name(pod.server) {
            return Err(format!("{} was asked for {served} ({})", pod.name(), model_name(route)));
        }
        let inner = self.0.lock();
        let points = inner.routes.get(&route).is_some_and(|all| all.may_be(&pod.server, sent, answered));
        if !points {
            return Err(format!("{} answered for {}, which points elsewhere", pod.name(), model_name(route)));
        }
        let is_ready = inner.pods.get(&pod).is_some_and(|all| all.may_be(&true, sent, answered));
        if is_ready { Ok(()) } else { Err(format!("{} answered, which is not ready", pod.name())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { servers: 4, pods_each: 2, routes: 2, hot: 2 };

    fn pod(server: usize) -> PodNumber {
        PodNumber { server, number: 0 }
    }

    #[test]
    fn an_answer_must_fit_what_was_so_at_some_moment_of_the_last_second() {
        let truth = Truth::new(SIZE);
        let judge = |server: usize, sent: Instant| {
            truth.judge(0, (pod(server), &served_name(server)), (sent, sent + Duration::from_millis(5)))
        };
        assert_eq!(judge(0, Instant::now()), Ok(()));
        assert!(judge(1, Instant::now()).is_err());
        truth.pointing(0, 1);
        let during = Instant::now();
        assert_eq!((judge(0, during), judge(1, during)), (Ok(()), Ok(())));
        truth.pointed(0, during);
        assert_eq!(truth.target(0), Some(1));
        assert_eq!((judge(0, during + GRACE), judge(1, during + GRACE)), (Ok(()), Ok(())));
        let after = during + GRACE + Duration::from_millis(1);
        assert!(judge(0, after).is_err(), "a second later nothing may be routed as before");
        assert_eq!(judge(1, after), Ok(()));
    }

    #[test]
    fn pods_must_be_ready_and_asked_for_what_they_serve() {
        let truth = Truth::new(SIZE);
        let now = Instant::now();
        let judge = |pod: PodNumber, served: &str, sent: Instant| truth.judge(0, (pod, served), (sent, sent));
        assert!(judge(pod(0), &served_name(1), now).is_err(), "half of one route, half of another");
        let stranger = PodNumber { server: 0, number: 9 };
        assert!(judge(stranger, &served_name(0), now).is_err());
        truth.letting(pod(0), false);
        truth.let_be(pod(0), now);
        assert_eq!(judge(pod(0), &served_name(0), now + GRACE), Ok(()));
        assert!(judge(pod(0), &served_name(0), now + 2 * GRACE).is_err());
    }
}
