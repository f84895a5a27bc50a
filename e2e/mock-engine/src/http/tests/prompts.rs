//! The forms in which a prompt may come.

use http::StatusCode;
use serde_json::{Value, json};

use super::engine;

#[tokio::test]
async fn completions_take_every_legal_form() {
    let (_engine, client) = engine(|_| {}).await;
    for (prompt, choices, tokens) in [
        (json!("one two"), 1, 2),
        (json!(["one two", "six"]), 2, 3),
        (json!([5, 6, 7]), 1, 3),
        (json!([[5, 6, 7], [8]]), 2, 4),
    ] {
        let ask = json!({"model": "m", "prompt": prompt, "max_tokens": 2});
        let answer = client.post("/v1/completions", &ask).await.json();
        assert_eq!(answer["choices"].as_array().map(Vec::len), Some(choices), "{prompt}");
        assert_eq!(answer["usage"]["prompt_tokens"], tokens, "{prompt}");
        assert_eq!(answer["usage"]["completion_tokens"], 2 * choices, "{prompt}");
    }
}

#[tokio::test]
async fn illegal_forms_are_refused() {
    let (_engine, client) = engine(|_| {}).await;
    for prompt in [json!([]), json!(""), json!(7), json!({"a": 1}), json!(["a", 1]), json!([-1]), json!([[]])]
    {
        let answer = client.post("/v1/completions", &json!({"model": "m", "prompt": prompt})).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{prompt}");
    }
    for messages in [json!([]), json!("hi"), Value::Null] {
        let answer = client.post("/v1/chat/completions", &json!({"model": "m", "messages": messages})).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{messages}");
    }
}

#[tokio::test]
async fn several_choices_share_one_prompt() {
    let (engine, client) = engine(|_| {}).await;
    let ask = json!({"model": "m", "prompt": (0..40).collect::<Vec<u32>>(), "n": 3, "max_tokens": 2});
    let answer = client.post("/v1/completions", &ask).await.json();
    assert_eq!(answer["choices"].as_array().map(Vec::len), Some(3));
    assert_eq!(answer["usage"]["prompt_tokens"], 40, "the prompt counts once");
    assert_eq!(answer["usage"]["completion_tokens"], 6);
    assert_eq!(engine.stats().cached_tokens, 64, "the second and the third choice find it");
    let mut streamed = ask;
    streamed["stream"] = true.into();
    let events = client.post("/v1/completions", &streamed).await.events();
    for choice in 0..3 {
        let own: Vec<&Value> = events.iter().filter(|event| event["choices"][0]["index"] == choice).collect();
        assert_eq!(own.len(), 2);
        assert_eq!(own[1]["choices"][0]["finish_reason"], "length");
    }
}

#[tokio::test]
async fn a_salt_and_prompt_logprobs_keep_the_cache_out() {
    let (engine, client) = engine(|_| {}).await;
    let plain = json!({"model": "m", "prompt": (0..40).collect::<Vec<u32>>(), "max_tokens": 2});
    client.post("/v1/completions", &plain).await;
    for (field, value) in [("cache_salt", json!("tenant")), ("prompt_logprobs", json!(1))] {
        let mut ask = plain.clone();
        ask[field] = value;
        let answer = client.post("/v1/completions", &ask).await.json();
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "{field}");
    }
    let mut echo = plain.clone();
    echo["echo"] = true.into();
    echo["logprobs"] = 1.into();
    let answer = client.post("/v1/completions", &echo).await.json();
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let answer = client.post("/v1/completions", &plain).await.json();
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
    let tokens: Vec<u32> = (0..40).collect();
    assert_eq!(engine.cached_prefix_tokens(&tokens, None, Some("tenant")), 32);
}

#[tokio::test]
async fn long_prompts_are_tokenized_beside_the_event_loop() {
    let (_engine, client) = engine(|_| {}).await;
    let ask = json!({"model": "m", "prompt": "word ".repeat(10_000), "max_tokens": 1});
    let answer = client.post("/v1/completions", &ask).await.json();
    assert_eq!(answer["usage"]["prompt_tokens"], 20_000);
}
