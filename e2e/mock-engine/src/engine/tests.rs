//! Engines as a whole: events over the wire against the oracle, and restarts.

use std::time::Duration;

use kvasir_core::EngineKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::*;
use crate::config::{EventsConfig, HashForm, HashRoot};
use crate::fleet::Fleet;

const PATIENCE: Duration = Duration::from_secs(10);

fn quick() -> EngineConfig {
    EngineConfig { prefill_us_per_token: 0.0, decode_us_per_token: 0.0, ..EngineConfig::default() }
}

async fn complete(engine: &Engine, tokens: &[u32]) {
    let body = json!({"prompt": tokens, "max_tokens": 1}).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: e\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(engine.address()).await.expect("connects");
    socket.write_all(head.as_bytes()).await.expect("writes");
    let mut got = String::new();
    socket.read_to_string(&mut got).await.expect("reads");
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
}

/// The payload of every batch since the start.
async fn batches(engine: &Engine, expected: u64) -> Vec<rmpv::Value> {
    timeout(PATIENCE, async {
        while engine.stats().event_batches < expected {
            tokio::task::yield_now().await;
        }
        let replay = engine.kv_events().and_then(|kv| kv.replay).expect("has replay");
        let mut dealer = DealerSocket::new();
        dealer.connect(&replay).await.expect("connects");
        let mut request = ZmqMessage::from(bytes::Bytes::new());
        request.push_back(bytes::Bytes::copy_from_slice(&0u64.to_be_bytes()));
        dealer.send(request).await.expect("sends");
        let mut batches = Vec::new();
        loop {
            let reply = dealer.recv().await.expect("reads").into_vec();
            let payload = reply.last().expect("a payload");
            if payload.is_empty() {
                return batches;
            }
            batches.push(rmpv::decode::read_value(&mut &payload[..]).expect("msgpack"));
        }
    })
    .await
    .expect("in time")
}

fn first_hash(batch: &rmpv::Value) -> rmpv::Value {
    let event = &batch[1][0];
    let entry = event.as_map().and_then(|entries| {
        entries.iter().find(|(key, _)| key.as_str() == Some("block_hashes")).map(|(_, value)| value.clone())
    });
    entry.expect("has hashes")[0].clone()
}

#[tokio::test]
async fn a_restart_is_empty_counts_from_zero_and_keeps_a_fixed_root() {
    let tokens: Vec<u32> = (0..40).collect();
    for (root, same) in [(HashRoot::Fixed, true), (HashRoot::Random, false)] {
        let engine = Engine::start(EngineConfig { hash_root: root, ..quick() }).await.expect("starts");
        complete(&engine, &tokens).await;
        let before = batches(&engine, 1).await;
        assert_eq!(engine.cached_prefix_tokens(&tokens, None, None), 32);
        engine.restart().await.expect("restarts");
        assert_eq!(engine.cached_prefix_tokens(&tokens, None, None), 0);
        assert_eq!(batches(&engine, 0).await.len(), 0);
        complete(&engine, &tokens).await;
        let after = batches(&engine, 1).await;
        assert_eq!(after.len(), 1, "the numbers and the buffer begin anew");
        assert_eq!(first_hash(&before[0]) == first_hash(&after[0]), same, "{root:?}");
        engine.stop().await;
    }
}

#[tokio::test]
async fn a_fleet_shares_hashes_and_nothing_else() {
    let fleet = Fleet::start(2, &quick()).await.expect("starts");
    let [first, second] = fleet.engines() else { panic!("two engines") };
    assert_ne!(first.url(), second.url());
    let tokens: Vec<u32> = (0..40).collect();
    complete(first, &tokens).await;
    assert_eq!(second.cached_prefix_tokens(&tokens, None, None), 0);
    complete(second, &tokens).await;
    assert_eq!(first_hash(&batches(first, 1).await[0]), first_hash(&batches(second, 1).await[0]));
    fleet.stop().await;
}

#[tokio::test]
async fn sglang_publishes_signed_hashes() {
    let events = EventsConfig { hash: HashForm::I64, ..EventsConfig::default() };
    let config = EngineConfig { kind: EngineKind::Sglang, events: Some(events), ..quick() };
    let engine = Engine::start(config).await.expect("starts");
    for start in 0..20 {
        complete(&engine, &(start * 100..start * 100 + 20).collect::<Vec<u32>>()).await;
    }
    let hashes: Vec<rmpv::Value> = batches(&engine, 20).await.iter().map(first_hash).collect();
    assert!(hashes.iter().any(|hash| hash.as_i64().is_some_and(|hash| hash < 0)));
    engine.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    for (change, reason) in [
        (EngineConfig { block_size: 0, ..quick() }, "block_size must be at least 1"),
        (EngineConfig { kv_blocks: 1, ..quick() }, "kv_blocks must be at least 2, not 1"),
        (EngineConfig { time_scale: f64::NAN, ..quick() }, "time_scale must be a number of at least 0"),
    ] {
        let error = Engine::start(change).await.expect_err("is refused");
        assert_eq!(error.to_string(), reason);
    }
}
