//! The queue of one model: who waits, who runs, and the only lock that both are changed under.

mod state;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use kvasir_core::{AdmissionMeter, Clock, ModelPods, PodCount, QueueKind};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::claim::{Claim, Ending};
use crate::gate::Gate;
use crate::line::Line;
use crate::pace;
use crate::permit::{Ask, Denied, Permit};
use crate::place::Place;
use crate::waiters::{Stage, Waiter};

use state::State;

/// What all queues share.
pub(crate) struct House {
    pub(crate) kind: QueueKind,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meter: Arc<dyn AdmissionMeter>,
    pub(crate) pods: Arc<dyn ModelPods>,
    /// Requests that wait, in all queues.
    pub(crate) waiting: AtomicUsize,
    pub(crate) most_waiting: usize,
    /// How long the place of a request that ended is kept.
    pub(crate) grace: Duration,
}

pub(crate) struct Queue {
    model: Arc<str>,
    house: Arc<House>,
    state: Mutex<State>,
    /// Tells the pace that something is due earlier than it knew.
    pub(crate) sooner: Notify,
}

/// What a request that asks gets at once.
pub(crate) enum Answer {
    Begin(Permit),
    Wait(Place),
}

impl Queue {
    pub(crate) fn new(model: Arc<str>, house: Arc<House>, line: Line, gate: Gate) -> Self {
        Self { model, house, state: Mutex::new(State::new(line, gate)), sooner: Notify::new() }
    }

    /// A request comes. Where nobody waits and there is room, it begins at once.
    pub(crate) fn ask(self: &Arc<Self>, ask: &Ask<'_>) -> Result<Answer, Denied> {
        let (now, pods) = (self.house.clock.now(), self.pods());
        let house = &self.house;
        let mut state = self.state.lock();
        if state.closed {
            return Err(Denied::Closed);
        }
        if state.goes_on(ask, pods, now) || (state.waiting == 0 && state.has_room(pods, now)) {
            let mut claim = state.line.claim(ask, now);
            state.begin(&mut claim, now);
            house.meter.dequeued(house.kind, &self.model, Duration::ZERO);
            self.show_running(&state);
            return Ok(Answer::Begin(Permit::new(Arc::clone(self), claim)));
        }
        let mut waking = Vec::new();
        if house.waiting.fetch_add(1, Ordering::Relaxed) >= house.most_waiting
            && !self.displace(&mut state, ask, now, &mut waking)
        {
            house.waiting.fetch_sub(1, Ordering::Relaxed);
            house.meter.rejected(house.kind, &self.model);
            return Err(Denied::Full);
        }
        let claim = state.line.claim(ask, now);
        let arrival = state.arrivals;
        state.arrivals += 1;
        let number = {
            let State { waiters, line, .. } = &mut *state;
            let number = waiters.insert(Waiter::new(claim, arrival, now));
            line.enter(waiters, number);
            number
        };
        state.waiting += 1;
        house.meter.queued(house.kind, &self.model);
        waking.extend(self.let_in(&mut state, pods, now));
        self.show_waiting(&state);
        if state.waiting > 0 && state.gate.needs_time() && !state.paced {
            state.paced = true;
            pace::keep(Arc::clone(self));
        }
        drop(state);
        wake(waking);
        Ok(Answer::Wait(Place::new(Arc::clone(self), number)))
    }

