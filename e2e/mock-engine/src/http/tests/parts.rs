//! Engines that prefill or decode only: what they refuse, and what a pair does together.

use std::time::Duration;

use http::StatusCode;
use kvasir_core::{ConnectorKind, Role};
use serde_json::{Value, json};

use super::client::{Client, Reply, eventually};
use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::fabric::{End, Fabric};
use crate::fault::Fault;
use crate::part::Part;

const CHAT: &str = "/v1/chat/completions";

struct Pair {
    group: std::sync::Arc<Fabric>,
    prefill: Engine,
    decode: Engine,
    to_prefill: Client,
    to_decode: Client,
}

async fn start(part: Part, ip: [u8; 4]) -> Engine {
    let config = EngineConfig {
        listen: (ip, 0).into(),
        model: "m".to_owned(),
        prefill_us_per_token: 0.0,
        decode_us_per_token: 0.0,
        part: Some(part),
        ..EngineConfig::default()
    };
    Engine::start(config).await.expect("starts")
}

async fn pair_with(connector: ConnectorKind, change: impl Fn(&mut Part)) -> Pair {
    let group = Fabric::new();
    let part = |role| {
        let mut part = Part::new(role, connector, &group);
        change(&mut part);
        part
    };
    let prefill = start(part(Role::Prefill), [127, 0, 0, 2]).await;
    let decode = start(part(Role::Decode), [127, 0, 0, 1]).await;
    let (to_prefill, to_decode) = (Client::new(&prefill), Client::new(&decode));
    Pair { group, prefill, decode, to_prefill, to_decode }
}

async fn pair(connector: ConnectorKind) -> Pair {
    pair_with(connector, |_| {}).await
}

/// A chat of 60 words, with what `more` says.
fn chat(more: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "word ".repeat(60)}]});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn refused_for(reply: &Reply) -> Value {
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    reply.json()["error"]["param"].clone()
}

fn cached(usage: &Value) -> u64 {
    usage["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("cached tokens")
}

#[tokio::test]
async fn a_prefill_engine_names_the_field_that_is_wrong() {
    let remote = json!({"do_remote_decode": true, "do_remote_prefill": false});
    for (more, field) in [
        (json!({"stream": false}), "stream"),
        (json!({"stream_options": null}), "stream_options"),
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"max_tokens": 2}), "max_tokens"),
        (json!({"max_completion_tokens": 9}), "max_completion_tokens"),
        (json!({"min_tokens": 2}), "min_tokens"),
        (json!({"n": 2}), "n"),
        (json!({"kv_transfer_params": null}), "kv_transfer_params"),
        (json!({"kv_transfer_params": {"do_remote_decode": true}}), "kv_transfer_params"),
        (
            json!({"kv_transfer_params": {
                "do_remote_decode": true, "do_remote_prefill": false, "remote_host": null,
            }}),
            "kv_transfer_params",
        ),
    ] {
        let pair = pair(ConnectorKind::Nixl).await;
        let mut body = chat(&json!({"max_tokens": 1, "kv_transfer_params": remote}));
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        assert_eq!(refused_for(&pair.to_prefill.post(CHAT, &body).await), field, "{more}");
        assert_eq!(pair.group.refusals().len(), 1);
        assert_eq!(pair.prefill.stats().prompt_tokens, 0);
        assert!(pair.group.exchanges()[0].prompt.is_some());
    }
    let pair = pair(ConnectorKind::Http).await;
    let response = json!({"model": "m", "input": "hi", "max_tokens": 1});
    let refused = pair.to_prefill.post("/v1/responses", &response).await;
    assert_eq!(refused_for(&refused), "max_output_tokens");
    let fine = chat(&json!({"max_tokens": 1, "max_completion_tokens": null, "min_tokens": 1, "n": 1}));
    assert_eq!(pair.to_prefill.post(CHAT, &fine).await.status, 200);
}

