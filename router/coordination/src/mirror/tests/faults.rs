//! Bad days: stores that lose things, are full, slow or away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::SystemClock;

use super::fleet::{Agent, Router, endpoint, hash, keys, quick_mirror, quick_publisher, until};
use crate::connection::Redis;
use crate::key;
use crate::mirror::OwnerState;
use crate::publish::{PublisherOptions, PublisherState};
use crate::testing::{Proxy, TestServer, Weather, connected, settings_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deltas_that_were_cut_off_are_a_gap_and_it_is_repaired() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..10);
    let router = Router::start(&connected(settings_of(proxy.node())).await, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    proxy.set(Weather::Cut);
    for round in 1..5u64 {
        let seq = agent.status(0).seq;
        agent.journal.store(0, round * 100..round * 100 + 50);
        until(|| agent.status(0).seq > seq).await;
    }
    let (stream, _) = keys(0);
    server.ask(&["XTRIM", &key::deltas(stream), "MAXLEN", "0"]).await;
    proxy.set(Weather::Fair);
    // What is in no chunk and in no delta any more comes with the next fold.
    router.has(&agent.journal, 0..1).await;
    until(|| router.state(0) == Some(OwnerState::Synced)).await;
    let status = router.status(0).unwrap();
    assert!(status.gaps >= 1 && status.loads == 2, "{status:?}");
    assert_eq!(agent.status(0).snapshots, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_store_is_filled_again() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 4, quick_publisher());
    (0..4).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 4, quick_mirror());
    router.has(&agent.journal, 0..4).await;
    server.ask(&["FLUSHALL"]).await;
    (0..4).for_each(|owner| agent.journal.store(owner, 500..510));
    router.has(&agent.journal, 0..4).await;
    until(|| (0..4).all(|owner| agent.status(owner).state == PublisherState::Following)).await;
    until(|| router.mirror.status().emptied >= 1).await;
    for owner in 0..4 {
        let known = router.index.known(owner);
        // What was known stayed until the new content was there.
        assert_eq!(known.lapses, 0, "{owner}");
        assert_eq!(agent.status(owner).losses, 1);
    }
    // An owner whose agent does not come back lapses.
    drop(agent.publisher);
    server.ask(&["FLUSHALL"]).await;
    until(|| (0..4).all(|owner| router.index.known(owner).lapses == 1)).await;
    assert!(!router.mirror.publishes(&endpoint(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_killed_and_starts_empty_is_filled_again() {
    let mut server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    server.kill();
    (0..2).for_each(|owner| agent.journal.store(owner, 500..510));
    until(|| agent.status(0).failures > 0 && !router.mirror.status().connected).await;
    server.restart().await;
    (0..2).for_each(|owner| agent.journal.evict(owner, 0..100));
    router.has(&agent.journal, 0..2).await;
    assert_eq!((router.index.known(0).lapses, router.index.known(1).lapses), (0, 0));
    assert!(agent.status(0).last_error.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_costs_nothing_that_was_known() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    server.pause();
    // Two leases.
    let paused = Instant::now();
    until(|| paused.elapsed() >= Duration::from_secs(2)).await;
    agent.journal.store(0, 500..510);
    assert_eq!(router.index.known(0).sets.0.len(), 500);
    server.resume();
    router.has(&agent.journal, 0..2).await;
    until(|| (0..2).all(|owner| router.state(owner) == Some(OwnerState::Synced))).await;
    assert_eq!((router.index.known(0).lapses, router.index.known(1).lapses), (0, 0));
    assert_eq!((agent.status(0).losses, agent.status(0).fenced), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_may_come_late() {
    let mut server = TestServer::start().await;
    let port = server.node();
    server.kill();
    let redis = Redis::new(settings_of(port)).unwrap();
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..500);
    let router = Router::start(&redis, 1, quick_mirror());
    router.mirror.first_sync().await;
    assert_eq!(router.mirror.status().last_contact_ms, None);
    server.restart().await;
    router.has(&agent.journal, 0..1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_only_slow() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    proxy.set(Weather::Slow(Duration::from_millis(200)));
    let redis = connected(settings_of(proxy.node())).await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    for round in 1..4 {
        agent.journal.store(0, round * 500..round * 500 + 100);
        router.has(&agent.journal, 0..2).await;
    }
    let known = router.index.known(0);
    assert_eq!((known.loads, known.lapses, agent.status(0).losses), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_changes_than_are_kept_are_published_as_a_whole() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let options = PublisherOptions { most_changes: 100, ..quick_publisher() };
    let agent = Agent::start(&redis, 1, options);
    agent.journal.store(0, 0..50);
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    agent.journal.store(0, 1000..3000);
    router.has(&agent.journal, 0..1).await;
    until(|| agent.status(0).overflows >= 1).await;
    agent.journal.evict(0, 1000..1050);
    router.has(&agent.journal, 0..1).await;
    assert_eq!(router.index.known(0).lapses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_memory_is_waited_for() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..500));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // Owner 0 changes and cannot say so; owner 1 does not change, and its lease is renewed.
    agent.journal.store(0, 500..600);
    until(|| agent.status(0).last_error.as_ref().is_some_and(|error| error.contains("memory is full"))).await;
    until(|| router.index.known(0).lapses == 1).await;
    assert_eq!(router.state(1), Some(OwnerState::Synced));
    assert_eq!(router.index.known(1).lapses, 0);
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    router.has(&agent.journal, 0..2).await;
    assert_eq!((agent.status(0).losses, agent.status(1).losses), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_that_was_evicted_is_an_owner_that_is_read_later() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..500);
    until(|| agent.status(0).state == PublisherState::Following && agent.status(0).blocks == 500).await;
    let chunks = async || server.ask(&["KEYS", "kvasir:1:*:snap:*"]).await;
    for chunk in chunks().await {
        server.ask(&["DEL", &chunk]).await;
    }
    let router = Router::start(&redis, 1, quick_mirror());
    until(|| router.status(0).is_some_and(|status| status.last_fault.is_some())).await;
    assert_eq!(router.state(0), Some(OwnerState::Resyncing));
    // Any change has the chunk written again.
    agent.journal.store(0, 500..501);
    router.has(&agent.journal, 0..1).await;
    assert_eq!(router.status(0).unwrap().last_fault, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_schema_is_left_alone_on_both_sides() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..10);
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    let (_, meta) = keys(0);
    server.ask(&["HSET", &meta, "schema", "2"]).await;
    until(|| router.state(0) == Some(OwnerState::OtherSchema)).await;
    let journal = Arc::clone(&agent.journal);
    agent.stop().await;
    let again = Agent::with(&redis, journal, quick_publisher(), Arc::new(SystemClock));
    until(|| again.status(0).state == PublisherState::OtherSchema).await;
    assert_eq!(server.ask(&["HGET", &meta, "schema"]).await, ["2"]);
    until(|| router.index.known(0).lapses == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_foreign_keys_are_not_looked_at() {
    let server = TestServer::start_with(&["--enable-debug-command", "yes"]).await;
    let redis = server.redis().await;
    server.ask(&["DEBUG", "POPULATE", "100000", "matrix:kv:block:m", "20"]).await;
    // Foreign things under our own names: none of them is touched, none of them stops us.
    let (stream, _) = keys(0);
    server
        .ask(&["ZADD", &key::owners(stream), "99999999999999", "no owner", "99999999999999", "a/b:1#0"])
        .await;
    server.ask(&["XADD", &key::deltas(stream), "*", "what", "ever"]).await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..500);
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    until(|| router.mirror.status().malformed > 0).await;
    server.ask(&["XADD", &key::deltas(stream), "*", "what", "ever"]).await;
    agent.journal.change(0, hash(1000), kvasir_core::HeldOn::OtherTier, true);
    router.has(&agent.journal, 0..1).await;
    assert_eq!((server.calls("keys").await, server.calls("scan").await), (0, 0));
    agent.stop().await;
    let foreign = server.ask(&["KEYS", "matrix:*"]).await.len();
    assert_eq!(foreign, 100_000);
}
