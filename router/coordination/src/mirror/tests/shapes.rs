//! A Cluster and a Sentinel.

use super::fleet::{Agent, Router, endpoint, keys, quick_mirror, quick_publisher, until};
use crate::key;
use crate::mirror::Mirror;
use crate::publish::{PublisherState, load_resume_state};
use crate::testing::{TestCluster, TestSentinel, connected};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_followed_while_slots_move() {
    let cluster = TestCluster::start(3).await;
    let redis = connected(cluster.settings()).await;
    let agent = Agent::start(&redis, 12, quick_publisher());
    (0..12).for_each(|owner| agent.journal.store(owner, 0..200));
    let router = Router::start(&redis, 12, quick_mirror());
    router.has(&agent.journal, 0..12).await;
    assert!(Mirror::has_native_data(&redis, LIMIT).await.unwrap());
    agent.publisher.set_resume_state(&endpoint(0), vec![1u8; 300_000].into()).unwrap();

    let (stream, _) = keys(0);
    let slot = cluster.slot(&key::deltas(stream)).await;
    let from = cluster.master_of(slot).await;
    cluster.move_slot(slot, from, (from + 1) % 3).await;
    (0..12).for_each(|owner| agent.journal.store(owner, 200..300));
    router.has(&agent.journal, 0..12).await;
    assert_eq!(cluster.master_of(slot).await, (from + 1) % 3);
    let mut state = None;
    while state.is_none() {
        state = load_resume_state(&redis, &endpoint(0), LIMIT).await.unwrap();
    }
    assert_eq!(state.unwrap().len(), 300_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_survived() {
    let sentinel = TestSentinel::start().await;
    let redis = connected(sentinel.settings()).await;
    let agent = Agent::start(&redis, 2, quick_publisher());
    (0..2).for_each(|owner| agent.journal.store(owner, 0..200));
    let router = Router::start(&redis, 2, quick_mirror());
    router.has(&agent.journal, 0..2).await;
    sentinel.fail_over().await;
    (0..2).for_each(|owner| agent.journal.store(owner, 200..300));
    sentinel.wait_for_master(sentinel.servers[1].port()).await;
    router.has(&agent.journal, 0..2).await;
    agent.journal.evict(0, 0..50);
    router.has(&agent.journal, 0..2).await;
    until(|| agent.status(0).state == PublisherState::Following).await;
}