#[tokio::test]
async fn what_a_prefill_engine_gives_out_is_good_for_one_decode() {
    for connector in [ConnectorKind::Nixl, ConnectorKind::Mooncake] {
        let pair = pair(connector).await;
        let remote = json!({"do_remote_decode": true, "do_remote_prefill": false});
        let ask = chat(&json!({"max_tokens": 1, "kv_transfer_params": remote}));
        let first = pair.to_prefill.post(CHAT, &ask).await.json();
        let params = &first["kv_transfer_params"];
        assert_eq!(params["remote_host"], "127.0.0.2");
        assert!(params["nonce"].as_u64().is_some_and(|nonce| nonce > 1 << 53), "{params}");
        assert_eq!((cached(&first), &first["usage"]["completion_tokens"]), (0, &json!(1)));
        assert!(pair.prefill.stats().cached_blocks > 0 && pair.prefill.stats().event_batches == 1);

        let decode = |params: &Value| chat(&json!({"max_tokens": 4, "kv_transfer_params": params}));
        let mut other = params.clone();
        other["remote_block_ids"] = json!([]);
        for wrong in [&Value::Null, &json!({}), &remote, &other] {
            assert_eq!(refused_for(&pair.to_decode.post(CHAT, &decode(wrong)).await), "kv_transfer_params");
        }
        let mut other = decode(params);
        other["messages"][0]["content"] = "something else".into();
        assert_eq!(refused_for(&pair.to_decode.post(CHAT, &other).await), "kv_transfer_params");
        let answer = pair.to_decode.post(CHAT, &decode(params)).await.json();
        assert_eq!(answer["usage"]["completion_tokens"], 4);
        assert_eq!(cached(&answer), answer["usage"]["prompt_tokens"].as_u64().expect("tokens") - 1);
        assert_eq!(refused_for(&pair.to_decode.post(CHAT, &decode(params)).await), "kv_transfer_params");

        let again = pair.to_prefill.post(CHAT, &ask).await.json();
        assert!(cached(&again) > 0, "a prefill engine's own number is true");
        pair.prefill.restart().await.expect("restarts");
        let stale = pair.to_decode.post(CHAT, &decode(&again["kv_transfer_params"])).await;
        assert_eq!(refused_for(&stale), "kv_transfer_params", "the blocks are gone");
    }
}

#[tokio::test]
async fn without_a_transfer_the_order_is_checked() {
    for connector in [ConnectorKind::Http, ConnectorKind::Lmcache] {
        let pair = pair(connector).await;
        let decode = chat(&json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2}));
        assert_eq!(refused_for(&pair.to_decode.post(CHAT, &decode).await), "prompt");
        assert_eq!(pair.to_prefill.post(CHAT, &chat(&json!({"max_tokens": 1}))).await.status, 200);
        let events = pair.to_decode.post(CHAT, &decode).await.events();
        let usage = events.last().expect("events");
        let arrives = connector == ConnectorKind::Lmcache;
        assert_eq!(cached(usage) > 0, arrives, "{connector}: http computes the prompt again");
        assert_eq!(refused_for(&pair.to_decode.post(CHAT, &decode).await), "prompt", "one decode each");
        assert_eq!(pair.group.under_way(), 0);
        assert_eq!(pair.group.exchanges().iter().filter(|exchange| exchange.succeeded()).count(), 2);
    }
}

#[tokio::test]
async fn two_meet_in_a_room_and_the_decode_ends_when_it_has_the_cache() {
    let pair = pair(ConnectorKind::Sglang).await;
    let room = (1u64 << 63) - 1;
    let prefill = chat(&json!({"max_tokens": 1, "bootstrap_room": room}));
    let decode = chat(&json!({"max_tokens": 4, "bootstrap_room": room, "bootstrap_host": "127.0.0.2"}));
    let (first, second) =
        tokio::join!(pair.to_prefill.post(CHAT, &prefill), pair.to_decode.post(CHAT, &decode));
    assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
    assert_eq!(cached(&second.json()), 0, "what the prefill engine has found");
    let [one, two] = &pair.group.exchanges()[..] else { panic!("two exchanges") };
    assert!(one.overlaps(two) && one.prompt == two.prompt && one.room == Some(room));
    for (client, body) in [(&pair.to_prefill, &prefill), (&pair.to_decode, &decode)] {
        assert_eq!(refused_for(&client.post(CHAT, body).await), "bootstrap_room", "used before");
    }
    for wrong in [json!(null), json!(-1), json!(1u64 << 63), json!(1.5), json!("1")] {
        let mut body = prefill.clone();
        body["bootstrap_room"] = wrong;
        assert_eq!(refused_for(&pair.to_prefill.post(CHAT, &body).await), "bootstrap_room");
    }
    let no_host = chat(&json!({"bootstrap_room": 5}));
    assert_eq!(refused_for(&pair.to_decode.post(CHAT, &no_host).await), "bootstrap_host");
    let prefill = chat(&json!({"max_tokens": 1, "bootstrap_room": 6}));
    let decode = chat(&json!({"bootstrap_room": 6, "bootstrap_host": "127.0.0.1"}));
    let (first, second) =
        tokio::join!(pair.to_prefill.post(CHAT, &prefill), pair.to_decode.post(CHAT, &decode));
    assert_eq!(refused_for(&second), "bootstrap_host", "it is the other engine's");
    assert_eq!(first.status, 500, "the other side has left");
}

#[tokio::test]
async fn nobody_waits_in_a_room_for_ever() {
    let pair = pair_with(ConnectorKind::Sglang, |part| part.patience = Duration::from_millis(50)).await;
    let prefill = chat(&json!({"max_tokens": 1, "bootstrap_room": 1}));
    let decode = chat(&json!({"bootstrap_room": 2, "bootstrap_host": "127.0.0.2"}));
    for (client, body) in [(&pair.to_prefill, &prefill), (&pair.to_decode, &decode)] {
        let reply = client.post(CHAT, body).await;
        assert_eq!(reply.status, 500);
        assert!(reply.text().contains("KVTransferError"), "{}", reply.text());
    }
    assert!(pair.group.refusals().is_empty());
}

