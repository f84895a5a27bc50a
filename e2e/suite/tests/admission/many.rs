//! Ten thousand requests that wait cost little, and a shutdown answers them all.

use std::sync::Arc;

use http::header::RETRY_AFTER;
use kvasir_gateway::listener::Served;
use kvasir_settings::resolved::FairnessSettings;
use kvasir_suite::client::post;
use kvasir_suite::h2c::H2c;
use kvasir_suite::router::MODEL;
use tokio::task::JoinSet;

use crate::scene::{LONG, USER, ask, engine, occupy, one_at_a_time, outcome, router, waiting};

/// Requests that wait.
const MANY: usize = 10_000;

/// Requests on one connection: what the router lets an HTTP/2 client have open at once.
const STREAMS: usize = 100;

/// Most memory that one of them may cost, bytes: the client's side, which is in the same process, included.
const MOST_EACH: u64 = 64 << 10;

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_wait_in_little_memory_and_are_all_answered() {
    let engine = engine().await;
    let fairness = FairnessSettings { max_waiting: MANY, queue_timeout: LONG, ..one_at_a_time() };
    let router = router(&engine, fairness).await;
    let running = occupy(&router, &engine, &[(USER, "first")]).await;
    let before = resident();
    let mut all = JoinSet::new();
    for connection in 0..MANY / STREAMS {
        let client = Arc::new(H2c::connect(router.inference).await.unwrap());
        for stream in 0..STREAMS {
            let client = Arc::clone(&client);
            let body = format!(r#"{{"model":"{MODEL}","messages":[]}}"#);
            let mut request = post("/v1/chat/completions", body).unwrap();
            let user = format!("user-{}", (connection * STREAMS + stream) % 1000);
            request.headers_mut().insert(USER, user.parse().unwrap());
            all.spawn(async move { client.send(request).await });
        }
    }
    waiting(&router, MANY).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < MANY as u64 * MOST_EACH, "{grown} bytes for {MANY} that wait");
    assert_eq!(outcome(ask(&router, &[(USER, "user-0")])).await, (429, "queue_full".to_owned()));
    router.signals.stop.cancel();
    while let Some(answered) = all.join_next().await {
        let answer = answered.unwrap().unwrap();
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key(RETRY_AFTER));
    }
    engine.proceed();
    assert_eq!(outcome(running).await.0, 200);
    assert_eq!(router.stop().await.unwrap(), Served::Drained);
}