    /// Whether the waiter may begin; remembers whom to wake when that changes.
    pub(crate) fn look(self: &Arc<Self>, number: u32, waker: &Waker) -> Poll<Result<Permit, Denied>> {
        let mut state = self.state.lock();
        let Some(waiter) = state.waiters.get_mut(number) else { return Poll::Ready(Err(Denied::Closed)) };
        if let Stage::Waiting(known) = &mut waiter.stage {
            if known.as_ref().is_some_and(|known| known.will_wake(waker)) {
                return Poll::Pending;
            }
            // Whatever a waker ends when it is dropped must not meet the lock.
            let before = known.replace(waker.clone());
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        Poll::Ready(self.collect(&mut state, number))
    }

    /// The waiter's patience is at its end. Whoever was let in meanwhile begins all the same.
    pub(crate) fn give_up(self: &Arc<Self>, number: u32, limit: Duration) -> Result<Permit, Denied> {
        let now = self.house.clock.now();
        let mut state = self.state.lock();
        match state.waiters.get(number) {
            None => return Err(Denied::Closed),
            Some(Waiter { stage: Stage::Waiting(_), .. }) => {}
            Some(_) => return self.collect(&mut state, number),
        }
        let gone = self.remove(&mut state, number);
        if let Some(waiter) = &gone {
            let waited = now.saturating_duration_since(waiter.since);
            self.house.meter.timed_out(self.house.kind, &self.model, waited);
            self.show_waiting(&state);
        }
        drop(state);
        drop(gone);
        Err(Denied::TimedOut(limit))
    }

    /// The waiter's client is gone.
    pub(crate) fn abandon(&self, number: u32) {
        let (now, pods) = (self.house.clock.now(), self.pods());
        // Dropped after the lock, with its waker.
        let gone;
        let mut state = self.state.lock();
        gone = self.remove(&mut state, number);
        let Some(waiter) = &gone else { return };
        let house = &self.house;
        let waited = match waiter.stage {
            Stage::Waiting(_) => now.saturating_duration_since(waiter.since),
            Stage::Admitted(waited) => {
                state.line.end(&waiter.claim, Ending::NeverBegan, now);
                state.running = state.running.saturating_sub(1);
                waited
            }
            // That it was sent away is counted already.
            Stage::Closed | Stage::Displaced => return,
        };
        house.meter.cancelled(house.kind, &self.model, waited);
        let waking = self.let_in(&mut state, pods, now);
        self.show_waiting(&state);
        self.show_running(&state);
        drop(state);
        wake(waking);
    }

    /// How a running request went is known.
    pub(crate) fn settle(&self, claim: &Claim, ending: Ending) {
        let now = self.house.clock.now();
        self.state.lock().line.end(claim, ending, now);
    }

    /// A running request's place is free. Where the next turn of its conversation is here already, it has the place; else
    /// the place is kept for it for a while. Neither, when somebody else has waited for too long.
    pub(crate) fn release(&self, session: Option<u64>) {
        let (now, pods) = (self.house.clock.now(), self.pods());
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(1);
        let (before, mut waking) = (state.waiting, Vec::new());
        if let Some(session) = session.filter(|_| !self.house.grace.is_zero())
            && !state.line.is_late(&state.waiters, now)
        {
            match state.line.of_session(session) {
                Some(number) if state.has_room(pods, now) => {
                    waking.extend(self.let_one_in(&mut state, number, now));
                }
                // It goes as soon as the pods have room.
                Some(_) => {}
                None => {
                    state.kept.keep(session, now + self.house.grace);
                    self.sooner.notify_one();
                }
            }
        }
        waking.extend(self.let_in(&mut state, pods, now));
        if state.waiting != before {
            self.show_waiting(&state);
        }
        self.show_running(&state);
        drop(state);
        wake(waking);
    }

    /// Lets in who may begin by now. How long until it is worth looking again; `None` when nobody waits any more, and
    /// then whoever waits next must see to the pace.
    pub(crate) fn turn(&self) -> Option<Duration> {
        let (now, pods) = (self.house.clock.now(), self.pods());
        let mut state = self.state.lock();
        let before = state.waiting;
        let waking = self.let_in(&mut state, pods, now);
        // Whoever was let in may not have asked yet, and then there is nobody to wake.
        if state.waiting != before {
            self.show_waiting(&state);
            self.show_running(&state);
        }
        let pause = state.gate.pause(now).min(state.kept.pause(now));
        state.paced = state.waiting > 0;
        let pause = state.paced.then_some(pause);
        drop(state);
        wake(waking);
        pause
    }

    /// The task that looked after what opens by itself was ended from outside.
    pub(crate) fn lost_pace(&self) {
        self.state.lock().paced = false;
    }

    /// Sends away all who wait and all who come. With `forget` nobody will ask for this queue again.
    pub(crate) fn close(&self, forget: bool) {
        let now = self.house.clock.now();
        let house = &self.house;
        let mut state = self.state.lock();
        state.closed = true;
        let mut waking = Vec::new();
        let State { line, waiters, .. } = &mut *state;
        let numbers: Vec<u32> = waiters.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let Some(waiter) = waiters.get_mut(number) else { continue };
            let Stage::Waiting(waker) = &mut waiter.stage else { continue };
            waking.extend(waker.take());
            waiter.stage = Stage::Closed;
            house.meter.closed(house.kind, &self.model, now.saturating_duration_since(waiter.since));
            line.leave(waiters, number);
        }
        house.waiting.fetch_sub(state.waiting, Ordering::Relaxed);
        state.waiting = 0;
        self.show_waiting(&state);
        if forget && !std::mem::replace(&mut state.forgotten, true) {
            house.meter.forgotten(house.kind, &self.model);
        }
        self.sooner.notify_one();
        drop(state);
        wake(waking);
    }

