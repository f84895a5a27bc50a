//! Faults to order, as a client sees them.

use std::io::ErrorKind;

use futures_util::FutureExt;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, eventually};
use super::engine;
use crate::engine::Engine;
use crate::fault::{Fault, FaultOrder};

fn chat(stream: bool) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream, "max_tokens": 8})
}

/// Sends a chat over a bare socket and reads to the end: what came, and how it ended.
async fn raw(engine: &Engine, body: &Value) -> (String, std::io::Result<()>) {
    let mut socket = TcpStream::connect(engine.address()).await.expect("connects");
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.expect("writes");
    let mut got = Vec::new();
    let end = socket.read_to_end(&mut got).await.map(|_| ());
    (String::from_utf8_lossy(&got).into_owned(), end)
}

async fn healthy(client: &Client) -> bool {
    client.get("/health").await.status == StatusCode::OK
}

#[tokio::test]
async fn answers_to_order() {
    let (engine, client) = engine(|_| {}).await;
    for (fault, status) in [
        (Fault::Status { code: 502, body: "{}".to_owned() }, 502),
        (Fault::Draining, 500),
        (Fault::Dead, 500),
        (Fault::BusyWithRetryAfter { code: 429, seconds: 7 }, 429),
        (Fault::BusyWithRetryAfter { code: 503, seconds: 7 }, 503),
    ] {
        engine.set_fault(fault.clone()).await;
        let answer = client.post("/v1/chat/completions", &chat(false)).await;
        assert_eq!(answer.status.as_u16(), status, "{fault:?}");
        assert_eq!(healthy(&client).await, fault != Fault::Dead, "{fault:?}");
        if let Fault::BusyWithRetryAfter { .. } = fault {
            assert_eq!(answer.headers["retry-after"], "7");
        }
    }
    engine.set_fault((Fault::Draining, 1)).await;
    assert_eq!(client.post("/v1/chat/completions", &chat(false)).await.status, 500);
    assert_eq!(client.post("/v1/chat/completions", &chat(false)).await.status, 200, "once only");
}

#[tokio::test]
async fn connections_are_refused_and_open_ones_closed() {
    let (engine, client) = engine(|config| config.decode_us_per_token = 1e9).await;
    let mut stream = client.open("/v1/chat/completions", &chat(true)).await;
    stream.next().await.expect("an event").expect("no error");
    engine.set_fault(Fault::RefuseConnections).await;
    assert!(!stream.rest().await.1, "no clean end");
    let refused = TcpStream::connect(engine.address()).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(engine.backlog(), Default::default());
    engine.set_fault(Fault::None).await;
    assert!(healthy(&client).await);
}

#[tokio::test]
async fn a_hanging_engine_takes_requests_and_says_nothing() {
    let (engine, client) = engine(|_| {}).await;
    engine.set_fault(Fault::Hang).await;
    let mut hanging = Box::pin(client.get("/health"));
    assert!(hanging.as_mut().now_or_never().is_none());
    eventually("it has read the request", || {
        let _ = hanging.as_mut().now_or_never();
        engine.requests().len() == 1
    })
    .await;
    assert!(hanging.as_mut().now_or_never().is_none());
    engine.set_fault(Fault::None).await;
    assert!(healthy(&client).await, "new requests are served again");
}

#[tokio::test]
async fn resets_are_resets() {
    let (engine, _client) = engine(|_| {}).await;
    engine.set_fault(Fault::ResetBeforeFirstByte).await;
    let (got, end) = raw(&engine, &chat(false)).await;
    assert_eq!((got.as_str(), end.map_err(|error| error.kind())), ("", Err(ErrorKind::ConnectionReset)));
    engine.set_fault(Fault::ResetMidStream { after_events: 3 }).await;
    let (got, end) = raw(&engine, &chat(true)).await;
    assert_eq!(got.matches("data: ").count(), 3, "{got}");
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    let (got, end) = raw(&engine, &chat(false)).await;
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("chatcmpl") && !got.contains("usage"), "{got}");
    assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn streams_are_cut_stalled_or_ended_with_an_error() {
    let (engine, client) = engine(|_| {}).await;
    engine.set_fault(Fault::CutMidStream { after_events: 2 }).await;
    let (got, end) = raw(&engine, &chat(true)).await;
    assert_eq!(got.matches("data: ").count(), 2);
    assert!(end.is_ok() && !got.ends_with("0\r\n\r\n"), "an orderly close in the middle: {got}");
    engine.set_fault(Fault::ErrorMidStream { after_events: 2 }).await;
    let (text, ended) = client.open("/v1/chat/completions", &chat(true)).await.rest().await;
    assert!(ended && text.contains("EngineCore encountered an issue"));
    assert!(text.ends_with("data: [DONE]\n\n"));
    engine.set_fault(Fault::StallMidStream { after_events: 2 }).await;
    let mut stream = client.open("/v1/chat/completions", &chat(true)).await;
    assert_eq!(stream.status, StatusCode::OK);
    let mut text = String::new();
    while text.matches("data: ").count() < 2 {
        let piece = stream.next().await.expect("an event").expect("no error");
        text.push_str(std::str::from_utf8(&piece).expect("text"));
    }
    engine.set_fault(Fault::None).await;
    assert!(healthy(&client).await);
    assert!(stream.next().now_or_never().is_none(), "open, and silent");
}

