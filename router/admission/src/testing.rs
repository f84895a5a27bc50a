//! A clock, a meter and pods of a test's own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{AdmissionMeter, Clock, ModelPods, PodCount, QueueKind};
use parking_lot::Mutex;

use crate::{Admission, AdmissionMode, Ask};

/// Tells the runtime's time, which a test may stop and move.
pub(crate) struct RuntimeClock;

impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// What a meter has heard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) queued: usize,
    pub(crate) dequeued: Vec<Duration>,
    pub(crate) cancelled: usize,
    pub(crate) closed: usize,
    pub(crate) displaced: usize,
    pub(crate) timed_out: usize,
    pub(crate) rejected: usize,
    pub(crate) size: usize,
    pub(crate) in_flight: usize,
    pub(crate) most_in_flight: usize,
    pub(crate) forgotten: usize,
}

#[derive(Default)]
pub(crate) struct TestMeter(Mutex<Heard>);

impl TestMeter {
    pub(crate) fn heard(&self) -> Heard {
        self.0.lock().clone()
    }
}

impl AdmissionMeter for TestMeter {
    fn queued(&self, _: QueueKind, _: &str) {
        self.0.lock().queued += 1;
    }

    fn dequeued(&self, _: QueueKind, _: &str, waited: Duration) {
        self.0.lock().dequeued.push(waited);
    }

    fn cancelled(&self, _: QueueKind, _: &str, _: Duration) {
        self.0.lock().cancelled += 1;
    }

    fn closed(&self, _: QueueKind, _: &str, _: Duration) {
        self.0.lock().closed += 1;
    }

    fn displaced(&self, _: QueueKind, _: &str, _: Duration) {
        self.0.lock().displaced += 1;
    }

    fn timed_out(&self, _: QueueKind, _: &str, _: Duration) {
        self.0.lock().timed_out += 1;
    }

    fn rejected(&self, _: QueueKind, _: &str) {
        self.0.lock().rejected += 1;
    }

    fn queue_size(&self, _: QueueKind, _: &str, waiting: usize) {
        self.0.lock().size = waiting;
    }

    fn in_flight(&self, _: QueueKind, _: &str, running: usize) {
        let mut heard = self.0.lock();
        heard.in_flight = running;
        heard.most_in_flight = heard.most_in_flight.max(running);
    }

    fn forgotten(&self, _: QueueKind, _: &str) {
        self.0.lock().forgotten += 1;
    }
}

/// Pods that a test sets.
#[derive(Default)]
pub(crate) struct TestPods(Mutex<PodCount>);

impl TestPods {
    pub(crate) fn set(&self, pods: u32, any_without_waiting: bool) {
        *self.0.lock() = PodCount { pods, any_without_waiting };
    }
}

impl ModelPods for TestPods {
    fn pods(&self, _: &str) -> PodCount {
        *self.0.lock()
    }
}

/// An admission, and what it speaks with.
pub(crate) struct Bench {
    pub(crate) admission: Arc<Admission>,
    pub(crate) meter: Arc<TestMeter>,
    pub(crate) pods: Arc<TestPods>,
}

pub(crate) fn bench(mode: AdmissionMode) -> Bench {
    let (meter, pods) = (Arc::<TestMeter>::default(), Arc::<TestPods>::default());
    let admission =
        Admission::new(mode, Arc::new(RuntimeClock), Arc::clone(&meter) as _, Arc::clone(&pods) as _);
    Bench { admission, meter, pods }
}

pub(crate) fn ask<'a>(user: Option<&'a str>, session: Option<&'a str>) -> Ask<'a> {
    Ask { model: "m", user, session, prompt_tokens: 100, max_tokens: Some(100) }
}
