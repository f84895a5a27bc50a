//! Each path and its answer, before and after there is anything to tell.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kvasir_coordination::Redis;
use kvasir_coordination::testing::settings_of;
use kvasir_core::Address;
use kvasir_kvcache::Index;
use kvasir_settings::redis::RedisNode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::board::Phase;
use crate::config::{AgentConfig, EngineConfig, Layout};
use crate::kthena_pod::KthenaPods;
use crate::testing;

/// A board whose Redis is nowhere.
fn board() -> Arc<Board> {
    let redis = settings_of(RedisNode { host: "127.0.0.1".to_owned(), port: 1 });
    let engine = EngineConfig {
        kind: kvasir_core::EngineKind::Vllm,
        address: Address::parse("http://e:8000").unwrap(),
        metrics_path: "/metrics".to_owned(),
        pod: "e".into(),
        namespace: "ns".into(),
        model: None,
        kv_events: Vec::new(),
    };
    let config = AgentConfig {
        listen: ("127.0.0.1".to_owned(), 0),
        engines: vec![engine],
        redis: redis.clone(),
        layout: Layout::Both,
        lease: Duration::from_secs(10),
        resume_interval: Duration::from_secs(10),
        scrape_interval: Duration::from_secs(2),
        warnings: Vec::new(),
        log_level: "info".to_owned(),
    };
    let redis = Redis::new(redis).unwrap();
    let kthena = KthenaPods::new(redis.clone(), true);
    Arc::new(Board::new(&config, Arc::new(Index::default()), redis, kthena))
}

async fn ask(desk: &Desk, method: Method, path: &str) -> (u16, serde_json::Value) {
    let response = desk.answer(&Request::builder().method(method).uri(path).body(()).unwrap());
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (
        status,
        serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8(body.to_vec()).unwrap().into()),
    )
}

#[tokio::test]
async fn every_path_has_its_answer() {
    let desk = Desk::new(board());
    for (method, path, status, part) in [
        (Method::GET, "/health", 200, "healthy"),
        (Method::HEAD, "/healthz", 200, "ok"),
        (Method::GET, "/readyz", 503, "waiting"),
        (Method::GET, "/status", 200, "\"pod\":\"e.ns\""),
        (Method::GET, "/metrics", 200, "kvasir_agent_redis_up 0"),
        (Method::POST, "/health", 405, "method not allowed"),
        (Method::POST, "/v1/load_lora_adapter", 404, "not offered"),
        (Method::POST, "/v1/unload_lora_adapter", 404, "not offered"),
        (Method::POST, "/v1/download_model", 404, "not offered"),
        (Method::GET, "/", 404, "no such path"),
    ] {
        let (got, body) = ask(&desk, method.clone(), path).await;
        let shown = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        assert_eq!(got, status, "{method} {path}");
        assert!(shown.contains(part), "{method} {path}: {shown}");
    }
}

#[tokio::test]
async fn readiness_says_what_it_waits_for_and_stops_with_the_agent() {
    let board = board();
    let desk = Desk::new(Arc::clone(&board));
    board.engines[0].update(|state| {
        state.phase = Phase::Waiting;
        state.problem = Some("http://e:8000 cannot be asked; is the engine up?".to_owned());
    });
    let (status, body) = ask(&desk, Method::GET, "/readyz").await;
    assert_eq!((status, &body["status"]), (503, &"waiting".into()));
    let reasons = body["waitingFor"].to_string();
    assert!(
        reasons.contains("Redis was not reached") && reasons.contains("e.ns: http://e:8000 cannot"),
        "{reasons}"
    );
    assert_eq!(body["redis"]["at"], "127.0.0.1:1/0");
    assert_eq!(body["engines"][0]["phase"], "waiting");
    board.stop();
    let (status, body) = ask(&desk, Method::GET, "/readyz").await;
    assert_eq!((status, &body["status"]), (503, &"stopping".into()));
}

#[tokio::test]
async fn the_door_answers_over_tcp_and_closes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let door = tokio::spawn(Door::new(listener, Arc::new(Desk::new(board()))).serve(stop.clone()));
    let (status, body) = testing::get(address, "/health").await;
    assert_eq!((status, body.as_str()), (200, "{\"status\":\"healthy\"}"));
    assert_eq!(testing::send(address, "POST", "/v1/load_lora_adapter").await.0, 404);
    // An idle connection does not hold the end up.
    let idle = tokio::net::TcpStream::connect(address).await.unwrap();
    stop.cancel();
    tokio::time::timeout(testing::PATIENCE, door).await.unwrap().unwrap();
    drop(idle);
}
