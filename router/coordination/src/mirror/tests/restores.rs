//! Servers that come back with what they held a while ago, and parts of our own that fail or are slow.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    BlockChange, Completeness, EndpointId, MirrorSink, ModelName, OwnerContent, OwnerSlot, SystemClock,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::fleet::{Agent, Journal, Router, endpoint, hash, keys, quick_mirror, quick_publisher, until};
use crate::mirror::{Mirror, OwnerState};
use crate::publish::{PublisherOptions, PublisherState};
use crate::testing::TestServer;

/// A number whose block is in this chunk of eight.
fn in_chunk(chunk: u64, from: u64) -> u64 {
    (from..).find(|number| hash(*number) >> 61 == chunk).expect("hashes are spread")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fold_that_a_restored_server_lost_is_noticed_without_any_change() {
    let mut server = TestServer::start().await;
    let redis = server.redis().await;
    let fold_after = Duration::from_secs(2);
    let journal = Arc::new(Journal::default());
    journal.add(0);
    journal.store(0, 0..20_000);
    let options = PublisherOptions { fold_after, ..quick_publisher() };
    let agent = Agent::with(&redis, journal, options, Arc::new(SystemClock));
    until(|| agent.status(0).state == PublisherState::Following).await;
    assert_eq!((agent.status(0).chunks, agent.status(0).seq), (8, 0));
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    // The server keeps the delta, and loses that the chunks have it.
    let (seq, folds) = (agent.status(0).seq, agent.status(0).folds);
    agent.journal.store(0, [in_chunk(1, 20_000)]);
    until(|| agent.status(0).seq > seq).await;
    server.ask(&["SAVE"]).await;
    assert_eq!(agent.status(0).folds, folds);
    until(|| agent.status(0).folds > folds).await;
    assert_eq!((agent.status(0).losses, agent.status(0).snapshots), (0, 1));
    server.kill();
    server.restart().await;
    until(|| agent.status(0).losses == 1 && agent.status(0).snapshots == 2).await;
    // Another chunk is folded: a reader has nothing but chunks to go by.
    let folds = agent.status(0).folds;
    agent.journal.store(0, [in_chunk(5, 20_000)]);
    until(|| agent.status(0).folds > folds).await;
    let (_, meta) = keys(0);
    server.wait_for(&["HMGET", &meta, "floor", "seq"], |parts| parts[0] == parts[1]).await;
    let late = Router::start(&redis, 1, quick_mirror());
    late.has(&agent.journal, 0..1).await;
    router.has(&agent.journal, 0..1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_that_a_restored_server_lost_are_published_anew() {
    let mut server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    until(|| (0..2).all(|owner| agent.status(owner).unconfirmed == 0)).await;
    server.ask(&["SAVE"]).await;
    agent.journal.evict(0, 0..100);
    router.has(&agent.journal, 0..2).await;
    server.kill();
    server.restart().await;
    until(|| agent.status(0).losses == 1 && agent.status(0).state == PublisherState::Following).await;
    for router in [router, Router::start(&redis, 2, quick_mirror())] {
        router.has(&agent.journal, 0..2).await;
        assert_eq!(router.index.known(1).lapses, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_index_lost_by_itself_is_loaded_again() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..500);
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    router.index.forget(0);
    agent.journal.store(0, 500..510);
    router.has(&agent.journal, 0..1).await;
    assert_eq!((router.index.known(0).loads, router.index.known(0).lapses), (2, 0));
    until(|| router.state(0) == Some(OwnerState::Synced)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_whose_engine_is_not_heard_lapses_and_comes_back() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    agent.publisher.set_heard(&endpoint(0), false);
    assert_eq!(agent.status(0).state, PublisherState::Unheard);
    until(|| router.index.known(0).lapses == 1 && !router.mirror.publishes(&endpoint(0))).await;
    assert_eq!((router.index.known(1).lapses, router.mirror.publishes(&endpoint(1))), (0, true));
    agent.publisher.set_heard(&endpoint(0), true);
    router.has(&agent.journal, 0..2).await;
    // The content was still there.
    assert_eq!((agent.status(0).snapshots, agent.status(0).losses), (1, 0));

    // Not heard for longer than a lease, and another agent hears it.
    agent.publisher.set_heard(&endpoint(0), false);
    let other = Agent::start(&redis, 1, quick_publisher());
    other.journal.store(0, 1000..1010);
    router.has(&other.journal, 0..1).await;
    agent.publisher.set_heard(&endpoint(0), true);
    until(|| agent.status(0).state == PublisherState::StandingBy).await;
    other.journal.store(0, 1010..1020);
    router.has(&other.journal, 0..1).await;
    assert_eq!(other.status(0).fenced, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_panics_is_begun_again() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..500);
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    router.index.panic_at_next_change(0);
    agent.journal.store(0, 500..510);
    router.has(&agent.journal, 0..1).await;
    // Nothing was relied on that nobody followed.
    assert_eq!((router.index.known(0).lapses, router.index.known(0).loads), (1, 2));
    assert!(router.mirror.status().first_synced);
    let epoch = agent.status(0).epoch;
    agent.journal.panic_at_next_look(0);
    agent.journal.store(0, 510..520);
    router.has(&agent.journal, 0..1).await;
    until(|| agent.status(0).state == PublisherState::Following).await;
    assert_ne!(agent.status(0).epoch, epoch);
}

/// An index that takes nothing in before it is told to.
struct Slow {
    begun: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
    may: Mutex<std::sync::mpsc::Receiver<()>>,
    taken: Mutex<Option<bool>>,
}

impl MirrorSink for Slow {
    fn slot(&self, _: &EndpointId, _: &ModelName) -> Option<OwnerSlot> {
        Some(OwnerSlot(0))
    }

    fn load(&self, _: OwnerSlot, _: OwnerContent) -> bool {
        if let Some(begun) = self.begun.lock().take() {
            let _ = begun.send(());
            let told = self.may.lock().recv_timeout(Duration::from_secs(10)).is_ok();
            *self.taken.lock() = Some(told);
        }
        true
    }

    fn change(&self, _: OwnerSlot, _: &[BlockChange]) -> bool {
        true
    }

    fn set_completeness(&self, _: OwnerSlot, _: Completeness) {}

    fn lapse(&self, _: OwnerSlot) {}
}

/// With one thread for everything that does not wait.
#[tokio::test]
async fn a_large_owner_is_entered_where_nobody_else_waits() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let journal = Arc::new(Journal::default());
    journal.add(0);
    journal.store(0, 0..10_000);
    let agent = Agent::with(&redis, journal, quick_publisher(), Arc::new(SystemClock));
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let (go, may) = std::sync::mpsc::channel();
    let sink =
        Arc::new(Slow { begun: Mutex::new(Some(begun)), may: Mutex::new(may), taken: Mutex::default() });
    let stop = CancellationToken::new();
    let mirror = Mirror::start(&redis, Arc::clone(&sink) as _, quick_mirror(), Arc::new(SystemClock), &stop);
    is_begun.await.unwrap();
    // This would not come while that waits, if they shared a thread.
    server.ask(&["PING"]).await;
    go.send(()).unwrap();
    until(|| sink.taken.lock().is_some()).await;
    assert_eq!(*sink.taken.lock(), Some(true));
    until(|| mirror.status().owners.iter().all(|owner| owner.state == OwnerState::Synced)).await;
    stop.cancel();
    drop(agent);
}
