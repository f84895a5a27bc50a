//! Answers of other shapes than usual.

use super::*;

fn raw(head: &str, body: &str) -> Vec<u8> {
    format!("{head}\r\ncontent-type: application/json\r\n\r\n{body}").into_bytes()
}

/// Without a length the end of the connection ends the answer.
#[tokio::test]
async fn engines_that_speak_http_1_0_are_understood() {
    let body = format!(r#"{{"usage":{}, "kv_transfer_params": {PARAMS}}}"#, usage("64"));
    let prefill = Engine::start(move |_| Say::Raw(raw("HTTP/1.0 200 OK", &body))).await;
    let decode = Engine::start(|_| Say::Raw(raw("HTTP/1.0 200 OK", &answer("99")))).await;
    let house = House::open(ConnectorKind::Nixl, &[&prefill], &[&decode], usual).await;
    let got = post(house.address, ASK).await;
    assert_eq!((got.status, got.body, got.whole), (200, answer("64"), true));
    assert_eq!(decode.seen()[0].json()["kv_transfer_params"]["remote_host"], "h");
}

#[tokio::test]
async fn an_answer_without_a_body_is_one() {
    let nothing = || Say::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let prefill = Engine::start(move |_| nothing()).await;
    let decode = Engine::start(move |_| nothing()).await;
    for connector in [ConnectorKind::Http, ConnectorKind::Sglang] {
        let house = House::open(connector, &[&prefill], &[&decode], usual).await;
        let got = post(house.address, ASK).await;
        assert_eq!((got.status, got.body.as_str()), (204, ""), "{connector}");
        house.hears("completed d1 None").await;
        house.hears("completed p1 None").await;
        house.record().await;
        assert_eq!(house.in_flight(), 0);
    }
    let house = House::open(ConnectorKind::Nixl, &[&prefill], &[&decode], usual).await;
    assert_eq!(post(house.address, ASK).await.status, 502, "nobody said where the cache is");
}

/// Engines are not asked for compressed answers; one that compresses all the same is not taken apart.
#[tokio::test]
async fn what_is_no_json_passes_to_the_byte() {
    let prefill = Engine::start(|_| prefilled()).await;
    for body in
        ["\u{1f}\u{8b} not read", "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":99}}", "[]"]
    {
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {length}");
        let said = raw(&head, body);
        let decode = Engine::start(move |_| Say::Raw(said.clone())).await;
        let house = House::open(ConnectorKind::Nixl, &[&prefill], &[&decode], usual).await;
        let got = post(house.address, ASK).await;
        assert_eq!((got.status, got.body.as_str(), got.whole), (200, body, true));
        assert_eq!(value_of(&got.head, "content-encoding").as_deref(), Some("gzip"));
    }
}

/// A prefill answer is read to its end, however long, and little of it is kept; past a bound it is none.
#[tokio::test]
async fn a_prefill_answer_is_read_up_to_a_bound() {
    for (padding, status) in [(3 << 20, 200), (65 << 20, 502)] {
        let prefill = Engine::start(move |_| {
            let text = "x".repeat(padding);
            Say::Json(200, format!(r#"{{"choices":"{text}","kv_transfer_params": {PARAMS}}}"#))
        })
        .await;
        let decode = Engine::start(|_| Say::Json(200, answer("99"))).await;
        let house = House::open(ConnectorKind::Nixl, &[&prefill], &[&decode], usual).await;
        assert_eq!(post(house.address, ASK).await.status, status);
        house.record().await;
        assert_eq!((house.in_flight(), house.gateway.buffers.held()), (0, 0));
    }
}
