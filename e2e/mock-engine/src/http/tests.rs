//! The HTTP surface from the outside.

mod client;
mod faults;
mod parts;
mod prompts;
mod streams;

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use crate::config::{Answer, Encoding, EngineConfig, EventsConfig};
use crate::engine::Engine;
use crate::tokenize::{Tokenize, WordTokenizer};
use client::{Client, eventually};
use kvasir_core::{EngineKind, RequestKind};

/// An engine whose model takes no time.
async fn engine(change: impl FnOnce(&mut EngineConfig)) -> (Engine, Client) {
    let mut config = EngineConfig {
        model: "m".to_owned(),
        adapters: vec!["sql".to_owned()],
        prefill_us_per_token: 0.0,
        decode_us_per_token: 0.0,
        ..EngineConfig::default()
    };
    change(&mut config);
    let engine = Engine::start(config).await.expect("starts");
    let client = Client::new(&engine);
    (engine, client)
}

#[tokio::test]
async fn a_chat_answer_has_the_shape_and_the_usage() {
    let (engine, client) = engine(|_| {}).await;
    let ask =
        json!({"model": "m", "messages": [{"role": "user", "content": "word ".repeat(60)}], "max_tokens": 5});
    let first = client.post("/v1/chat/completions", &ask).await.json();
    assert_eq!(first["object"], "chat.completion");
    assert_eq!(first["choices"][0]["message"]["role"], "assistant");
    assert_eq!(first["choices"][0]["finish_reason"], "length");
    assert_eq!(first["usage"]["completion_tokens"], 5);
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let tokens = WordTokenizer.encode(RequestKind::Chat, &ask.to_string().into()).expect("encodes");
    assert_eq!(first["usage"]["prompt_tokens"], tokens.len());
    let reusable = (tokens.len() - 1) / 16 * 16;
    assert_eq!(engine.cached_prefix_tokens(&tokens, None, None), reusable);
    assert_eq!(engine.cached_prefix_tokens(&tokens, Some("sql"), None), 0);
    assert_eq!(engine.cached_prefix_tokens(&tokens, None, Some("salt")), 0);
    let second = client.post("/v1/chat/completions", &ask).await.json();
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], reusable);
    assert_eq!(second["choices"][0]["message"]["content"], first["choices"][0]["message"]["content"]);
    let mut adapted = ask.clone();
    adapted["model"] = "sql".into();
    let other = client.post("/v1/chat/completions", &adapted).await.json();
    assert_eq!(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "an adapter shares nothing");
    assert_eq!(other["model"], "sql");
}

#[tokio::test]
async fn cached_tokens_are_told_only_where_the_engine_is_asked_to() {
    let (_engine, client) = engine(|config| config.report_cached_tokens = false).await;
    let ask = json!({"model": "m", "prompt": "hello"});
    let answer = client.post("/v1/completions", &ask).await.json();
    assert!(answer["usage"]["prompt_tokens_details"].is_null());
}

