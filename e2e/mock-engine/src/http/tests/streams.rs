//! Streamed answers, event by event.

use serde_json::{Value, json};

use super::client::eventually;
use super::engine;

#[tokio::test]
async fn a_chat_stream_has_role_pieces_reason_and_done() {
    let (_engine, client) = engine(|_| {}).await;
    let mut ask = json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 3,
    });
    let reply = client.post("/v1/chat/completions", &ask).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    assert!(reply.text().ends_with("\n\ndata: [DONE]\n\n"));
    let events = reply.events();
    assert_eq!(events.len(), 4);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(events[2]["choices"][0]["finish_reason"].is_null());
    assert_eq!(events[3]["choices"][0]["finish_reason"], "length");
    assert!(events.iter().all(|event| event["usage"].is_null()), "no usage without being asked");
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
    ask["stream_options"] = json!({"include_usage": true});
    let events = client.post("/v1/chat/completions", &ask).await.events();
    let last = events.last().expect("events");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 3);
    ask["stream"] = false.into();
    let whole = client.post("/v1/chat/completions", &ask).await.json();
    let pieces: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], pieces);
}

#[tokio::test]
async fn a_messages_stream_speaks_anthropic() {
    let (_engine, client) = engine(|_| {}).await;
    let ask = json!({
        "model": "m", "max_tokens": 2, "stream": true, "messages": [{"role": "user", "content": "hi"}],
    });
    let events = client.post("/v1/messages", &ask).await.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert_eq!(events[5]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(events[5]["usage"]["output_tokens"], 2);
    let mut whole = ask;
    whole["stream"] = false.into();
    let answer = client.post("/v1/messages", &whole).await.json();
    assert_eq!(answer["usage"]["input_tokens"], events[0]["message"]["usage"]["input_tokens"]);
    let counted = client.post("/v1/messages/count_tokens", &whole).await.json();
    assert_eq!(counted["input_tokens"], answer["usage"]["input_tokens"]);
}

#[tokio::test]
async fn a_response_can_be_asked_for_again() {
    let (_engine, client) = engine(|_| {}).await;
    let mut ask = json!({"model": "m", "input": "hi", "max_output_tokens": 2, "stream": true});
    let events = client.post("/v1/responses", &ask).await.events();
    assert_eq!(events[0]["type"], "response.created");
    let last = events.last().expect("events");
    assert_eq!(last["type"], "response.completed");
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<u64>>());
    let streamed = &last["response"];
    ask["stream"] = false.into();
    let whole = client.post("/v1/responses", &ask).await.json();
    assert_eq!(whole["output"][0]["content"][0]["text"], streamed["output"][0]["content"][0]["text"]);
    for response in [streamed, &whole] {
        let id = response["id"].as_str().expect("an id");
        assert_eq!(client.get(&format!("/v1/responses/{id}")).await.json(), *response);
    }
    let unknown = client.get("/v1/responses/resp_none").await.json();
    assert_eq!(unknown["error"]["code"], Value::from(404));
}

#[tokio::test]
async fn a_leaving_client_cancels_its_sequences() {
    let (engine, client) = engine(|config| config.decode_us_per_token = 1e6).await;
    for choices in [1, 2] {
        let ask = json!({"model": "m", "prompt": "hello", "stream": true, "n": choices});
        let mut stream = client.open("/v1/completions", &ask).await;
        stream.next().await.expect("an event").expect("no error");
        eventually("all answer", || engine.backlog().decoding == choices).await;
        drop(stream);
        eventually("all are gone", || engine.backlog() == Default::default()).await;
        assert_eq!(engine.stats().used_blocks, 0);
    }
}

#[tokio::test]
async fn events_arrive_when_they_are_made() {
    let (engine, client) = engine(|config| config.decode_us_per_token = 1e9).await;
    let ask = json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true,
    });
    let mut stream = client.open("/v1/chat/completions", &ask).await;
    let mut seen = Vec::new();
    while !seen.windows(9).any(|window| window == b"\"content\"") || seen.ends_with(b"\"\"") {
        seen.extend_from_slice(&stream.next().await.expect("an event").expect("no error"));
    }
    assert_eq!(engine.backlog().decoding, 1, "the second token is far away");
}
