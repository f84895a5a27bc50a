//! Load in flight that replicas tell each other.

use std::time::Duration;

use kvasir_coordination::testing::TestServer;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::SharedLoadMode;
use kvasir_suite::router::{Router, settings};

use crate::fleet::{complete, quick, until};

fn sharing(
    engines: &[Engine],
    redis: &TestServer,
    mode: SharedLoadMode,
    name: &str,
) -> kvasir_settings::Settings {
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let mut settings = settings(&urls).unwrap();
    settings.redis = Some(redis.settings());
    settings.shared_load = mode;
    settings.replica_name = Some(name.to_owned());
    settings.scheduler.scorers = vec![("least-request".to_owned(), 1.0)];
    settings
}

fn in_flight(router: &Router) -> (u32, u32) {
    let endpoints = router.gateway.state.endpoints();
    endpoints
        .iter()
        .fold((0, 0), |(all, peers), one| (all + one.load.in_flight, peers + one.load.peers_in_flight))
}

/// What one router sends, the other knows; what ends or dies leaves again.
#[tokio::test(flavor = "multi_thread")]
async fn a_peers_requests_count_until_they_end_or_the_peer_is_gone() {
    let redis = TestServer::start().await;
    let slow = EngineConfig { prefill_us_per_token: 3_000_000.0 / 321.0, ..quick() };
    let engine = Engine::start(slow).await.unwrap();
    let engines = [engine];
    let one = Router::start(sharing(&engines, &redis, SharedLoadMode::Auto, "one")).await.unwrap();
    let two = Router::start(sharing(&engines, &redis, SharedLoadMode::Auto, "two")).await.unwrap();
    let sent: Vec<_> = (1..=3).map(|seed| tokio::spawn(complete(one.inference, seed))).collect();
    until("the other router knows of three", || in_flight(&two) == (3, 3)).await;
    assert_eq!(in_flight(&one), (3, 0));
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
    until("they are over", || in_flight(&two) == (0, 0)).await;
}

/// A replica's last word lasts two seconds, also when Redis is gone with it.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_word_of_a_peer_does_not_last() {
    let mut redis = TestServer::start().await;
    let slow = EngineConfig { prefill_us_per_token: 30_000_000.0 / 321.0, ..quick() };
    let engines = [Engine::start(slow).await.unwrap()];
    let one = Router::start(sharing(&engines, &redis, SharedLoadMode::Native, "one")).await.unwrap();
    let two = Router::start(sharing(&engines, &redis, SharedLoadMode::Native, "two")).await.unwrap();
    let to = one.inference;
    let sent = tokio::spawn(complete(to, 1));
    until("the other router knows", || in_flight(&two).1 == 1).await;
    redis.kill();
    let took = until("the peer's word has ended", || in_flight(&two).1 == 0).await;
    assert!(took < Duration::from_secs(20), "{took:?}");
    sent.abort();
}

/// kthena's counters, where its routers keep them: theirs count here, ours there.
#[tokio::test(flavor = "multi_thread")]
async fn kthenas_counters_are_read_and_written_where_they_are() {
    let redis = TestServer::start().await;
    let slow = EngineConfig { prefill_us_per_token: 2_000_000.0 / 321.0, ..quick() };
    let engines = [Engine::start(slow).await.unwrap()];
    let key = "kthena:on-flight-requests";
    redis.ask(&["HSET", key, "default/127.0.0.1", "5"]).await;
    let router = Router::start(sharing(&engines, &redis, SharedLoadMode::Auto, "one")).await.unwrap();
    until("kthena's five count", || in_flight(&router) == (5, 5)).await;
    let sent = tokio::spawn(complete(router.inference, 1));
    redis.wait_for(&["HGET", key, "default/127.0.0.1"], |answer| answer == ["6"]).await;
    until("ours is told apart from theirs", || in_flight(&router) == (6, 5)).await;
    sent.await.unwrap().unwrap();
    redis.wait_for(&["HGET", key, "default/127.0.0.1"], |answer| answer == ["5"]).await;
    router.stop().await.unwrap();
    assert_eq!(redis.ask(&["HGET", key, "default/127.0.0.1"]).await, ["5"]);
}
