use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{ConnectorKind, DecisionRecord};
use kvasir_settings::resolved::{Limits, PdFallback};
use serde_json::json;
use tokio::sync::Notify;

mod answers;
mod clients;
mod engine;
mod house;
mod truth;

use engine::{Engine, Say, finish, post, send, value_of};
use house::House;

const ASK: &str =
    r#"{"model": "m", "messages":[{"role":"user","content":"hi"}],"max_tokens":7,"stream":false}"#;
const ASK_STREAM: &str =
    r#"{"model":"m","messages":[],"min_tokens":3,"stream":true,"stream_options":{"include_usage":true}}"#;

fn usage(cached: &str) -> String {
    format!(
        r#"{{"prompt_tokens": 100, "completion_tokens":7,"prompt_tokens_details":{{"cached_tokens": {cached} }}}}"#
    )
}

/// A decode engine's whole answer: with a transfer it finds nearly all of the prompt in its cache.
fn answer(cached: &str) -> String {
    format!(r#"{{"id":"a","choices":[{{"message":{{"content":"b"}}}}], "usage":{}}}"#, usage(cached))
}

fn stream(cached: &str) -> Vec<String> {
    vec![
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n".to_owned(),
        format!("data: {{\"choices\":[],\"usage\":{}}}\n\n", usage(cached)),
        "data: [DONE]\n\n".to_owned(),
    ]
}

const PARAMS: &str = r#"{"remote_block_ids": [[1, 2]], "remote_host":"h", "do_remote_prefill":true}"#;

fn prefilled() -> Say {
    Say::Json(200, format!(r#"{{"usage":{}, "kv_transfer_params": {PARAMS}}}"#, usage("64")))
}

fn refused(status: u16) -> Say {
    Say::Json(status, format!(r#"{{"error":{{"message":"no {status}"}}}}"#))
}

fn usual(_: &mut Limits) {}

fn falling_back(limits: &mut Limits) {
    limits.pd_fallback = PdFallback::Aggregated;
}

/// Attempts as `pod phase status-or-error`.
fn attempts(record: &DecisionRecord) -> Vec<String> {
    let tries = record.attempts.iter().map(|attempt| {
        let what = attempt.status.map_or_else(|| attempt.error.clone().unwrap(), |status| status.to_string());
        format!("{} {} {what}", attempt.endpoint.pod, json!(attempt.phase).as_str().unwrap())
    });
    tries.collect()
}

#[tokio::test]
async fn the_prompt_is_computed_first_and_the_answer_is_as_the_decode_engine_gives_it() {
    let prefill = Engine::start(|_| prefilled()).await;
    let decode = Engine::start(|_| Say::Json(200, answer("99"))).await;
    let house = House::open(ConnectorKind::Http, &[&prefill], &[&decode], usual).await;
    let got = post(house.address, ASK).await;
    assert_eq!((got.status, got.body.as_str()), (200, answer("64").as_str()), "the prefill's cached tokens");
    assert!(got.whole && value_of(&got.head, "x-engine").is_some());
    let (first, second) = (prefill.seen().remove(0), decode.seen().remove(0));
    assert_eq!(first.body, r#"{"model": "m", "messages":[{"role":"user","content":"hi"}],"max_tokens":1}"#);
    assert_eq!(second.body, ASK, "the client's own bytes");
    assert_eq!(value_of(&first.head, "x-request-id"), value_of(&second.head, "x-request-id"));
    let record = house.record().await;
    assert_eq!(attempts(&record), ["p1 prefill 200", "d1 decode 200"]);
    assert_eq!((record.picks[0].pod.as_ref(), record.prefill_picks[0].pod.as_ref()), ("d1", "p1"));
    assert_eq!(record.predicted_cached_tokens, Some(64), "what the prefill endpoint holds");
    assert_eq!(record.outcome.unwrap().usage.unwrap().cached_tokens, Some(64));
    assert!(record.candidates.iter().all(|candidate| candidate.expected_ttft_ms == Some(250.0)));
    house.hears("completed d1 None").await;
    assert_eq!(
        house.told.lines(),
        [
            "dispatched p1 36",
            "first_byte p1",
            "completed p1 Some(64)",
            "dispatched d1 0",
            "first_byte d1",
            "completed d1 None"
        ]
    );
    assert_eq!(house.in_flight(), 0);
    let page = house.gateway.metrics.render();
    for family in ["prefill", "decode"] {
        let line = format!(
            "kthena_router_request_{family}_duration_seconds_count{{model=\"m\",path=\"/v1/chat/completions\",status_code=\"200\"}} 1"
        );
        assert!(page.contains(&line), "{line} is missing in\n{page}");
    }
}

#[tokio::test]
async fn the_parameters_go_over_as_they_are_written_and_a_clients_are_none() {
    let prefill = Engine::start(|_| prefilled()).await;
    let decode = Engine::start(|_| Say::Events(stream("96"))).await;
    let house = House::open(ConnectorKind::Nixl, &[&prefill], &[&decode], usual).await;
    let ask =
        ASK_STREAM.replace("{\"model\"", "{\"kv_transfer_params\":{\"remote_host\":\"evil\"},\"model\"");
    let got = post(house.address, &ask).await;
    assert_eq!((got.status, got.body), (200, stream("64").concat()));
    let asked = prefill.seen()[0].json();
    assert_eq!(
        asked,
        json!({"model": "m", "messages": [], "max_tokens": 1,
               "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false}})
    );
    let expected = format!("{},\"kv_transfer_params\":{PARAMS}}}", ASK_STREAM.strip_suffix('}').unwrap());
    assert_eq!(decode.seen()[0].body, expected);
}

#[tokio::test]
async fn without_parameters_the_pair_has_failed_unless_a_decode_engine_may_do_all() {
    for body in ["{\"usage\":{}}", "{\"kv_transfer_params\":null}", "no JSON"] {
        let prefill = Engine::start(move |_| Say::Json(200, body.to_owned())).await;
        let decode = Engine::start(|_| Say::Json(200, answer("16"))).await;
        let house = House::open(ConnectorKind::Mooncake, &[&prefill], &[&decode], usual).await;
        let got = post(house.address, ASK).await;
        assert_eq!(got.status, 502, "{}", got.body);
        assert!(got.body.contains("bad_upstream") && decode.seen().is_empty());
        let record = house.record().await;
        assert_eq!(attempts(&record), ["p1 prefill 200", "p1 prefill no_transfer_params"]);
        let house = House::open(ConnectorKind::Mooncake, &[&prefill], &[&decode], falling_back).await;
        let got = post(house.address, ASK).await;
        assert_eq!((got.status, got.body), (200, answer("16")), "its own number: it computed the prompt");
        assert_eq!(decode.seen()[0].body, ASK);
        let record = house.record().await;
        assert_eq!(record.pd_fallback, Some("no_transfer_params"));
        assert_eq!(attempts(&record), ["p1 prefill 200", "d1 whole 200"]);
    }
}

#[tokio::test]
async fn an_engines_own_refusal_reaches_the_client() {
    for connector in [ConnectorKind::Http, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        for status in [400, 404, 422, 500] {
            let prefill = Engine::start(move |_| refused(status)).await;
            let decode = Engine::start(|_| Say::Nothing).await;
            let house = House::open(connector, &[&prefill], &[&decode], falling_back).await;
            let got = post(house.address, ASK).await;
            assert_eq!(
                (got.status, got.body),
                (status, format!(r#"{{"error":{{"message":"no {status}"}}}}"#))
            );
            assert!(value_of(&got.head, "x-engine").is_some() && prefill.seen().len() == 1);
            if connector == ConnectorKind::Sglang {
                decode.left(1).await;
            }
            let decode = Engine::start(move |_| refused(status)).await;
            let prefill = Engine::start(|_| prefilled()).await;
            let house = House::open(connector, &[&prefill], &[&decode], falling_back).await;
            let got = post(house.address, ASK).await;
            assert_eq!((got.status, decode.seen().len(), prefill.seen().len()), (status, 1, 1));
        }
    }
}

#[tokio::test]
async fn a_prefill_endpoint_that_fails_is_replaced_and_so_is_a_decode_endpoint() {
    for connector in [ConnectorKind::Http, ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let (dead, busy) = (Engine::dead(), Engine::start(|_| refused(503)).await);
        // SGLang's decode engine answers when it has met a prefill engine. Of those that wait two may have been left.
        let met = Arc::new(Notify::new());
        let (meets, waits) = (Arc::clone(&met), met);
        let prefill = Engine::start(move |_| {
            (0..3).for_each(|_| meets.notify_one());
            prefilled()
        })
        .await;
        let decode = Engine::start(|_| Say::Json(200, answer("99"))).await;
        let waiting =
            Engine::start(move |_| Say::When(Arc::clone(&waits), Box::new(Say::Json(200, answer("99")))))
                .await;
        let first = if connector == ConnectorKind::Sglang { &waiting } else { &decode };
        let house = House::open(connector, &[&dead, &busy, &prefill], &[first], usual).await;
        let got = post(house.address, ASK).await;
        assert_eq!((got.status, got.body), (200, answer("64")), "{connector}");
        let record = house.record().await;
        let mut tries = attempts(&record);
        // SGLang's two answers come in any order.
        tries[2..].sort();
        assert_eq!(
            tries,
            ["p1 prefill connect", "p2 prefill 503", "d1 decode 200", "p3 prefill 200"],
            "{connector}"
        );

        let (dead, busy) = (Engine::dead(), Engine::start(|_| refused(503)).await);
        let house = House::open(connector, &[&prefill], &[&dead, &busy, &decode], usual).await;
        assert_eq!(post(house.address, ASK).await.status, 200, "{connector}");
        let record = house.record().await;
        let tries = attempts(&record);
        let decodes: Vec<_> = tries.iter().filter(|tried| tried.starts_with('d')).collect();
        assert_eq!(decodes, ["d1 decode connect", "d2 decode 503", "d3 decode 200"], "{connector}");
    }
}

#[tokio::test]
async fn where_no_prefill_endpoint_is_left_a_decode_endpoint_may_do_all() {
    let decode = Engine::start(|_| Say::Json(200, answer("16"))).await;
    let (dead, busy) = (Engine::dead(), Engine::start(|_| refused(503)).await);
    for prefills in [vec![], vec![&dead], vec![&dead, &busy], vec![&busy, &dead, &busy, &busy, &busy, &busy]]
    {
        let house = House::open(ConnectorKind::Nixl, &prefills, &[&decode], falling_back).await;
        let got = post(house.address, ASK).await;
        assert_eq!((got.status, got.body), (200, answer("16")), "{} prefill endpoints", prefills.len());
        assert_eq!(decode.seen().last().unwrap().body, ASK);
        let record = house.record().await;
        let reason = if prefills.is_empty() { "no_pair" } else { "prefill_failed" };
        assert_eq!(record.pd_fallback, Some(reason));
        let counted = format!("kvasir_pd_fallback_total{{model=\"m\",reason=\"{reason}\"}} 1");
        assert!(house.gateway.metrics.render().contains(&counted));
        house.hears("completed d1 Some(16)").await;
        assert!(house.told.lines().contains(&"dispatched d1 84".to_owned()), "it prefills, so it costs that");
        let before = decode.seen().len();
        let house = House::open(ConnectorKind::Nixl, &prefills, &[&decode], usual).await;
        assert_eq!(post(house.address, ASK).await.status, 503);
        assert_eq!(decode.seen().len(), before);
    }
}

/// Decision D8: a request that kills engines must not walk the fleet, nor be given to another kind of it.
#[tokio::test]
async fn two_deaths_end_it() {
    let deadly = Engine::start(|_| Say::Close).await;
    let decode = Engine::start(|_| Say::Json(200, answer("16"))).await;
    let house =
        House::open(ConnectorKind::Http, &[&deadly, &deadly, &deadly], &[&decode], falling_back).await;
    let got = post(house.address, ASK).await;
    assert_eq!((got.status, deadly.seen().len(), decode.seen().len()), (502, 2, 0), "{}", got.body);
}

#[tokio::test]
async fn a_slow_prefill_ends_in_time_and_is_not_tried_elsewhere() {
    let slow = Engine::start(|_| Say::Nothing).await;
    let decode = Engine::start(|_| Say::Json(200, answer("16"))).await;
    let house = House::open(ConnectorKind::Http, &[&slow, &slow], &[&decode], |limits| {
        falling_back(limits);
        limits.first_byte_timeout = Duration::from_millis(100);
    })
    .await;
    let got = post(house.address, ASK).await;
    assert_eq!((got.status, slow.seen().len(), decode.seen().len()), (504, 1, 0), "{}", got.body);
    let page = house.gateway.metrics.render();
    assert!(page.contains("kthena_router_request_prefill_duration_seconds_count{model=\"m\",path=\"/v1/chat/completions\",status_code=\"504\"} 1"), "{page}");
}

#[tokio::test]
async fn sglangs_engines_are_asked_at_once_and_meet_in_one_room() {
    let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait, last) = (Arc::clone(&go), Arc::clone(&done));
    let prefill = Engine::start(move |_| Say::When(Arc::clone(&wait), Box::new(prefilled()))).await;
    let decode =
        Engine::start(move |_| Say::When(Arc::clone(&last), Box::new(Say::Events(stream("0"))))).await;
    let house = House::open(ConnectorKind::Sglang, &[&prefill], &[&decode], usual).await;
    let client = send(house.address, ASK_STREAM).await;
    prefill.asked(1).await;
    decode.asked(1).await;
    assert_eq!(house.in_flight(), 2);
    go.notify_one();
    house.hears("completed p1 Some(64)").await;
    done.notify_one();
    let got = finish(client).await;
    assert_eq!((got.status, got.body, got.whole), (200, stream("64").concat(), true));
    let (first, second) = (prefill.seen()[0].json(), decode.seen()[0].json());
    assert!(first["bootstrap_room"].is_u64() && first["bootstrap_room"] == second["bootstrap_room"]);
    assert_eq!(
        (&first["bootstrap_host"], &second["bootstrap_host"]),
        (&json!("127.0.0.1"), &json!("127.0.0.1"))
    );
    assert!(second.get("bootstrap_port").is_none(), "the engine knows its own");
    assert!(first.get("stream").is_none() && first["max_tokens"] == 1 && first.get("min_tokens").is_none());
    assert!(second["stream"] == true && second["min_tokens"] == 3);
    house.hears("completed d1 None").await;
    assert_eq!(house.in_flight(), 0);
}

#[tokio::test]
async fn a_prefill_that_fails_first_ends_the_decode_and_the_next_try_has_another_room() {
    let prefill = Engine::start(|number| if number == 0 { refused(503) } else { prefilled() }).await;
    let decode =
        Engine::start(|number| if number == 0 { Say::Nothing } else { Say::Json(200, answer("99")) }).await;
    let house = House::open(ConnectorKind::Sglang, &[&prefill, &prefill], &[&decode], usual).await;
    assert_eq!(post(house.address, ASK).await.status, 200);
    decode.left(1).await;
    let rooms: Vec<_> = decode.seen().iter().map(|seen| seen.json()["bootstrap_room"].clone()).collect();
    assert!(rooms.len() == 2 && rooms[0] != rooms[1], "{rooms:?}");
}

#[tokio::test]
async fn a_decode_that_refuses_ends_the_prefill() {
    let prefill = Engine::start(|_| Say::Nothing).await;
    let decode = Engine::start(|_| refused(422)).await;
    let house = House::open(ConnectorKind::Sglang, &[&prefill], &[&decode], usual).await;
    assert_eq!(post(house.address, ASK).await.status, 422);
    prefill.left(1).await;
    house.hears("failed p1").await;
}

#[tokio::test]
async fn a_late_error_of_the_prefill_spoils_no_answer() {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let prefill = Engine::start(move |_| Say::When(Arc::clone(&wait), Box::new(refused(500)))).await;
    let decode = Engine::start(|_| Say::Json(200, answer("99"))).await;
    let house = House::open(ConnectorKind::Sglang, &[&prefill], &[&decode], |limits| {
        limits.first_byte_timeout = Duration::from_secs(5);
    })
    .await;
    let client = send(house.address, ASK).await;
    house.hears("first_byte d1").await;
    go.notify_one();
    let got = finish(client).await;
    assert_eq!((got.status, got.body, got.whole), (200, answer("null"), true), "nobody knows");
    let record = house.record().await;
    assert_eq!(attempts(&record), ["d1 decode 200", "p1 prefill 500"]);
    assert_eq!(record.outcome.unwrap().usage.unwrap().cached_tokens, None);
}

#[tokio::test]
async fn nothing_is_tried_again_once_the_client_has_the_first_byte() {
    let prefill = Engine::start(|_| prefilled()).await;
    let cut = Engine::start(|_| Say::Cut(stream("96").remove(0))).await;
    let other = Engine::start(|_| Say::Events(stream("96"))).await;
    for connector in [ConnectorKind::Nixl, ConnectorKind::Sglang] {
        let house = House::open(connector, &[&prefill], &[&cut, &other], falling_back).await;
        let got = post(house.address, ASK_STREAM).await;
        assert_eq!((got.status, got.body, got.whole), (200, stream("96").remove(0), false));
        assert!(other.seen().is_empty());
        house.hears("failed d1").await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_both_engines() {
    let prefill = Engine::start(|_| Say::Nothing).await;
    let decode = Engine::start(|_| Say::Nothing).await;
    let house = House::open(ConnectorKind::Http, &[&prefill], &[&decode], usual).await;
    let client = send(house.address, ASK).await;
    prefill.asked(1).await;
    drop(client);
    prefill.left(1).await;
    house.hears("failed p1").await;
    assert_eq!(house.record().await.outcome.unwrap().status, 499);
    assert_eq!((house.in_flight(), decode.seen().len()), (0, 0));
    let house = House::open(ConnectorKind::Sglang, &[&prefill], &[&decode], usual).await;
    let client = send(house.address, ASK).await;
    prefill.asked(2).await;
    decode.asked(1).await;
    drop(client);
    prefill.left(2).await;
    decode.left(1).await;
    house.record().await;
    assert_eq!(house.in_flight(), 0);
}