    /// Reads or changes the line.
    pub(crate) fn with_line<T>(&self, work: impl FnOnce(&mut Line) -> T) -> T {
        work(&mut self.state.lock().line)
    }

    /// Those who wait and those who run.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.waiting, state.running)
    }

    /// Asked before the lock is taken: the answer is another room's.
    fn pods(&self) -> PodCount {
        if self.house.kind == QueueKind::SessionBoost {
            self.house.pods.pods(&self.model)
        } else {
            PodCount::default()
        }
    }

    /// Takes in the first in line for as long as there is room. Who is to be woken once the lock is given back.
    fn let_in(&self, state: &mut State, pods: PodCount, now: Instant) -> Vec<Waker> {
        let mut waking = Vec::new();
        while state.waiting > 0 && state.has_room(pods, now) {
            let Some(number) = state.line.first(&state.waiters, now) else { break };
            waking.extend(self.let_one_in(state, number, now));
        }
        waking
    }

    /// One that waits may begin. Who is to be woken, if it was asked already.
    fn let_one_in(&self, state: &mut State, number: u32, now: Instant) -> Option<Waker> {
        let waiter = state.waiters.get_mut(number)?;
        let waited = now.saturating_duration_since(waiter.since);
        let stage = std::mem::replace(&mut waiter.stage, Stage::Admitted(waited));
        let mut claim = waiter.claim;
        // Its user's account must not seem unused between the two.
        state.begin(&mut claim, now);
        state.leave_line(number);
        self.house.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(waiter) = state.waiters.get_mut(number) {
            waiter.claim = claim;
        }
        if let Stage::Waiting(waker) = stage { waker } else { None }
    }

    /// Sends one away so that another may wait in its place, where the line knows one who must.
    fn displace(&self, state: &mut State, ask: &Ask<'_>, now: Instant, waking: &mut Vec<Waker>) -> bool {
        let Some(number) = state.line.displaced_by(ask) else { return false };
        let Some(waiter) = state.waiters.get_mut(number) else { return false };
        let waited = now.saturating_duration_since(waiter.since);
        if let Stage::Waiting(waker) = std::mem::replace(&mut waiter.stage, Stage::Displaced) {
            waking.extend(waker);
        }
        state.leave_line(number);
        self.house.waiting.fetch_sub(1, Ordering::Relaxed);
        self.house.meter.displaced(self.house.kind, &self.model, waited);
        true
    }

    /// Answers a waiter that is not in line any more.
    fn collect(self: &Arc<Self>, state: &mut State, number: u32) -> Result<Permit, Denied> {
        let house = &self.house;
        let (claim, waited) = match state.waiters.remove(number) {
            Some(Waiter { claim, stage: Stage::Admitted(waited), .. }) => (claim, waited),
            Some(Waiter { stage: Stage::Displaced, .. }) => return Err(Denied::Full),
            _ => return Err(Denied::Closed),
        };
        house.meter.dequeued(house.kind, &self.model, waited);
        self.show_running(state);
        Ok(Permit::new(Arc::clone(self), claim))
    }

    fn remove(&self, state: &mut State, number: u32) -> Option<Waiter> {
        if let Some(Waiter { stage: Stage::Waiting(_), .. }) = state.waiters.get(number) {
            state.leave_line(number);
            self.house.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        state.waiters.remove(number)
    }

    fn show_waiting(&self, state: &State) {
        if !state.forgotten {
            self.house.meter.queue_size(self.house.kind, &self.model, state.waiting);
        }
    }

    fn show_running(&self, state: &State) {
        if !state.forgotten {
            self.house.meter.in_flight(self.house.kind, &self.model, state.running);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiting, running) = self.counts();
        f.debug_struct("Queue")
            .field("model", &self.model)
            .field("waiting", &waiting)
            .field("running", &running)
            .finish_non_exhaustive()
    }
}

fn wake(waking: Vec<Waker>) {
    waking.into_iter().for_each(Waker::wake);
}
