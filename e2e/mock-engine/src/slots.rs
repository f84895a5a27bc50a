//! Prefill places: a bounded number, given in order of arrival, each with a clock of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// The places of one engine.
///
/// A timer fires up to a millisecond late, which would add up over a queue of short prompts. So each place keeps
/// the time at which it was really free, and the next prompt starts from there.
#[derive(Debug)]
pub(crate) struct Slots {
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    idle: Vec<Instant>,
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

/// One place, given back on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    owner: Option<Arc<Slots>>,
    ready_at: Instant,
    at_work: bool,
}

impl Slots {
    /// `count` free places.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let line = Line { idle: vec![Instant::now(); count], waiting: VecDeque::new() };
        Arc::new(Self { line: Mutex::new(line) })
    }

    /// Waits for a place, in order of arrival. Dropping the future leaves the line.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Slot {
        let arrived = Instant::now();
        let turn = {
            let mut line = self.line.lock();
            match line.idle.pop() {
                Some(ready_at) => {
                    return Slot {
                        owner: Some(Arc::clone(self)),
                        ready_at: ready_at.max(arrived),
                        at_work: false,
                    };
                }
                None => {
                    let (sender, turn) = oneshot::channel();
                    line.waiting.retain(|waiter| !waiter.is_closed());
                    line.waiting.push_back(sender);
                    turn
                }
            }
        };
        match turn.await {
            Ok(mut slot) => {
                slot.ready_at = slot.ready_at.max(arrived);
                slot
            }
            // The senders live as long as `self`, which this future borrows.
            Err(_) => std::future::pending().await,
        }
    }

    fn release(self: Arc<Self>, ready_at: Instant) {
        loop {
            let waiter = {
                let mut line = self.line.lock();
                match line.waiting.pop_front() {
                    Some(waiter) => waiter,
                    None => {
                        line.idle.push(ready_at);
                        return;
                    }
                }
            };
            match waiter.send(Slot { owner: Some(Arc::clone(&self)), ready_at, at_work: false }) {
                Ok(()) => return,
                Err(mut refused) => refused.owner = None,
            }
        }
    }
}

impl Slot {
    /// Works for `time`; gives the moment at which the work is done by the place's own clock.
    pub(crate) async fn work(&mut self, time: Duration) -> Instant {
        if !time.is_zero() {
            let done_at = self.ready_at + time;
            self.at_work = true;
            sleep_until(done_at).await;
            self.at_work = false;
            self.ready_at = done_at;
        }
        self.ready_at
    }

    /// The place was held idle until now.
    pub(crate) fn idle_until_now(&mut self) {
        self.ready_at = self.ready_at.max(Instant::now());
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.at_work {
            // Cancelled work ends now.
            self.idle_until_now();
        }
        if let Some(owner) = self.owner.take() {
            owner.release(self.ready_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn places_are_given_in_order_and_the_clock_does_not_drift() {
        let slots = Slots::new(1);
        let start = Instant::now();
        let mut work = Vec::new();
        for _ in 0..10 {
            let slots = Arc::clone(&slots);
            work.push(async move { slots.acquire().await.work(Duration::from_micros(300)).await });
        }
        let ends = futures_util::future::join_all(work).await;
        let micros: Vec<u128> = ends.iter().map(|end| (*end - start).as_micros()).collect();
        assert_eq!(micros, (1..=10).map(|turn| turn * 300).collect::<Vec<u128>>());
        assert!(start.elapsed() < Duration::from_millis(6), "ten late timers would add up to 10 ms");
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_line_is_passed_over() {
        let slots = Slots::new(1);
        let held = slots.acquire().await;
        let mut gone = Box::pin(slots.acquire());
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(slots.acquire());
        assert!(next.as_mut().now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(next.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_granted_to_a_future_that_is_dropped_comes_back() {
        let slots = Slots::new(1);
        let held = slots.acquire().await;
        let mut granted = Box::pin(slots.acquire());
        assert!(granted.as_mut().now_or_never().is_none());
        drop(held);
        drop(granted);
        assert!(slots.acquire().now_or_never().is_some());
    }
}
