//! The task that follows one stream: reads for its machine, and does what the machine says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Clock, MirrorSink};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::load::load;
use super::machine::{Action, Input, StreamMirror, Whose};
use super::refresh::refresh;
use super::tail::{Batch, Positions};
use crate::connection::Redis;

/// The shortest time between two refreshes: entries may ask for many.
const SHORTEST_REFRESH: Duration = Duration::from_millis(20);

/// One stream.
pub(super) struct Stream {
    pub(super) number: u8,
    pub(super) redis: Redis,
    pub(super) sink: Arc<dyn MirrorSink>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) machine: Arc<Mutex<StreamMirror>>,
    pub(super) positions: Arc<Positions>,
    /// Resyncs that may run at a time, over all streams: each has an owner's content in hand.
    pub(super) resyncs: Arc<Semaphore>,
    pub(super) synced: watch::Sender<bool>,
    pub(super) refresh: Duration,
    pub(super) call_limit: Duration,
}

/// The reads on their way.
#[derive(Default)]
struct Reads {
    tasks: JoinSet<Input>,
    refreshing: bool,
    next_refresh: Option<Instant>,
    last_refresh: Option<Instant>,
}

impl Stream {
    /// Follows until `stop`.
    pub(super) async fn run(self, mut entries: mpsc::Receiver<Batch>, stop: CancellationToken) {
        let mut reads = Reads { next_refresh: Some(self.clock.now()), ..Reads::default() };
        loop {
            let now = self.clock.now();
            if !reads.refreshing && reads.next_refresh.is_some_and(|next| next <= now) {
                self.start_refresh(&mut reads, now);
            }
            let due = self.machine.lock().due();
            let refresh = reads.next_refresh.filter(|_| !reads.refreshing);
            let wake = [due, refresh].into_iter().flatten().min();
            let wait = wake.map_or(Duration::from_secs(1), |wake| wake.saturating_duration_since(now));
            let input = tokio::select! {
                () = stop.cancelled() => return,
                Some(batch) = entries.recv() => {
                    if batch.malformed > 0 {
                        self.step(&mut reads, Input::Malformed(batch.malformed));
                    }
                    Input::Entries(batch.entries)
                }
                Some(read) = reads.tasks.join_next(), if !reads.tasks.is_empty() => {
                    // A read that panicked is a read that failed.
                    let input = read.unwrap_or(Input::Unreachable);
                    if matches!(input, Input::Refreshed(_) | Input::Unreachable) {
                        reads.refreshing = false;
                    }
                    input
                }
                () = tokio::time::sleep(wait) => Input::Tick,
            };
            self.step(&mut reads, input);
        }
    }

    fn step(&self, reads: &mut Reads, input: Input) {
        let now = self.clock.now();
        let mut actions = self.machine.lock().step(now, input);
        // What the index refused is told to the machine at once, so that it does not count on it.
        while !actions.is_empty() {
            let mut refused = Vec::new();
            for action in actions {
                refused.extend(self.perform(reads, now, action));
            }
            actions = Vec::new();
            for whose in refused {
                actions.extend(self.machine.lock().step(now, Input::Refused(whose.name)));
            }
        }
        if self.machine.lock().first_synced() {
            self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    /// Does one thing; whose blocks they were where the index did not want them any more.
    fn perform(&self, reads: &mut Reads, now: Instant, action: Action) -> Option<Whose> {
        match action {
            Action::Load(whose, content) => self.enter(whose, |slot| self.sink.load(slot, content)),
            Action::Change(whose, changes) => self.enter(whose, |slot| self.sink.change(slot, &changes)),
            Action::SetCompleteness(whose, completeness) => {
                self.enter(whose, |slot| self.sink.set_completeness(slot, completeness))
            }
            Action::Lapse(whose) => {
                // Where it is not its slot any more there is nothing left to forget.
                self.enter(whose, |slot| self.sink.lapse(slot));
                None
            }
            Action::Resync(names) => {
                let (redis, number, limit) = (self.redis.clone(), self.number, self.call_limit);
                let resyncs = Arc::clone(&self.resyncs);
                reads.tasks.spawn(async move {
                    let _turn = resyncs.acquire_owned().await;
                    Input::Loaded(load(&redis, number, names, limit).await)
                });
                None
            }
            Action::Refresh => {
                let soonest = reads.last_refresh.map_or(now, |last| last + SHORTEST_REFRESH);
                reads.next_refresh = Some(reads.next_refresh.map_or(soonest, |next| next.min(soonest)));
                None
            }
            Action::Rewind(to) => {
                self.positions.rewind(self.number, to);
                None
            }
        }
    }

    /// Enters something under an owner's slot, if it still has it: a slot may be given to another endpoint at any time.
    fn enter(&self, whose: Whose, enter: impl FnOnce(kvasir_core::OwnerSlot)) -> Option<Whose> {
        if self.sink.slot(&whose.id, &whose.model) != Some(whose.slot) {
            return Some(whose);
        }
        enter(whose.slot);
        None
    }

    fn start_refresh(&self, reads: &mut Reads, now: Instant) {
        reads.refreshing = true;
        reads.last_refresh = Some(now);
        reads.next_refresh = Some(now + self.refresh);
        let (known, tailed) = {
            let machine = self.machine.lock();
            (machine.names(), machine.tailed())
        };
        let (redis, sink, number, limit) =
            (self.redis.clone(), Arc::clone(&self.sink), self.number, self.call_limit);
        reads.tasks.spawn(async move {
            match refresh(&redis, number, known, tailed, &*sink, limit).await {
                Ok(refresh) => Input::Refreshed(refresh),
                Err(_) => Input::Unreachable,
            }
        });
    }
}
