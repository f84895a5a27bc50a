//! One engine's ranks, published: begun when what they hold is known, ended with their last changes sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_coordination::publish::PublishedOwner;
use kvasir_coordination::{Publisher, PublisherOptions, PublisherStatus, Redis};
use kvasir_core::{Clock, EndpointId, OwnerJournal, OwnerSlot};
use kvasir_kvcache::Index;
use kvasir_kvcache::follow::Link;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether an engine's history has been read.
const LOOK: Duration = Duration::from_millis(20);

/// Longest end of a publisher: its last changes, its leases.
const ENDING: Duration = Duration::from_millis(2500);

/// Longest time for resume states before that.
const LAST_STATES: Duration = Duration::from_millis(500);

/// What every engine is published with.
#[derive(Clone)]
pub struct Publishing {
    redis: Redis,
    index: Arc<Index>,
    options: PublisherOptions,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Publishing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publishing")
            .field("redis", &self.redis)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Publishing {
    /// Publishes from `index` into `redis`.
    pub fn new(redis: Redis, index: Arc<Index>, lease: Duration, clock: Arc<dyn Clock>) -> Self {
        let options = PublisherOptions { lease, ..PublisherOptions::default() };
        Self { redis, index, options, clock }
    }

    /// Publishes an engine's ranks from now on, into `desk`.
    pub(crate) fn begin(&self, owners: Vec<PublishedOwner>, desk: &PublisherDesk) {
        let stop = CancellationToken::new();
        let publisher = Publisher::start(
            &self.redis,
            Arc::clone(&self.index) as Arc<dyn OwnerJournal>,
            owners,
            self.options,
            Arc::clone(&self.clock),
            &stop,
        );
        *desk.0.lock() = Some(Running { publisher, stop });
    }
}

/// Waits until the histories of these owners have been read, at most for `longest`. Until then what an earlier agent
/// published stands: publishing at once would show a warm engine as an empty one.
pub(crate) async fn read(index: &Index, slots: &[OwnerSlot], longest: Duration) {
    let is_read =
        |slot: &OwnerSlot| index.follower_status(*slot).is_none_or(|status| status.link == Link::Following);
    let all = async {
        while !slots.iter().all(is_read) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let _ = tokio::time::timeout(longest, all).await;
}

/// One engine's publisher, while there is one.
#[derive(Debug, Default)]
pub struct PublisherDesk(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    publisher: Publisher,
    stop: CancellationToken,
}

impl PublisherDesk {
    /// How each rank does.
    pub fn status(&self) -> Vec<PublisherStatus> {
        self.0.lock().as_ref().map(|running| running.publisher.status()).unwrap_or_default()
    }

    /// Whether there is one.
    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Hands in what a restarted agent goes on from. False when it is too large.
    pub(crate) fn set_resume_state(&self, owner: &EndpointId, state: Bytes) -> bool {
        match &*self.0.lock() {
            Some(running) => running.publisher.set_resume_state(owner, state).is_ok(),
            None => true,
        }
    }

    /// Whether a rank is heard; one that is not is not vouched for, so that its lease ends.
    pub(crate) fn set_heard(&self, owner: &EndpointId, heard: bool) {
        if let Some(running) = &*self.0.lock() {
            running.publisher.set_heard(owner, heard);
        }
    }

    /// Sends the last changes and gives the leases back, within three seconds. `states` are the bytes of resume states that
    /// were just handed in: a publisher that ends does not wait for them, so they get a moment before, by their size (it
    /// sends a megabyte every few milliseconds). An older state that stays in their place is of use too.
    pub(crate) async fn close(&self, states: usize) {
        if states > 0 && self.is_open() {
            let moment = Duration::from_millis(100 + states as u64 / (64 << 10));
            tokio::time::sleep(moment.min(LAST_STATES)).await;
        }
        let Some(running) = self.0.lock().take() else { return };
        running.stop.cancel();
        if tokio::time::timeout(ENDING, running.publisher.finished()).await.is_err() {
            tracing::warn!(
                "the last changes could not be published in time; the leases run out by themselves"
            );
        }
    }
}
