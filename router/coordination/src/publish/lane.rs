//! The task that carries requests of some owners to Redis, all of a round in one pipeline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Clock, OwnerJournal};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use redis::{Pipeline, Value};
use tokio_util::sync::CancellationToken;

use super::exchange::Exchange;
use super::owner::{OwnerPublisher, Turn};
use super::request::{Answer, Request};
use crate::connection::{Redis, Refusal, StoreError};
use crate::script::KnownScripts;

/// Bytes of chunks in one round, so that deltas do not wait long behind them.
const ROUND_BYTES: usize = 1 << 20;
/// How often is looked whether somebody handed something in.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the last changes may take at the end.
const LAST_FLUSH: Duration = Duration::from_secs(2);

/// One owner: its decisions, and its words for Redis.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) exchange: Exchange,
    pub(super) machine: Mutex<OwnerPublisher>,
}

/// Owners that share pipelines. On Cluster these are the owners of one slot.
pub(super) struct Lane {
    pub(super) redis: Redis,
    pub(super) journal: Arc<dyn OwnerJournal>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) seats: Vec<Arc<Seat>>,
    pub(super) flush: Duration,
    pub(super) call_limit: Duration,
}

/// What one owner asked in a round.
struct Asked {
    seat: Arc<Seat>,
    requests: Vec<Request>,
}

/// What changes from round to round.
struct Progress {
    random: StdRng,
    known: KnownScripts,
}

impl Lane {
    /// Works until `stop`, then sends the last changes and gives the leases up.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut progress =
            Progress { random: StdRng::from_rng(&mut rand::rng()), known: KnownScripts::default() };
        while !stop.is_cancelled() {
            let began = self.clock.now();
            let asked = self.ask(&mut progress, began);
            let until = if asked.is_empty() { self.due(began) } else { began + self.flush };
            if !asked.is_empty() {
                self.send(&mut progress, asked).await;
            }
            let wait = until.saturating_duration_since(self.clock.now());
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(wait), if !wait.is_zero() => {}
                () = tokio::task::yield_now(), if wait.is_zero() => {}
            }
        }
        self.finish(&mut progress).await;
    }

    /// After a panic: what the machines were about is not to be relied on.
    pub(super) fn start_over(&self) {
        let now = self.clock.now();
        self.seats.iter().for_each(|seat| seat.machine.lock().start_over(now));
    }

    async fn finish(&self, progress: &mut Progress) {
        let deadline = self.clock.now() + LAST_FLUSH;
        while self.clock.now() < deadline {
            let asked = self.ask(progress, self.clock.now());
            if asked.is_empty() {
                break;
            }
            self.send(progress, asked).await;
            if self.seats.iter().all(|seat| seat.machine.lock().is_flushed()) {
                break;
            }
        }
        let asked = self
            .seats
            .iter()
            .map(|seat| Asked { seat: Arc::clone(seat), requests: seat.machine.lock().release() });
        let asked = asked.filter(|asked| !asked.requests.is_empty()).collect();
        self.send(progress, asked).await;
    }

    /// What every owner wants now.
    fn ask(&self, progress: &mut Progress, now: Instant) -> Vec<Asked> {
        let mut room = ROUND_BYTES;
        let mut asked = Vec::new();
        for seat in &self.seats {
            let mut turn =
                Turn { now, journal: &*self.journal, random: &mut progress.random, room: &mut room };
            let requests = seat.machine.lock().poll(&mut turn);
            if !requests.is_empty() {
                asked.push(Asked { seat: Arc::clone(seat), requests });
            }
        }
        asked
    }

    /// When to ask again if nobody wanted anything.
    fn due(&self, now: Instant) -> Instant {
        let soonest = |seat: &Arc<Seat>| {
            let machine = seat.machine.lock();
            if machine.is_following() { machine.due().min(now + self.flush) } else { machine.due() }
        };
        // Someone may hand a resume state in, or hear the engine again, at any time.
        let soonest = self.seats.iter().map(soonest).min().unwrap_or(now + LOOK_EVERY);
        soonest.min(now + LOOK_EVERY).max(now + self.flush)
    }

    async fn send(&self, progress: &mut Progress, asked: Vec<Asked>) {
        let mut values = self.pipeline(&asked, progress.known).await;
        if values.as_ref().is_ok_and(|values| {
            values.iter().any(|value| crate::connection::refusal(value) == Some(Refusal::NoScript))
        }) {
            // A server that was started anew, or another one: it is told the scripts again.
            progress.known = KnownScripts::default();
            values = self.pipeline(&asked, progress.known).await;
        }
        let now = self.clock.now();
        let mut values = values.map(Vec::into_iter);
        for Asked { seat, requests } in asked {
            let answers: Vec<Answer> = match &mut values {
                Err(error) => requests.iter().map(|_| Answer::Failed(*error)).collect(),
                Ok(values) => requests
                    .iter()
                    .map(|request| match values.next() {
                        Some(value) => progress.heed(request, &value),
                        None => Answer::Failed(StoreError::Refused(Refusal::Other)),
                    })
                    .collect(),
            };
            seat.machine.lock().answered(now, &mut progress.random, &requests, &answers);
        }
    }

    async fn pipeline(&self, asked: &[Asked], known: KnownScripts) -> Result<Vec<Value>, StoreError> {
        let mut pipe = Pipeline::new();
        for Asked { seat, requests } in asked {
            for request in requests {
                pipe.add_command(seat.exchange.command(request, known));
            }
        }
        self.redis.pipeline(&pipe, self.call_limit).await
    }
}

impl Progress {
    fn heed(&mut self, request: &Request, value: &Value) -> Answer {
        let answer = Exchange::answer(request, value);
        if let Some(script) = Exchange::script(request)
            && !matches!(answer, Answer::Failed(_))
        {
            self.known.add(script);
        }
        answer
    }
}