#[tokio::test]
async fn lies_about_the_length_and_the_protocol() {
    let (engine, client) = engine(|_| {}).await;
    engine.set_fault(Fault::ShortBody).await;
    for stream in [false, true] {
        let (got, end) = raw(&engine, &chat(stream)).await;
        let (head, body) = got.split_once("\r\n\r\n").expect("a head");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        assert!(end.is_ok() && body.len() < length.parse().expect("a number"), "{got}");
    }
    engine.set_fault(Fault::Garbage).await;
    let (got, _) = raw(&engine, &chat(false)).await;
    assert!(got.contains("this is no HTTP"));
    assert!(client.try_send(Method::GET, "/health", Vec::new(), &[]).await.is_err());
}

#[tokio::test]
async fn a_slow_first_byte_comes() {
    let (engine, client) = engine(|_| {}).await;
    engine.set_fault(Fault::SlowFirstByte { ms: 50 }).await;
    let start = tokio::time::Instant::now();
    assert_eq!(client.post("/v1/chat/completions", &chat(true)).await.status, 200);
    assert!(start.elapsed().as_millis() >= 50);
}

#[tokio::test]
async fn faults_can_be_ordered_from_outside_and_end_by_themselves() {
    let (engine, client) = engine(|_| {}).await;
    let order = json!({"fault": "status", "code": 418, "body": "{}", "times": 1});
    assert_eq!(client.post("/mock/fault", &order).await.status, 200);
    assert_eq!(client.post("/v1/chat/completions", &chat(false)).await.status, 418);
    assert_eq!(client.post("/v1/chat/completions", &chat(false)).await.status, 200);
    assert_eq!(client.post("/mock/fault", &json!({"fault": "nonsense"})).await.status, 400);
    let order = json!({"fault": "refuse_connections", "for_ms": 100});
    assert_eq!(client.post("/mock/fault", &order).await.status, 200, "the answer goes first");
    // It is refused for a while, then it is back: both must be seen.
    let mut refused = false;
    let back = async {
        loop {
            match client.try_send(Method::GET, "/health", Vec::new(), &[]).await {
                Ok(_) if refused => return,
                Ok(_) => {}
                Err(_) => refused = true,
            }
        }
    };
    tokio::time::timeout(client.patience(), back).await.expect("comes back");
    engine.set_fault(FaultOrder { fault: Fault::Draining, times: None, for_ms: Some(30) }).await;
    assert_eq!(client.post("/v1/chat/completions", &chat(false)).await.status, 500);
    let healed = async { while client.post("/v1/chat/completions", &chat(false)).await.status != 200 {} };
    tokio::time::timeout(client.patience(), healed).await.expect("heals");
}

#[tokio::test]
async fn a_restart_can_be_ordered_from_outside() {
    let (engine, client) = engine(|_| {}).await;
    assert_eq!(client.post("/v1/chat/completions", &chat(false)).await.status, 200);
    assert_eq!(engine.stats().finished_requests, 1);
    assert_eq!(client.post("/mock/restart", &json!({})).await.status, 200);
    eventually("it has started anew", || engine.stats().finished_requests == 0).await;
    let back = async { while client.try_send(Method::GET, "/health", Vec::new(), &[]).await.is_err() {} };
    tokio::time::timeout(client.patience(), back).await.expect("comes back");
}
