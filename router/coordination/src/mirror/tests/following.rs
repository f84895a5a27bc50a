//! Good days: from the start, from a snapshot, through restarts of engines, agents and routers.

use bytes::Bytes;
use kvasir_core::{BlockSize, Completeness, HeldOn};

use super::fleet::{Agent, Router, endpoint, hash, keys, quick_mirror, quick_publisher, until};
use crate::key;
use crate::mirror::{Mirror, OwnerState};
use crate::publish::{PublisherOptions, PublisherState, load_resume_state};
use crate::testing::TestServer;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_followed_from_an_empty_owner() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let router = Router::start(&redis, 3, quick_mirror());
    router.mirror.first_sync().await;
    assert!(!Mirror::has_native_data(&redis, LIMIT).await.unwrap());
    let agent = Agent::start(&redis, 3, quick_publisher());
    router.has(&agent.journal, 0..3).await;
    for round in 0..20 {
        for owner in 0..3 {
            agent.journal.store(owner, round * 100..round * 100 + 90);
            agent.journal.evict(owner, (round * 100).saturating_sub(50)..round * 100);
            agent.journal.change(owner, hash(round), HeldOn::OtherTier, round % 3 != 0);
        }
        router.has(&agent.journal, 0..3).await;
    }
    let known = router.index.known(1);
    assert_eq!((known.completeness, known.block_size), (Some(Completeness::Exact), BlockSize::new(16)));
    // One load at the start; everything else came as deltas.
    assert_eq!((known.loads, known.lapses), (1, 0));
    let status = router.status(1).unwrap();
    assert_eq!((status.state, status.gaps, status.adapters.len()), (OwnerState::Synced, 0, 1));
    assert!(status.lease_left_ms > 0 && status.lease_left_ms <= 1000, "{status:?}");
    until(|| router.status(1).is_some_and(|status| status.seq == agent.status(1).seq)).await;
    assert_eq!(router.status(1).unwrap().epoch, Some(agent.status(1).epoch));
    assert!(Mirror::has_native_data(&redis, LIMIT).await.unwrap());
    assert!(router.mirror.publishes(&endpoint(2)) && !router.mirror.publishes(&endpoint(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_router_starts_from_chunks_and_deltas() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, PublisherOptions { fold_after: LIMIT * 100, ..quick_publisher() });
    agent.journal.store(0, 0..20_000);
    agent.journal.store(1, 0..10);
    until(|| agent.status(0).state == PublisherState::Following && agent.status(0).unconfirmed == 0).await;
    // These stay deltas: the chunks are not brought up to date before that is due.
    agent.journal.evict(0, 5_000..6_000);
    agent.journal.change(1, hash(3), HeldOn::OtherTier, true);
    until(|| agent.status(0).seq >= 2 && agent.status(1).seq >= 1).await;
    let router = Router::start(&redis, 2, quick_mirror());
    router.mirror.first_sync().await;
    assert_eq!(router.index.known(0).sets, agent.journal.sets(0));
    assert_eq!(router.index.known(1).sets, agent.journal.sets(1));
    agent.journal.store(0, 20_000..20_100);
    router.has(&agent.journal, 0..2).await;
    assert_eq!(router.index.known(0).loads, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_are_folded_and_grow_while_readers_start() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    let first = Router::start(&redis, 1, quick_mirror());
    until(|| agent.status(0).state == PublisherState::Following).await;
    let chunks = agent.status(0).chunks;
    for round in 0..12u64 {
        agent.journal.store(0, round * 4_000..(round + 1) * 4_000);
        let late = Router::start(&redis, 1, quick_mirror());
        late.has(&agent.journal, 0..1).await;
    }
    until(|| agent.status(0).folds > 1 && agent.status(0).chunks > chunks).await;
    first.has(&agent.journal, 0..1).await;
    assert_eq!((first.index.known(0).loads, agent.status(0).snapshots), (1, 1));
    // The floor follows, so that a late reader needs no delta.
    let (_, meta) = keys(0);
    server.wait_for(&["HMGET", &meta, "floor", "seq"], |parts| parts[0] == parts[1]).await;
    let late = Router::start(&redis, 1, quick_mirror());
    late.has(&agent.journal, 0..1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_engine_is_empty_at_once() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    let router = Router::start(&redis, 1, quick_mirror());
    agent.journal.store(0, 0..1000);
    router.has(&agent.journal, 0..1).await;
    let epoch = router.status(0).unwrap().epoch;
    agent.journal.restart_engine(0);
    agent.journal.store(0, 500..520);
    router.has(&agent.journal, 0..1).await;
    assert_ne!(router.status(0).unwrap().epoch, epoch);
    agent.journal.set_completeness(0, Completeness::Partial);
    until(|| router.index.known(0).completeness == Some(Completeness::Partial)).await;
    agent.journal.set_completeness(0, Completeness::Exact);
    until(|| router.index.known(0).completeness == Some(Completeness::Exact)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_takes_over_at_once_and_keeps_its_state() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let long = PublisherOptions { lease: LIMIT * 10, ..quick_publisher() };
    let agent = Agent::start(&redis, 1, long);
    let router = Router::start(&redis, 1, quick_mirror());
    agent.journal.store(0, 0..100);
    router.has(&agent.journal, 0..1).await;
    let state = Bytes::from(vec![7u8; 600_000]);
    assert_eq!(load_resume_state(&redis, &endpoint(0), LIMIT).await, Ok(None));
    agent.publisher.set_resume_state(&endpoint(0), state.clone()).unwrap();
    server.wait_for(&["HEXISTS", &keys(0).1, "resume"], |parts| parts == ["1"]).await;
    // The last changes go out although the agent ends right after them.
    agent.journal.store(0, 100..110);
    let journal = std::sync::Arc::clone(&agent.journal);
    agent.stop().await;
    router.has(&journal, 0..1).await;
    assert_eq!(load_resume_state(&redis, &endpoint(0), LIMIT).await, Ok(Some(state)));

    let again = Agent::with(&redis, journal, long, std::sync::Arc::new(kvasir_core::SystemClock));
    // A lease of twenty seconds is not waited for.
    until(|| again.status(0).state == PublisherState::Following).await;
    again.journal.store(0, 200..220);
    router.has(&again.journal, 0..1).await;
    assert_eq!(router.index.known(0).lapses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_wanted_is_listed_and_left_alone() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    agent.journal.store(0, 0..10);
    agent.journal.store(1, 0..10);
    let router = Router::start(&redis, 1, quick_mirror());
    router.has(&agent.journal, 0..1).await;
    until(|| router.state(1) == Some(OwnerState::Unwanted)).await;
    assert!(router.mirror.publishes(&endpoint(1)));
    // Wanted later, and not any more.
    router.index.want(1, true);
    router.has(&agent.journal, 0..2).await;
    router.index.want(1, false);
    until(|| router.state(1) == Some(OwnerState::Unwanted)).await;
    agent.journal.store(1, 10..20);
    agent.journal.store(0, 10..20);
    router.has(&agent.journal, 0..1).await;
    assert_eq!(router.index.known(1).lapses, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_expiry_are_as_documented() {
    let server = TestServer::start().await;
    let redis = server.redis().await;
    let agent = Agent::start(&redis, 1, quick_publisher());
    agent.journal.store(0, 0..10);
    until(|| agent.status(0).state == PublisherState::Following && agent.status(0).unconfirmed == 0).await;
    let (stream, meta) = keys(0);
    let head = server.ask(&["HMGET", &meta, "schema", "model", "engine", "block_size", "adapters"]).await;
    assert_eq!(head, ["1", "m", "vllm", "16", r#"["lora"]"#]);
    server.wait_for(&["TTL", &key::store(stream)], |parts| parts[0] == "3600").await;
    for key in server.ask(&["KEYS", "*"]).await {
        assert!(key.starts_with(&format!("kvasir:1:{{kv{stream:02}}}:")), "{key}");
        let left: i64 = server.ask(&["TTL", &key]).await[0].parse().unwrap();
        assert!(left > 0, "{key} does not expire");
    }
}
