//! The followers of one engine's ranks. One that panics is started again, and what it knew is forgotten.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{Clock, Completeness, EndpointId, OwnerSlot};
use kvasir_kvcache::{EventTap, FollowSetup, Index, KvEventsSource, SavedOwner, follow_with};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Before a follower is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// The running followers of one engine. Dropped, they end at once.
pub(super) struct Followed {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// What one follower works on.
pub(super) struct Rank {
    pub(super) id: EndpointId,
    pub(super) slot: OwnerSlot,
    pub(super) source: KvEventsSource,
    pub(super) index: Arc<Index>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tap: Option<Arc<dyn EventTap>>,
}

impl Followed {
    /// Nobody yet; all end with `stop`.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: JoinSet::new() }
    }

    /// Follows a rank, which may go on from what an earlier agent knew.
    pub(super) fn start(&mut self, rank: Rank, resume_from: Option<SavedOwner>) {
        self.tasks.spawn(rank.keep_following(resume_from, self.stop.clone()));
    }

    /// Ends them, and waits for it.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Rank {
    async fn keep_following(self, mut resume_from: Option<SavedOwner>, stop: CancellationToken) {
        loop {
            let setup = FollowSetup { tap: self.tap.clone(), resume_from: resume_from.take() };
            let task = follow_with(
                Arc::clone(&self.index),
                self.slot,
                self.source.clone(),
                Arc::clone(&self.clock),
                stop.clone(),
                setup,
            );
            match AbortOnDropHandle::new(task).await {
                Err(error) if error.is_panic() => self.forget(),
                _ => return,
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Nobody knows how much of the last batch was entered.
    fn forget(&self) {
        tracing::error!(owner = %self.id, "the engine's events could not be taken in; all is forgotten and read anew");
        self.index.reset(self.slot);
        self.index.set_completeness(self.slot, Completeness::Partial);
        if let Some(tap) = &self.tap {
            tap.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kvasir_core::SystemClock;
    use kvasir_kvcache::event::Batch;
    use kvasir_kvcache::follow::Link;

    use super::*;
    use crate::testing::{FakeEngine, eventually};

    /// Panics with its third batch.
    #[derive(Default)]
    struct Clumsy {
        applied: AtomicUsize,
        resets: AtomicUsize,
    }

    impl EventTap for Clumsy {
        fn applied(&self, _batch: &Batch) {
            assert_ne!(self.applied.fetch_add(1, Ordering::SeqCst), 2, "the panic of this test");
        }

        fn reset(&self) {
            self.resets.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_follower_that_panics_begins_anew() {
        let engine = FakeEngine::start().await;
        engine.store(0..2);
        engine.store(2..4);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let index = Arc::new(Index::new(Arc::clone(&clock)));
        let slot = OwnerSlot(0);
        index.register(slot, &"served".into(), "test").unwrap();
        let tap = Arc::new(Clumsy::default());
        let rank = Rank {
            id: EndpointId::new("ns", "pod", engine.port(), 0),
            slot,
            source: engine.source(),
            index: Arc::clone(&index),
            clock,
            tap: Some(Arc::clone(&tap) as _),
        };
        let mut followed = Followed::new(CancellationToken::new());
        followed.start(rank, None);
        let blocks = || index.stats()[0].blocks;
        eventually("the first batches are known", async || blocks() == 4).await;
        engine.store(4..5);
        eventually("all is forgotten", async || index.stats()[0].resets == 1).await;
        eventually("all is read anew", async || {
            let stats = index.stats().remove(0);
            stats.blocks == 5
                && stats.completeness == Completeness::Exact
                && stats.follower.link == Link::Following
        })
        .await;
        assert_eq!((tap.applied.load(Ordering::SeqCst), tap.resets.load(Ordering::SeqCst)), (6, 1));
        followed.end().await;
        assert_eq!(index.stats()[0].follower.link, Link::None);
    }
}
