//! What a client gets that may not begin, and what it leaves behind.

use std::time::Duration;

use http::header::RETRY_AFTER;
use kvasir_gateway::listener::Served;
use kvasir_settings::resolved::FairnessSettings;
use kvasir_suite::client::Raw;
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router};

use crate::scene::{
    NUMBER, USER, arrived, ask, ask_for, engine, occupy, one_at_a_time, order_of, outcome, router, waiting,
};

fn denied(router: &Router, reason: &str) -> Option<f64> {
    router.metric(&format!(r#"kvasir_admission_denied_total{{model="{MODEL}",reason="{reason}"}}"#))
}

fn cancelled(router: &Router) -> Option<f64> {
    router
        .metric(&format!(r#"kthena_router_fairness_queue_cancelled_total{{model="{MODEL}",user_id="_all"}}"#))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_too_long_gets_504_and_the_next_one_is_served() {
    let engine = engine().await;
    let limit = Duration::from_millis(100);
    let router = router(&engine, FairnessSettings { queue_timeout: limit, ..one_at_a_time() }).await;
    let running = occupy(&router, &engine, &[(USER, "alice")]).await;
    let answer = ask(&router, &[(USER, "bob")]).await.unwrap().unwrap();
    assert_eq!(answer.status(), 504);
    let body: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(body["error"]["code"], "queue_timeout");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("0.1 s") && message.contains("--fairness-queue-timeout"), "{message}");
    assert_eq!((denied(&router, "timed_out"), cancelled(&router)), (Some(1.0), Some(1.0)));
    engine.proceed();
    assert_eq!(outcome(running).await.0, 200);
    let next = occupy(&router, &engine, &[(USER, "bob")]).await;
    engine.proceed();
    assert_eq!(outcome(next).await.0, 200);
    assert_eq!(engine.arrived().len(), 2, "who timed out never came to the engine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_makes_room_at_once() {
    let engine = engine().await;
    let router = router(&engine, FairnessSettings { max_waiting: 2, ..one_at_a_time() }).await;
    let running = occupy(&router, &engine, &[(USER, "alice")]).await;
    let body = format!(r#"{{"model":"{MODEL}","messages":[]}}"#);
    let leaving = Raw::post(router.inference, "/v1/chat/completions", body.as_bytes()).await.unwrap();
    waiting(&router, 1).await;
    let stays = ask(&router, &[(USER, "bob"), (NUMBER, "stays")]);
    waiting(&router, 2).await;
    let bodies = || router.metric("kvasir_buffered_bytes").unwrap();
    let held = bodies();
    drop(leaving);
    waiting(&router, 1).await;
    assert_eq!(cancelled(&router), Some(1.0));
    eventually("a third of the bytes are given back", || bodies() == held - held / 3.0).await;
    let last = ask(&router, &[(USER, "bob"), (NUMBER, "last")]);
    waiting(&router, 2).await;
    for number in 2..=3 {
        engine.proceed();
        arrived(&engine, number).await;
    }
    engine.proceed();
    for asked in [running, stays, last] {
        assert_eq!(outcome(asked).await.0, 200);
    }
    assert_eq!(order_of(&engine, NUMBER, 1), ["stays", "last"]);
}

/// A client that leaves while its request runs gives the place back too.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_the_engine_makes_room_for_the_next() {
    let engine = engine().await;
    let router = router(&engine, one_at_a_time()).await;
    let body = format!(r#"{{"model":"{MODEL}","messages":[]}}"#);
    let leaving = Raw::post(router.inference, "/v1/chat/completions", body.as_bytes()).await.unwrap();
    arrived(&engine, 1).await;
    let next = ask(&router, &[(USER, "bob")]);
    waiting(&router, 1).await;
    drop(leaving);
    arrived(&engine, 2).await;
    engine.proceed();
    assert_eq!(outcome(next).await.0, 200);
    let running = format!(r#"kthena_router_fairness_queue_inflight{{model="{MODEL}"}}"#);
    eventually("nobody runs", || router.metric(&running) == Some(0.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_more_than_may_wait_is_told_to_come_again() {
    let engine = engine().await;
    let router = router(&engine, FairnessSettings { max_waiting: 2, ..one_at_a_time() }).await;
    let running = occupy(&router, &engine, &[]).await;
    let patient = [ask(&router, &[]), ask(&router, &[])];
    waiting(&router, 2).await;
    let answer = ask(&router, &[]).await.unwrap().unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers().get(RETRY_AFTER).map(|value| value.as_bytes()), Some(&b"1"[..]));
    let body: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(body["error"]["code"], "queue_full");
    assert!(body["error"]["message"].as_str().unwrap().contains("--fairness-max-waiting"), "{body}");
    assert_eq!(denied(&router, "full"), Some(1.0));
    for number in 2..=3 {
        engine.proceed();
        arrived(&engine, number).await;
    }
    engine.proceed();
    for asked in patient.into_iter().chain([running]) {
        assert_eq!(outcome(asked).await.0, 200);
    }
}

/// What runs may end; what waits is told at once, for another replica may have time.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_answers_all_who_wait() {
    let engine = engine().await;
    let router = router(&engine, one_at_a_time()).await;
    let running = occupy(&router, &engine, &[]).await;
    let patient = [ask(&router, &[]), ask(&router, &[]), ask(&router, &[])];
    waiting(&router, 3).await;
    router.signals.stop.cancel();
    for asked in patient {
        let answer = asked.await.unwrap().unwrap();
        let body: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!((answer.status().as_u16(), &body["error"]["code"]), (503, &"shutting_down".into()));
        assert!(answer.headers().contains_key(RETRY_AFTER));
    }
    assert_eq!((denied(&router, "closed"), cancelled(&router)), (Some(3.0), Some(3.0)));
    engine.proceed();
    assert_eq!(outcome(running).await.0, 200);
    assert_eq!(router.stop().await.unwrap(), Served::Drained);
}

/// Names that no route claims are clients' words: they make no queue and no series (RL-05).
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_nobody_knows_never_waits() {
    let engine = engine().await;
    let router = router(&engine, one_at_a_time()).await;
    let running = occupy(&router, &engine, &[]).await;
    for number in 0..20 {
        let name = format!("no-such-{number}");
        assert_eq!(outcome(ask_for(&router, &name, &[])).await, (404, "model_not_found".to_owned()));
    }
    assert!(!router.metrics_page().contains("no-such"));
    engine.proceed();
    assert_eq!(outcome(running).await.0, 200);
}
