//! The task that follows one stream: reads for its machine, and does what the machine says.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use kvasir_core::{Clock, MirrorSink, OwnerSlot};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::load::load;
use super::machine::{Action, Input, LoadFault, StreamMirror, Whose};
use super::refresh::refresh;
use super::tail::{Batch, Positions};
use crate::connection::Redis;

/// The shortest time between two refreshes: entries may ask for many.
const SHORTEST_REFRESH: Duration = Duration::from_millis(20);

/// Blocks that are entered at once; more would hold up what else this thread does for more than a millisecond or so.
const QUICK_BLOCKS: usize = 4096;

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
    pub(super) async fn run(
        self: Arc<Self>,
        entries: Arc<tokio::sync::Mutex<mpsc::Receiver<Batch>>>,
        stop: CancellationToken,
    ) {
        let mut entries = entries.lock().await;
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
                        self.step(&mut reads, Input::Malformed(batch.malformed)).await;
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
            self.step(&mut reads, input).await;
        }
    }

    /// After a panic: what is in the index is not followed any more, and not to be relied on.
    pub(super) fn start_over(&self) {
        let loaded = self.machine.lock().start_over();
        for whose in loaded {
            if self.is_in_place(&whose) {
                self.sink.lapse(whose.slot);
            }
        }
    }

    async fn step(&self, reads: &mut Reads, input: Input) {
        let now = self.clock.now();
        let mut actions = self.machine.lock().step(now, input);
        // What the index did not take is told to the machine at once, so that it does not count on it.
        while !actions.is_empty() {
            let mut untaken = Vec::new();
            for action in actions {
                untaken.extend(self.perform(reads, now, action).await);
            }
            actions = Vec::new();
            for input in untaken {
                actions.extend(self.machine.lock().step(now, input));
            }
        }
        if self.machine.lock().first_synced() {
            self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    /// Does one thing; what the machine has to know where the index did not take it.
    async fn perform(&self, reads: &mut Reads, now: Instant, action: Action) -> Option<Input> {
        match action {
            Action::Load(whose, content) => {
                let blocks = content.gpu.len() + content.other_tiers.len();
                self.enter(whose, blocks, |sink, slot| sink.load(slot, content)).await
            }
            Action::Change(whose, changes) => {
                self.enter(whose, changes.len(), move |sink, slot| sink.change(slot, &changes)).await
            }
            Action::SetCompleteness(whose, completeness) => {
                let set = move |sink: &dyn MirrorSink, slot| {
                    sink.set_completeness(slot, completeness);
                    true
                };
                self.enter(whose, 0, set).await
            }
            Action::Lapse(whose) => {
                // Where it is not its slot any more there is nothing left to forget.
                if self.is_in_place(&whose) {
                    self.sink.lapse(whose.slot);
                }
                None
            }
            Action::Resync(names) => {
                let (redis, number, limit) = (self.redis.clone(), self.number, self.call_limit);
                let resyncs = Arc::clone(&self.resyncs);
                reads.tasks.spawn(async move {
                    let _turn = resyncs.acquire_owned().await;
                    let read = load(&redis, number, names.clone(), limit);
                    let broken = |_| names.into_iter().map(|name| (name, Err(LoadFault::Broken))).collect();
                    Input::Loaded(AssertUnwindSafe(read).catch_unwind().await.unwrap_or_else(broken))
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
    /// Many blocks are entered where waiting is allowed; nothing else of this stream is done meanwhile.
    async fn enter(
        &self,
        whose: Whose,
        blocks: usize,
        enter: impl FnOnce(&dyn MirrorSink, OwnerSlot) -> bool + Send + 'static,
    ) -> Option<Input> {
        if !self.is_in_place(&whose) {
            return Some(Input::Refused(whose.name));
        }
        let slot = whose.slot;
        let taken = if blocks <= QUICK_BLOCKS {
            enter(&*self.sink, slot)
        } else {
            let sink = Arc::clone(&self.sink);
            // One that panicked took nothing, as far as anybody knows.
            tokio::task::spawn_blocking(move || enter(&*sink, slot)).await.unwrap_or(false)
        };
        (!taken).then_some(Input::NotTaken(whose.name))
    }

    fn is_in_place(&self, whose: &Whose) -> bool {
        self.sink.slot(&whose.id, &whose.model) == Some(whose.slot)
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