#[tokio::test]
async fn lengths_are_honoured() {
    let (_engine, client) = engine(|config| config.answer_tokens = 6).await;
    for (ask, tokens, reason) in [
        (json!({}), 6, "stop"),
        (json!({"max_tokens": 4}), 4, "length"),
        (json!({"max_tokens": 40}), 6, "stop"),
        (json!({"max_tokens": 40, "ignore_eos": true}), 40, "length"),
        (json!({"max_completion_tokens": 3, "max_tokens": 9}), 3, "length"),
    ] {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        for (key, value) in ask.as_object().expect("an object") {
            body[key] = value.clone();
        }
        let answer = client.post("/v1/chat/completions", &body).await.json();
        assert_eq!(answer["usage"]["completion_tokens"], tokens, "{ask}");
        assert_eq!(answer["choices"][0]["finish_reason"], reason, "{ask}");
    }
    let zero = json!({"model": "m", "prompt": "x", "max_tokens": 0});
    assert_eq!(client.post("/v1/completions", &zero).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_echo_repeats_the_last_text() {
    let (_engine, client) = engine(|config| config.answer = Answer::Echo).await;
    let ask = json!({"model": "m", "messages": [
        {"role": "user", "content": "no"},
        {"role": "user", "content": [{"type": "text", "text": "say \"it\" again"}]},
    ]});
    let answer = client.post("/v1/chat/completions", &ask).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "say \"it\" again");
}

#[tokio::test]
async fn refusals_have_the_engines_shape() {
    let (_engine, client) = engine(|config| {
        config.kv_blocks = 9;
        config.max_body_bytes = 4096;
    })
    .await;
    let unknown = client.post("/v1/chat/completions", &json!({"model": "nope", "messages": []})).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(
        unknown.json(),
        json!({"error": {
            "message": "The model `nope` does not exist.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }})
    );
    let malformed = client.send(Method::POST, "/v1/chat/completions", b"{\"model\":".to_vec()).await;
    assert_eq!(malformed.status, StatusCode::BAD_REQUEST);
    assert_eq!(malformed.json()["error"]["type"], "BadRequestError");
    let long = json!({"model": "m", "prompt": "word ".repeat(200)});
    assert_eq!(client.post("/v1/completions", &long).await.status, StatusCode::BAD_REQUEST);
    let path = client.post("/v1/nothing", &json!({})).await;
    assert_eq!((path.status, path.json()), (StatusCode::NOT_FOUND, json!({"detail": "Not Found"})));
    let large = client.send(Method::POST, "/v1/completions", vec![b' '; 5000]).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_full_queue_turns_requests_away() {
    let (engine, client) = engine(|config| {
        config.max_queued = Some(1);
        config.prefill_us_per_token = 1e9;
    })
    .await;
    let ask = json!({"model": "m", "prompt": "hello there"});
    let waiting: Vec<_> = (1..=2)
        .map(|_| {
            let (client, ask) = (client.clone(), ask.clone());
            tokio::spawn(async move { client.post("/v1/completions", &ask).await })
        })
        .collect();
    eventually("one runs and one waits", || engine.backlog().queued == 1 && engine.backlog().prefilling == 1)
        .await;
    let refused = client.post("/v1/completions", &ask).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.json()["error"]["type"], "Service Unavailable");
    assert_eq!(refused.headers["connection"], "close");
    let page = client.get("/metrics").await.text();
    assert!(
        page.contains("vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_reqs\"} 1")
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("leaving clients cancel their requests", || engine.backlog() == Default::default()).await;
}

#[tokio::test]
async fn side_paths_answer_like_vllm() {
    let (engine, client) = engine(|_| {}).await;
    assert_eq!(client.get("/health").await.status, StatusCode::OK);
    assert_eq!(client.get("/load").await.json(), json!({"server_load": 0}));
    assert_eq!(client.get("/version").await.json(), json!({"version": "0.32.0"}));
    let models = client.get("/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "m");
    assert_eq!(models["data"][1]["parent"], "m");
    assert!(models["data"][1]["max_model_len"].is_null());
    let sources = client.get("/kv_event_sources").await.json();
    let bound = engine.kv_events().expect("has events").events;
    let port = bound.rsplit(':').next().expect("has a port");
    assert_eq!(sources["0"]["endpoint"], format!("tcp://*:{port}"));
    assert_eq!(sources["0"]["topic"], "kv-events");
    let ask = json!({"model": "m", "prompt": "Hello, world!", "return_token_strs": true});
    let tokens = client.post("/tokenize", &ask).await.json();
    assert_eq!(tokens["count"], 6);
    assert_eq!(tokens["token_strs"][0], "Hell");
    let back = client.post("/detokenize", &json!({"model": "m", "tokens": tokens["tokens"]})).await.json();
    assert_eq!(back, json!({"prompt": "Hello, world!"}));
    let list = client.post("/tokenize", &json!({"prompt": ["a"]})).await;
    assert_eq!(list.status, StatusCode::BAD_REQUEST);
    let messages = json!([{"role": "user", "content": "hi"}]);
    let chat = client.post("/tokenize", &json!({"messages": messages})).await.json();
    let answer = client.post("/v1/chat/completions", &json!({"messages": messages})).await.json();
    assert_eq!(answer["usage"]["prompt_tokens"], chat["count"]);
}

#[tokio::test]
async fn the_kinds_of_engines_differ_where_they_do() {
    let array = EventsConfig { encoding: Encoding::Array, ..EventsConfig::default() };
    let (_old, client) = engine(|config| config.events = Some(array)).await;
    assert_eq!(client.get("/kv_event_sources").await.status, StatusCode::NOT_FOUND);
    assert_eq!(client.get("/version").await.json(), json!({"version": "0.18.0"}));
    let (_silent, client) = engine(|config| config.events = None).await;
    assert_eq!(client.get("/kv_event_sources").await.json(), json!({}));
    let (_sglang, client) = engine(|config| config.kind = EngineKind::Sglang).await;
    assert_eq!(client.get("/kv_event_sources").await.status, StatusCode::NOT_FOUND);
    assert_eq!(client.get("/get_model_info").await.json()["served_model_name"], "m");
    let page = client.get("/metrics").await.text();
    for name in ["num_running_reqs", "num_queue_reqs", "token_usage", "time_to_first_token_seconds_bucket"] {
        assert!(page.contains(&format!("sglang:{name}{{model_name=\"m\"")), "{name}");
    }
    assert!(!page.contains("vllm:"));
}

#[tokio::test]
async fn metrics_have_vllms_names_and_true_values() {
    let (_engine, client) = engine(|_| {}).await;
    let ask = json!({"model": "m", "prompt": (0..40).collect::<Vec<u32>>(), "max_tokens": 3});
    for _ in 0..2 {
        client.post("/v1/completions", &ask).await;
    }
    let page = client.get("/metrics").await.text();
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 80.0",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 32.0",
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 80.0",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 6.0",
        "vllm:request_success_total{engine=\"0\",model_name=\"m\",finished_reason=\"length\"} 2.0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 2.0",
        "vllm:inter_token_latency_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 4.0",
    ] {
        assert!(page.lines().any(|have| have == line), "missing: {line}");
    }
    assert!(page.contains("block_size=\"16\""));
    assert!(page.contains("num_gpu_blocks=\"4096\""));
}

#[tokio::test]
async fn embeddings_and_audio_are_answered() {
    let (engine, client) = engine(|_| {}).await;
    let ask =
        json!({"model": "m", "input": ["a text", "another text that is longer than one block of tokens is"]});
    let answer = client.post("/v1/embeddings", &ask).await.json();
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(engine.stats().cached_blocks, 0, "embeddings pass the cache by");
    let form = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--b--\r\n";
    let kind = ("content-type", "multipart/form-data; boundary=b");
    let answer = client.send_with(Method::POST, "/v1/audio/transcriptions", form, &[kind]).await;
    assert_eq!(answer.json()["usage"], json!({"type": "duration", "seconds": 1}));
}

#[tokio::test]
async fn http2_without_tls_works_and_requests_are_recorded() {
    let (engine, client) = engine(|_| {}).await;
    let client = client.http2();
    let ask = json!({"model": "m", "prompt": "hello", "stream": true});
    let headers = [("x-test", "yes"), ("content-type", "application/json")];
    let answer = client.send_with(Method::POST, "/v1/completions?a=b", ask.to_string(), &headers).await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    let requests = engine.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, "/v1/completions?a=b");
    assert_eq!(requests[0].version, http::Version::HTTP_2);
    assert_eq!(requests[0].headers["x-test"], "yes");
    assert_eq!(requests[0].body, ask.to_string());
    engine.clear_requests();
    assert!(engine.requests().is_empty());
}

#[tokio::test]
async fn a_reset_empties_the_cache() {
    let (engine, client) = engine(|_| {}).await;
    let tokens: Vec<u32> = (0..40).collect();
    client.post("/v1/completions", &json!({"model": "m", "prompt": tokens})).await;
    assert_eq!(engine.cached_prefix_tokens(&tokens, None, None), 32);
    assert_eq!(client.post("/reset_prefix_cache", &json!({})).await.status, StatusCode::OK);
    assert_eq!(engine.cached_prefix_tokens(&tokens, None, None), 0);
}

#[tokio::test]
async fn a_restart_cuts_connections_and_forgets() {
    let (engine, client) = engine(|config| config.decode_us_per_token = 1e6).await;
    let tokens: Vec<u32> = (0..40).collect();
    let ask = json!({"model": "m", "prompt": tokens, "stream": true});
    let mut stream = client.open("/v1/completions", &ask).await;
    stream.next().await.expect("an event").expect("no error");
    let url = engine.url();
    engine.restart().await.expect("restarts");
    assert!(stream.next().await.is_some_and(|event| event.is_err()), "the stream is cut, not ended");
    assert_eq!(engine.url(), url);
    assert_eq!(engine.cached_prefix_tokens(&tokens, None, None), 0);
    assert_eq!(client.get("/health").await.status, StatusCode::OK);
    engine.stop().await;
    assert!(client.try_send(Method::GET, "/health", Vec::new(), &[]).await.is_err());
    assert_eq!(client.patience(), Duration::from_secs(10));
}
