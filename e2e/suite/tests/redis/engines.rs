//! What engines do that no event tells, and events that come twice or in another order.

use std::time::Duration;

use kvasir_agent::Layout;
use kvasir_coordination::testing::TestServer;
use kvasir_core::Completeness;
use kvasir_mock_engine::Fault;

use crate::fleet::{Agent, Fleet, complete, credit, quick, truth, until};

/// How long it may take until a router sees that an engine sleeps: ten times its interval of scraping.
const SLEEP_SEEN: Duration = Duration::from_secs(1);

/// A mirrored engine of a fleet whose view is whole, asleep, and not credited any more.
async fn put_to_sleep(fleet: &Fleet) {
    assert!((1..=fleet.seeds).any(|seed| credit(&fleet.router, &fleet.engines[0], seed) > 0));
    assert!(fleet.engines[0].sleep());
    let forgotten = || (1..=fleet.seeds).all(|seed| credit(&fleet.router, &fleet.engines[0], seed) == 0);
    let seen = until("an engine that sleeps holds nothing", forgotten).await;
    assert!(seen < SLEEP_SEEN, "{seen:?}");
}

/// Waits until the first engine's agent says that it holds nothing.
async fn until_published_empty(redis: &TestServer, fleet: &Fleet) {
    let metas = redis.ask(&["KEYS", &format!("*:meta:*:{}#0", fleet.engines[0].address().port())]).await;
    redis.wait_for(&["HGET", &metas[0], "blocks"], |answer| answer == ["0"]).await;
}

/// KVE-08: both the agent and the router see that the engine sleeps, in either order, and go on when it is awake.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_sleeps_is_empty_in_the_mirror_and_heard_again() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(3).await;
    fleet.until_true("the view is whole").await;
    for _ in 0..2 {
        put_to_sleep(&fleet).await;
        until_published_empty(&redis, &fleet).await;
        assert!(fleet.is_true(), "the other engine is not concerned");
        fleet.engines[0].wake_up();
        fleet.fill(2).await;
        fleet.until_true("what it holds since it is awake is known").await;
        until("the mirror has it", || fleet.is_mirrored()).await;
        for stats in fleet.router.gateway.index.stats() {
            assert_eq!(stats.completeness, Completeness::Exact, "{stats:?}");
        }
    }
}

/// What Redis still says of an engine that sleeps is not believed, and an agent that comes meanwhile does not say it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_sleeps_without_its_agent_is_not_credited() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(3).await;
    fleet.until_true("the view is whole").await;
    fleet.agents[0].take().unwrap().kill();
    put_to_sleep(&fleet).await;
    let mut looks = 0;
    // Longer than a router's refresh, shorter than the rest of the lease.
    until("nothing of it comes back", || {
        looks += 1;
        assert_eq!(credit(&fleet.router, &fleet.engines[0], 1), 0);
        looks > 500
    })
    .await;
    // Its history and what the agent before it saved are of the time before the sleep.
    fleet.restart_agent(0).await;
    until_published_empty(&redis, &fleet).await;
    fleet.engines[0].wake_up();
    fleet.fill(2).await;
    fleet.until_true("what it holds since it is awake is known").await;
}

/// KVE-12, KVE-04: batches that come twice, in another order or not at all leave the view as the engines' truth.
#[tokio::test(flavor = "multi_thread")]
async fn disturbed_events_end_in_the_engines_truth() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(1).await;
    fleet.until_true("the view is whole").await;
    for fault in [
        Fault::DuplicateEvents { batches: 3 },
        Fault::ReorderEvents { pairs: 1 },
        Fault::DropEvents { batches: 2, replayable: true },
        Fault::DuplicateEvents { batches: 1 },
        Fault::ReorderEvents { pairs: 2 },
    ] {
        fleet.engines[0].set_fault(fault.clone()).await;
        fleet.fill(5).await;
        fleet.until_true(&format!("{fault:?} is mended")).await;
        assert_eq!(truth(&fleet.engines[0], 1), 320, "nothing was evicted");
    }
}

/// STL-01: an agent that lives and does not hear its engine vouches for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_beside_a_living_agent_lapses() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(2).await;
    fleet.until_true("the view is whole").await;
    fleet.engines[0].stop().await;
    until("its blocks are gone", || {
        let stats = fleet.router.gateway.index.stats();
        stats.iter().filter(|stats| stats.mirrored && stats.blocks > 0).count() == 1
    })
    .await;
    fleet.engines[0].restart().await.unwrap();
    complete(fleet.engines[0].address(), 1).await.unwrap();
    fleet.until_true("the engine that came back is known").await;
    // And by another agent too, that never knew the life before.
    let second = Agent::start(&fleet.engines[0], fleet.redis.clone(), Layout::Native).await;
    fleet.agents[0].take().unwrap().kill();
    fleet.fill(1).await;
    fleet.until_true("the second agent goes on").await;
    second.stop().await;
}
