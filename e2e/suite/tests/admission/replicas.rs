//! Two routers over one Redis know what their users used at the other, and share alike over both.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvasir_coordination::testing::TestServer;
use kvasir_mock_engine::{Engine, EngineConfig};
use kvasir_settings::Settings;
use kvasir_settings::resolved::{AdmissionSettings, FairnessSettings};
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::Scripted;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::scene::{
    USER, ask, engine, engine_that_counts, occupy, one_at_a_time, order_of, outcome, serve, settings_of,
    waiting,
};

async fn router(engine: &Scripted, redis: &TestServer, name: &str) -> Router {
    let settings = settings_of(&[engine], AdmissionSettings::Fairness(one_at_a_time()));
    shared(settings, redis, name).await
}

async fn shared(mut settings: Settings, redis: &TestServer, name: &str) -> Router {
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

/// Users, what each is due, and the least words of one of its prompts: who is due little sends large requests.
const USERS: [(&str, u64, f64); 3] = [("one", 1, 40.0), ("two", 2, 20.0), ("three", 3, 10.0)];

/// Requests that a user has at a router at any time, so that its line is never empty.
const ASKING: usize = 6;

/// Exchanges of each router that are measured over. What one does not know of the other is what that one served since
/// the last exchange or two, however long these take.
const EXCHANGES: u64 = 40;

/// Asks one request after the other, and adds what the engine counted.
async fn keep_asking(to: SocketAddr, user: usize, seed: u64, counted: Arc<[AtomicU64; 3]>) {
    let (name, _, words) = USERS[user];
    let mut rng = StdRng::seed_from_u64(seed);
    loop {
        // Heavy-tailed: most are small, few are five times as large.
        let size = words * (1.0 - rng.random::<f64>()).powf(-1.0 / 1.3).min(5.0);
        let (prompt, most) = ("word ".repeat(size as usize), size as usize / 2);
        let body =
            format!(r#"{{"model":"{MODEL}","prompt":"{prompt}","max_tokens":{most},"ignore_eos":true}}"#);
        let mut request = post("/v1/completions", body).unwrap();
        request.headers_mut().insert(USER, name.parse().unwrap());
        let answer = send(to, request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        let used = |what: &str| answer["usage"][what].as_u64().unwrap();
        counted[user].fetch_add(used("prompt_tokens") + 2 * used("completion_tokens"), Ordering::Relaxed);
    }
}

/// Users ask at the routers where they are at home; each gets what it is due of both together.
async fn each_gets_what_it_is_due(at_home: [[bool; 2]; 3]) {
    let redis = TestServer::start().await;
    let weights = USERS.map(|(name, due, _)| (name.to_owned(), due as f64)).into();
    let fairness = FairnessSettings { user_weights: weights, ..one_at_a_time() };
    let (mut engines, mut routers) = (Vec::new(), Vec::new());
    for name in ["left", "right"] {
        let config = EngineConfig {
            model: MODEL.to_owned(),
            events: None,
            prefill_us_per_token: 5.0,
            decode_us_per_token: 20.0,
            ..EngineConfig::default()
        };
        let engine = Engine::start(config).await.unwrap();
        let mut settings = settings(&[engine.url()]).unwrap();
        settings.admission = AdmissionSettings::Fairness(fairness.clone());
        routers.push(shared(settings, &redis, name).await);
        engines.push(engine);
    }
    eventually("each knows of the other", || {
        routers.iter().all(|router| router.metric("kvasir_usage_peers") == Some(1.0))
    })
    .await;
    let (counted, mut asking) = (Arc::<[AtomicU64; 3]>::default(), JoinSet::new());
    for (user, homes) in at_home.iter().enumerate() {
        for (number, router) in routers.iter().enumerate().filter(|(number, _)| homes[*number]) {
            for client in 0..ASKING {
                let seed = (user * 100 + number * 10 + client) as u64;
                asking.spawn(keep_asking(router.inference, user, seed, Arc::clone(&counted)));
            }
        }
    }
    let begun: Vec<u64> = routers.iter().map(exchanges).collect();
    eventually("many exchanges", || {
        routers.iter().zip(&begun).all(|(router, begun)| exchanges(router) >= begun + EXCHANGES)
    })
    .await;
    let counted: Vec<u64> = counted.iter().map(|tokens| tokens.load(Ordering::Relaxed)).collect();
    asking.abort_all();
    while let Some(ended) = asking.join_next().await {
        assert!(ended.is_err_and(|error| error.is_cancelled()), "a request failed");
    }
    let total: u64 = counted.iter().sum();
    let due_to_all: u64 = USERS.iter().map(|(_, due, _)| due).sum();
    for ((name, due, _), tokens) in USERS.iter().zip(&counted) {
        let (share, due) = (*tokens as f64 / total as f64, *due as f64 / due_to_all as f64);
        assert!((share / due - 1.0).abs() < 0.05, "{name} has {share:.4}, is due {due:.4}: {counted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_at_both_routers_get_what_they_are_due() {
    each_gets_what_it_is_due([[true, true]; 3]).await;
}

/// Who asks at one router alone has to get there what the others get at both.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_at_one_router_alone_gets_no_less() {
    each_gets_what_it_is_due([[true, false], [true, true], [true, true]]).await;
}