#[tokio::test]
async fn a_client_that_leaves_a_room_ends_the_other_side() {
    let pair = pair(ConnectorKind::Sglang).await;
    let prefill = chat(&json!({"max_tokens": 1, "bootstrap_room": 1}));
    let waiting = {
        let (client, body) = (pair.to_prefill.clone(), prefill.clone());
        tokio::spawn(async move { client.post(CHAT, &body).await })
    };
    eventually("it is in the room", || pair.group.exchanges().first().is_some_and(|one| one.room == Some(1)))
        .await;
    waiting.abort();
    eventually("it has left", || pair.group.exchanges()[0].end == Some(End::Left)).await;
    let decode = chat(&json!({"bootstrap_room": 1, "bootstrap_host": "127.0.0.2"}));
    assert_eq!(pair.to_decode.post(CHAT, &decode).await.status, 500);
}

#[tokio::test]
async fn engines_of_both_and_lenient_ones_serve_whole_requests() {
    for connector in ConnectorKind::ALL {
        let pair = pair_with(connector, |part| part.serves_whole = true).await;
        assert_eq!(pair.to_decode.post(CHAT, &chat(&json!({}))).await.status, 200, "{connector}");
        let both = start(Part::new(Role::Both, connector, &Fabric::new()), [127, 0, 0, 1]).await;
        assert_eq!(Client::new(&both).post(CHAT, &chat(&json!({}))).await.status, 200, "{connector}");
    }
    let pair = pair(ConnectorKind::Nixl).await;
    assert_eq!(refused_for(&pair.to_decode.post(CHAT, &chat(&json!({}))).await), "kv_transfer_params");
}

#[tokio::test]
async fn alone_in_its_process_an_engine_checks_what_it_sees() {
    let alone = |role, connector| start(Part::new(role, connector, &Fabric::new()), [127, 0, 0, 1]);
    let decode = alone(Role::Decode, ConnectorKind::Nixl).await;
    let client = Client::new(&decode);
    let params = json!({"remote_engine_id": "e", "remote_block_ids": [1]});
    let answer = client.post(CHAT, &chat(&json!({"kv_transfer_params": params}))).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        refused_for(&client.post(CHAT, &chat(&json!({"kv_transfer_params": {}}))).await),
        "kv_transfer_params"
    );
    let prefill = alone(Role::Prefill, ConnectorKind::Sglang).await;
    let ask = chat(&json!({"max_tokens": 1, "bootstrap_room": 3}));
    assert_eq!(Client::new(&prefill).post(CHAT, &ask).await.status, 200);
    assert_eq!(refused_for(&Client::new(&prefill).post(CHAT, &ask).await), "bootstrap_room");
    let decode = alone(Role::Decode, ConnectorKind::Http).await;
    assert_eq!(Client::new(&decode).post(CHAT, &chat(&json!({}))).await.status, 200);
}

#[tokio::test]
async fn answers_can_lack_what_a_router_needs() {
    let pair = pair(ConnectorKind::Nixl).await;
    let remote = json!({"do_remote_decode": true, "do_remote_prefill": false});
    let ask = chat(&json!({"max_tokens": 1, "kv_transfer_params": remote}));
    pair.prefill.set_fault((Fault::NoTransferParams, 1)).await;
    let answer = pair.to_prefill.post(CHAT, &ask).await;
    assert!(answer.status == 200 && answer.json().get("kv_transfer_params").is_none());
    pair.prefill.set_fault((Fault::AnswerNoJson, 1)).await;
    let answer = pair.to_prefill.post(CHAT, &ask).await;
    assert!(answer.status == 200 && serde_json::from_str::<Value>(&answer.text()).is_err());
    pair.prefill.set_fault((Fault::StatusAfterWork { code: 503, ms: 1 }, 1)).await;
    assert_eq!(pair.to_prefill.post(CHAT, &ask).await.status, 503);
    assert_eq!(pair.prefill.stats().finished_requests, 3, "the work was done each time");
    assert_eq!(pair.to_prefill.post(CHAT, &ask).await.status, 200);
    pair.decode.set_fault(Fault::Hang).await;
    let hanging = {
        let client = pair.to_decode.clone();
        tokio::spawn(async move { client.post(CHAT, &chat(&json!({}))).await })
    };
    eventually("the engine has it", || pair.group.under_way() == 1).await;
    hanging.abort();
    eventually("the engine sees it leave", || pair.group.under_way() == 0).await;
    assert_eq!(pair.group.exchanges().last().and_then(|last| last.end.clone()), Some(End::Left));
}
