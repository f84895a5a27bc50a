//! Two routers over one Redis know what their users used at the other.

use kvasir_coordination::testing::TestServer;
use kvasir_settings::resolved::AdmissionSettings;
use kvasir_suite::eventually;
use kvasir_suite::router::Router;
use kvasir_suite::scripted::Scripted;

use crate::scene::{
    USER, ask, engine, engine_that_counts, occupy, one_at_a_time, order_of, outcome, serve, settings_of,
    waiting,
};

async fn router(engine: &Scripted, redis: &TestServer, name: &str) -> Router {
    let mut settings = settings_of(&[engine], AdmissionSettings::Fairness(one_at_a_time()));
    settings.redis = Some(redis.settings());
    settings.replica_name = Some(name.to_owned());
    Router::start(settings).await.unwrap()
}

/// Exchanges that went well so far.
fn exchanges(router: &Router) -> u64 {
    router.metric("kvasir_usage_exchanges_total").unwrap_or(0.0) as u64
}

async fn another_exchange(router: &Router) {
    let before = exchanges(router);
    eventually("two more exchanges", || exchanges(router) >= before + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_at_one_router_counts_at_the_other() {
    let redis = TestServer::start().await;
    let (there, here) = (engine_that_counts(10_000, 5_000).await, engine().await);
    let one = router(&there, &redis, "one").await;
    let two = router(&here, &redis, "two").await;
    eventually("each knows of the other", || exchanges(&one) > 0 && exchanges(&two) > 0).await;
    let used = occupy(&one, &there, &[(USER, "heavy")]).await;
    there.proceed();
    assert_eq!(outcome(used).await.0, 200);
    another_exchange(&one).await;
    another_exchange(&two).await;
    assert_eq!(two.metric("kvasir_usage_peers"), Some(1.0));
    let mut all = vec![occupy(&two, &here, &[(USER, "other")]).await];
    for (number, user) in ["heavy", "light"].into_iter().enumerate() {
        all.push(ask(&two, &[(USER, user)]));
        waiting(&two, number + 1).await;
    }
    serve(&here, 2).await;
    assert_eq!(order_of(&here, USER, 1), ["light", "heavy"]);
    for asked in all {
        assert_eq!(outcome(asked).await.0, 200);
    }
    let names = redis.ask(&["KEYS", "*"]).await.concat();
    assert!(!names.contains("heavy") && !names.contains("light"), "{names}: names stay here");
}

/// Without its Redis a router goes on with what it knows itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_gone_holds_nobody_up() {
    let mut redis = TestServer::start().await;
    let engine = engine().await;
    let router = router(&engine, &redis, "one").await;
    redis.kill();
    let running = occupy(&router, &engine, &[(USER, "alice")]).await;
    let next = ask(&router, &[(USER, "bob")]);
    waiting(&router, 1).await;
    serve(&engine, 1).await;
    for asked in [running, next] {
        assert_eq!(outcome(asked).await.0, 200);
    }
}
