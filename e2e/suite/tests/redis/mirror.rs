//! One view through Redis, on good days and on the agents' and engines' bad ones.

use std::time::Duration;

use kvasir_agent::Layout;
use kvasir_coordination::testing::TestServer;
use kvasir_mock_engine::{EngineConfig, EventsConfig, Fault};
use kvasir_suite::router::MODEL;

use crate::fleet::{Agent, Fleet, complete, credit, id_of, quick, router, truth, until};

/// Two routers know the same, and a third one knows it with its first request.
#[tokio::test(flavor = "multi_thread")]
async fn every_router_sends_a_prompt_to_its_holder_also_right_after_its_start() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    let second = router(&fleet.engines, &fleet.redis).await;
    fleet.fill(4).await;
    fleet.until_true("the first router knows").await;
    until("the second router knows", || crate::fleet::is_true(&second, &fleet.engines, fleet.seeds)).await;
    let third = router(&fleet.engines, &fleet.redis).await;
    for (name, router) in [("first", &fleet.router), ("second", &second), ("third", &third)] {
        for seed in 1..=fleet.seeds {
            let holder = fleet.engines.iter().find(|engine| truth(engine, seed) == 320).map(id_of);
            let by = complete(router.inference, seed).await.unwrap();
            assert_eq!(Some(by), holder, "{name} router, prompt {seed}");
        }
    }
    let page = third.metrics_page();
    assert!(page.contains("kvasir_redis_connected 1"), "{page}");
    assert!(page.contains("state=\"synced\"} 1"), "{page}");
    for stats in third.gateway.index.stats() {
        assert!(stats.mirrored && stats.source.contains("Redis"), "{stats:?}");
    }
}

/// What an engine evicts leaves every router's view, and nothing else does.
#[tokio::test(flavor = "multi_thread")]
async fn churn_in_small_caches_ends_in_the_engines_truth() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&EngineConfig { kv_blocks: 100, ..quick() }, redis.settings()).await;
    for _ in 0..3 {
        fleet.fill(6).await;
        fleet.until_true("the view is the engines' truth").await;
    }
    let held: u32 = (1..=fleet.seeds).map(|seed| truth(&fleet.engines[0], seed)).sum();
    assert!(held > 0 && held < 320 * fleet.seeds / 2, "{held} tokens: nothing was evicted");
}

/// STL-05, KVE-06: an agent that was killed goes on from its saved state, though the engine's buffer begins much later.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_loses_nothing_even_beyond_the_replay_buffer() {
    let redis = TestServer::start().await;
    let events = EventsConfig { replay_buffer: 40, ..EventsConfig::default() };
    let mut fleet = Fleet::start(&EngineConfig { events: Some(events), ..quick() }, redis.settings()).await;
    fleet.fill(60).await;
    fleet.until_true("the view is whole").await;
    // The state is saved several times a second.
    let saved = format!("*:resume:*:{}#0:*", fleet.engines[0].address().port());
    redis.wait_for(&["KEYS", &saved], |keys| !keys.is_empty()).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    fleet.agents[0].take().unwrap().kill();
    complete(fleet.engines[0].address(), 1).await.unwrap();
    let before = credit(&fleet.router, &fleet.engines[0], 1);
    assert_eq!(before, 320, "the owner stays while its lease lasts");
    fleet.restart_agent(0).await;
    fleet.fill(2).await;
    fleet.until_true("the view is whole again").await;
}

/// A restarted engine is emptied in every view, and fills again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_engine_has_no_credit_behind_a_living_agent() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(3).await;
    fleet.until_true("the view is whole").await;
    fleet.engines[0].restart().await.unwrap();
    fleet.until_true("the restarted engine is empty").await;
    assert_eq!(credit(&fleet.router, &fleet.engines[0], 1), 0);
    fleet.fill(3).await;
    fleet.until_true("what it holds now is known").await;
}

/// A second agent of the same owner stands by, and takes over when the first is killed.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_agents_one_writes_and_the_other_takes_over() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    let second = Agent::start(&fleet.engines[0], fleet.redis.clone(), Layout::Native).await;
    fleet.fill(3).await;
    fleet.until_true("the view is whole").await;
    fleet.agents[0].take().unwrap().kill();
    fleet.fill(3).await;
    fleet.until_true("the second agent writes").await;
    second.stop().await;
}

/// A batch that is lost on its way is asked for again; one out of reach ends the credit.
#[tokio::test(flavor = "multi_thread")]
async fn lost_events_are_repaired_or_forgotten() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(2).await;
    fleet.until_true("the view is whole").await;
    for replayable in [true, false] {
        fleet.engines[0].set_fault(Fault::DropEvents { batches: 1, replayable }).await;
        fleet.fill(1).await;
        fleet.fill(2).await;
        until("nothing is credited that is not there", || {
            (1..=fleet.seeds).all(|seed| {
                fleet.engines.iter().all(|engine| credit(&fleet.router, engine, seed) <= truth(engine, seed))
            })
        })
        .await;
        let newest = fleet.seeds - 1;
        until("the newest prompt is known", || credit(&fleet.router, &fleet.engines[0], newest) == 320).await;
    }
}

/// An engine of another model behind the same address is not taken for ours.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_another_model_is_left_alone() {
    let redis = TestServer::start().await;
    let mut fleet = Fleet::start(&quick(), redis.settings()).await;
    fleet.fill(1).await;
    fleet.until_true("the view is whole").await;
    let mut settings = kvasir_suite::router::settings(&[fleet.engines[0].url()]).unwrap();
    settings.redis = Some(fleet.redis.clone());
    settings.models[0].served_name = Some("another-model".into());
    settings.coordination = Some(kvasir_settings::CoordinationMode::Mirror);
    let other = kvasir_suite::router::Router::start(settings).await.unwrap();
    until("the other router reads Redis", || other.metric("kvasir_redis_connected") == Some(1.0)).await;
    let mut looks = 0;
    // Longer than the second between two looks at Redis.
    until("nothing of it is taken, or shown", || {
        looks += 1;
        let stats = other.gateway.index.stats();
        assert!(stats.iter().all(|stats| stats.blocks == 0 && !stats.mirrored), "{MODEL}: {stats:?}");
        assert!(!other.metrics_page().contains("state=\"synced\"} 1"));
        looks > 600
    })
    .await;
}
