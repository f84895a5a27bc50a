//! What it costs to be let in: with nobody waiting, and with ten thousand users waiting.

#![expect(clippy::expect_used, clippy::panic, reason = "a bench that cannot run must fail loudly")]

use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use kvasir_admission::{Admission, AdmissionMode, Ask, Denied, FairnessOptions, Permit};
use kvasir_core::{AdmissionMeter, ModelPods, PodCount, QueueKind, SystemClock, Usage};

const USERS: usize = 10_000;
const USAGE: Usage = Usage { prompt_tokens: 1000, completion_tokens: 200, cached_tokens: None };

struct Silent;

impl AdmissionMeter for Silent {
    fn queued(&self, _: QueueKind, _: &str) {}
    fn dequeued(&self, _: QueueKind, _: &str, _: Duration) {}
    fn cancelled(&self, _: QueueKind, _: &str, _: Duration) {}
    fn closed(&self, _: QueueKind, _: &str, _: Duration) {}
    fn displaced(&self, _: QueueKind, _: &str, _: Duration) {}
    fn timed_out(&self, _: QueueKind, _: &str, _: Duration) {}
    fn rejected(&self, _: QueueKind, _: &str) {}
    fn queue_size(&self, _: QueueKind, _: &str, _: usize) {}
    fn in_flight(&self, _: QueueKind, _: &str, _: usize) {}
    fn forgotten(&self, _: QueueKind, _: &str) {}
}

impl ModelPods for Silent {
    fn pods(&self, _: &str) -> PodCount {
        PodCount::default()
    }
}

fn admission(max_concurrent: usize) -> Arc<Admission> {
    let options = FairnessOptions { max_concurrent, max_waiting: 2 * USERS, ..FairnessOptions::default() };
    Admission::new(
        AdmissionMode::Fairness(options),
        Arc::new(SystemClock),
        Arc::new(Silent),
        Arc::new(Silent),
    )
}

fn ask(user: &str) -> Ask<'_> {
    Ask { model: "model", user: Some(user), session: None, prompt_tokens: 1000, max_tokens: None }
}

/// Notes whose turn it is.
struct Turn {
    number: usize,
    next: Arc<AtomicUsize>,
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.next.store(self.number, Ordering::Relaxed);
    }
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Permit, Denied>> + 'a>>;

fn poll(future: &mut Waiting<'_>, waker: &Waker) -> Option<Permit> {
    match future.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(answer) => Some(answer.expect("nobody is turned away")),
        Poll::Pending => None,
    }
}

fn at_once(bench: &mut Criterion) {
    let admission = admission(1);
    bench.bench_function("admit/nobody_waits", |bench| {
        bench.iter(|| {
            let mut future: Waiting<'_> = Box::pin(admission.admit(black_box(ask("user"))));
            let Some(mut permit) = poll(&mut future, Waker::noop()) else { panic!("it waits") };
            permit.settle(Some(&USAGE), true);
        });
    });
}

fn from_the_queue(bench: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let (admission, next) = (admission(1), Arc::new(AtomicUsize::new(0)));
    let users: Vec<String> = (0..USERS).map(|number| format!("user{number}")).collect();
    let wakers: Vec<Waker> =
        (0..USERS).map(|number| Waker::from(Arc::new(Turn { number, next: Arc::clone(&next) }))).collect();
    let mut first: Waiting<'_> = Box::pin(admission.admit(ask("first")));
    let mut permit = poll(&mut first, Waker::noop());
    let mut waiting: Vec<Waiting<'_>> = Vec::new();
    for (user, waker) in users.iter().zip(&wakers) {
        let mut future: Waiting<'_> = Box::pin(admission.admit(ask(user)));
        assert!(poll(&mut future, waker).is_none());
        waiting.push(future);
    }
    bench.bench_function("admit/10000_users_wait", |bench| {
        bench.iter(|| {
            // One ends, the next begins, and its user asks again.
            if let Some(mut permit) = permit.take() {
                permit.settle(Some(&USAGE), true);
            }
            let number = next.load(Ordering::Relaxed);
            permit = poll(&mut waiting[number], &wakers[number]);
            waiting[number] = Box::pin(admission.admit(ask(&users[number])));
            assert!(permit.is_some() && poll(&mut waiting[number], &wakers[number]).is_none());
        });
    });
}

criterion_group!(benches, at_once, from_the_queue);
criterion_main!(benches);
