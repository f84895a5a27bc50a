use std::time::Duration;

use kvasir_core::RequestKind;
use serde_json::json;

use super::*;
use crate::request::MAX_TEXT_BYTES;
use crate::testing::{FakeClient, FakeDirectory, ManualClock, answer, request, tokens};

/// More than a busy machine needs to build a body.
const TIME: Duration = Duration::from_secs(20);

struct Fixture {
    client: Arc<FakeClient>,
    clock: Arc<ManualClock>,
    source: RemoteSource,
}

fn engine(kind: EngineKind, urls: &[&str]) -> Fixture {
    let remote = Remote::Engine {
        directory: FakeDirectory::new(kind, urls),
        vllm_port: None,
        sglang_port: Some(9_000),
    };
    fixture(remote)
}

fn fixture(remote: Remote) -> Fixture {
    let client = FakeClient::new([]);
    let clock = ManualClock::new();
    let source = RemoteSource::new(remote, client.clone(), clock.clone());
    Fixture { client, clock, source }
}

async fn ask(
    fixture: &Fixture,
    kind: RequestKind,
    body: serde_json::Value,
) -> Result<Vec<u32>, TokenizeError> {
    let asked = fixture.source.encode(&request(kind, &body), Pool::process(), TIME).await;
    asked.map_err(TokenizeError::from)
}

fn chat() -> serde_json::Value {
    json!({"model": "alias", "messages": [{"role": "user", "content": "hi"}]})
}

fn reason(result: Result<Vec<u32>, TokenizeError>) -> String {
    match result {
        Err(TokenizeError::Remote { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_completion_is_asked_for_under_the_served_name() {
    let fixture = engine(EngineKind::Vllm, &["http://a:8000/base"]);
    fixture.client.answer(tokens(&[1, 2]));
    let body = json!({"model": "alias", "prompt": ["h\"i"], "max_tokens": 3});
    assert_eq!(ask(&fixture, RequestKind::Completions, body).await, Ok(vec![1, 2]));
    let calls = fixture.client.calls();
    assert_eq!((calls[0].url.as_str(), calls[0].method.as_str()), ("http://a:8000/base/tokenize", "POST"));
    let expected =
        json!({"model": "m", "prompt": "h\"i", "add_special_tokens": true, "return_token_strs": false});
    assert_eq!(fixture.client.bodies()[0], expected);
}

#[tokio::test]
async fn a_chat_is_spliced_byte_for_byte() {
    let fixture = engine(EngineKind::Vllm, &["http://a:8000"]);
    fixture.client.answer(tokens(&[1]));
    let body = r#"{"model":"alias","stream":true,"messages":[{"role":"user","content":"h\u0069"}],
        "tools":[{"type":"function","function":{"name":"f","parameters":{"z":1e5,"a":2}}}],
        "chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,"temperature":0}"#;
    let mut asked = request(RequestKind::Chat, &json!({}));
    asked.body = Bytes::from_static(body.as_bytes());
    assert_eq!(fixture.source.encode(&asked, Pool::process(), TIME).await, Ok(vec![1]));
    let sent = String::from_utf8(fixture.client.calls()[0].body.to_vec()).unwrap();
    for part in [
        r#""messages":[{"role":"user","content":"h\u0069"}]"#,
        r#"{"z":1e5,"a":2}"#,
        r#""chat_template_kwargs":{"enable_thinking":false}"#,
        r#""add_generation_prompt":false"#,
        r#""add_special_tokens":false"#,
        r#""model":"m""#,
    ] {
        assert!(sent.contains(part), "{part} is not in {sent}");
    }
    assert!(!sent.contains("stream") && !sent.contains("temperature"), "{sent}");
}

#[tokio::test]
async fn effort_and_documents_travel_as_template_arguments() {
    let fixture = engine(EngineKind::Vllm, &["http://a:8000"]);
    for (arguments, effort, expected) in [
        (json!(null), "none", json!({"enable_thinking": false, "reasoning_effort": "none"})),
        (json!({}), "low", json!({"enable_thinking": true, "reasoning_effort": "low"})),
        (
            json!({"enable_thinking": true}),
            "none",
            json!({"enable_thinking": true, "reasoning_effort": "none"}),
        ),
    ] {
        fixture.client.answer(tokens(&[1]));
        let mut body = chat();
        body["reasoning_effort"] = json!(effort);
        body["chat_template_kwargs"] = arguments;
        assert_eq!(ask(&fixture, RequestKind::Chat, body).await, Ok(vec![1]));
        assert_eq!(fixture.client.bodies().last().unwrap()["chat_template_kwargs"], expected);
    }
}

#[tokio::test]
async fn sglang_is_asked_in_its_own_form_and_port() {
    let fixture = engine(EngineKind::Sglang, &["http://[fd00::5]:30000"]);
    fixture.client.answer(tokens(&[1]));
    fixture.client.answer(tokens(&[1]));
    assert!(ask(&fixture, RequestKind::Completions, json!({"prompt": "x"})).await.is_ok());
    assert!(ask(&fixture, RequestKind::Chat, chat()).await.is_ok());
    assert_eq!(fixture.client.calls()[0].url, "http://[fd00::5]:9000/tokenize");
    assert_eq!(fixture.client.bodies()[0], json!({"model": "m", "prompt": "x", "add_special_tokens": true}));
    let expected = json!({"model": "m", "messages": chat()["messages"], "add_special_tokens": false});
    assert_eq!(fixture.client.bodies()[1], expected);
}

#[tokio::test]
async fn what_cannot_be_asked_exactly_is_not_asked() {
    let fixture = engine(EngineKind::Vllm, &["http://a:8000"]);
    for (kind, body, label) in [
        (RequestKind::Messages, chat(), "not_tokenizable"),
        (RequestKind::Completions, json!({"prompt": ["a", "b"]}), "not_tokenizable"),
        (RequestKind::Completions, json!({"prompt": "a", "suffix": "b"}), "inexact"),
        (RequestKind::Completions, json!({"prompt": null}), "invalid"),
        (RequestKind::Chat, json!({"messages": null}), "invalid"),
        (RequestKind::Chat, json!({"messages": [{"reasoning_content": "x"}]}), "inexact"),
        (RequestKind::Chat, json!({"messages": [], "truncate_prompt_tokens": 5}), "inexact"),
        (RequestKind::Chat, json!({"messages": [], "prompt_embeds": "x"}), "inexact"),
        (RequestKind::Chat, json!({"messages": [], "input_ids": [1]}), "inexact"),
        (
            RequestKind::Chat,
            json!({"messages": [], "kv_transfer_params": {"prompt_token_ids": [1]}}),
            "inexact",
        ),
        (RequestKind::Chat, json!({"messages": [{"content": [{"type": "image_url"}]}]}), "inexact"),
        (RequestKind::Chat, json!({"messages": [{"content": 1}]}), "inexact"),
        (RequestKind::Chat, json!({"messages": [{"content": "x".repeat(MAX_TEXT_BYTES)}]}), "inexact"),
    ] {
        let error = ask(&fixture, kind, body.clone()).await.unwrap_err();
        assert_eq!(error.label(), label, "{body}");
    }
    assert!(fixture.client.calls().is_empty());
    assert!(fixture.source.is_open());
}

#[tokio::test]
async fn what_changes_the_prompt_travels_where_it_is_known() {
    let with = |name: &str, value: serde_json::Value| {
        let mut body = chat();
        body[name] = value;
        body
    };
    let template = with("chat_template", json!("{{ messages }}"));
    let named = json!({"type": "function", "function": {"name": "f"}});
    let choice = with("tool_choice", named.clone());
    let fixture = engine(EngineKind::Vllm, &["http://a:8000"]);
    fixture.client.answer(tokens(&[1]));
    assert!(ask(&fixture, RequestKind::Chat, template.clone()).await.is_ok());
    assert_eq!(fixture.client.bodies()[0]["chat_template"], "{{ messages }}");
    fixture.client.answer(tokens(&[1]));
    assert!(ask(&fixture, RequestKind::Chat, choice.clone()).await.is_ok());
    assert!(fixture.client.bodies()[1].get("tool_choice").is_none());
    let fixture = engine(EngineKind::Sglang, &["http://a:8000"]);
    assert_eq!(ask(&fixture, RequestKind::Chat, template).await.unwrap_err().label(), "inexact");
    fixture.client.answer(tokens(&[1]));
    assert!(ask(&fixture, RequestKind::Chat, choice).await.is_ok());
    assert_eq!(fixture.client.bodies()[0]["tool_choice"], named);
}

/// Occupies the threads of a pool until the returned senders are dropped.
fn busy(pool: &Pool) -> Vec<std::sync::mpsc::Sender<()>> {
    let occupy = |lane| {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        pool.submit(lane, move || {
            let _ = wait.recv();
        })
        .unwrap();
        release
    };
    let releases = [Lane::Long, Lane::Short].map(occupy);
    while pool.waiting() != (0, 0) {
        std::thread::yield_now();
    }
    releases.into()
}

/// TOK-12
#[tokio::test]
async fn time_that_was_lost_before_the_call_is_not_the_sources_fault() {
    let pool = Pool::new(crate::pool::PoolSizes { threads: 1, ..Default::default() });
    for (lost, called) in [(9, true), (11, false)] {
        let fixture = fixture(Remote::Service("http://tokenizer:8100".to_owned()));
        fixture.client.answer(tokens(&[1]));
        let releases = busy(&pool);
        let request = request(RequestKind::Chat, &chat());
        let asking = fixture.source.encode(&request, &pool, TIME);
        let waiting = async {
            while pool.waiting() == (0, 0) {
                tokio::task::yield_now().await;
            }
            fixture.clock.advance(Duration::from_secs(lost));
            drop(releases);
        };
        let (asked, ()) = tokio::join!(asking, waiting);
        assert_eq!(asked.is_ok(), called, "{asked:?}");
        assert_eq!(fixture.client.calls().len(), usize::from(called));
        assert!(fixture.source.is_open());
    }
}

/// TOK-12
#[tokio::test]
async fn a_long_prompt_that_takes_too_long_is_no_reason_to_leave_short_ones_without() {
    let fixture = fixture(Remote::Service("http://tokenizer:8100".to_owned()));
    let long = || json!({"messages": [{"role": "user", "content": "x".repeat(20_000)}]});
    fixture.client.answer(Err(SideError::Timeout));
    assert_eq!(reason(ask(&fixture, RequestKind::Chat, long()).await), "timed out");
    assert_eq!(reason(ask(&fixture, RequestKind::Chat, long()).await), "not asked after earlier failures");
    fixture.client.answer(tokens(&[1]));
    assert_eq!(ask(&fixture, RequestKind::Chat, chat()).await, Ok(vec![1]));
    fixture.clock.advance(Duration::from_millis(500));
    fixture.client.answer(tokens(&[2]));
    assert_eq!(ask(&fixture, RequestKind::Chat, long()).await, Ok(vec![2]));
}

/// TOK-12
#[tokio::test]
async fn failures_are_counted_and_not_repeated_at_once() {
    for (failure, expected) in [
        (Err(SideError::Connect("refused".to_owned())), "connection failed"),
        (Err(SideError::Timeout), "timed out"),
        (Err(SideError::TooLarge(5)), "the answer is too large"),
        (answer(500, ""), "status 500"),
        (answer(401, ""), "status 401"),
        (answer(404, "{}"), "status 404"),
        (answer(200, "<html>"), "the answer is not understood"),
        (answer(200, "{\"tokens\":[1],\"count\":2}"), "the answer's count differs from its ids"),
    ] {
        let fixture = fixture(Remote::Service("http://tokenizer:8100/".to_owned()));
        fixture.client.answer(failure);
        assert_eq!(reason(ask(&fixture, RequestKind::Chat, chat()).await), expected);
        assert_eq!(
            reason(ask(&fixture, RequestKind::Chat, chat()).await),
            "not asked after earlier failures",
            "{expected}"
        );
        assert_eq!(fixture.client.calls().len(), 1);
        assert_eq!(fixture.client.calls()[0].url, "http://tokenizer:8100/tokenize");
        fixture.clock.advance(Duration::from_millis(500));
        fixture.client.answer(tokens(&[9]));
        assert_eq!(ask(&fixture, RequestKind::Chat, chat()).await, Ok(vec![9]));
        assert!(fixture.source.is_open());
    }
}

#[tokio::test]
async fn a_loading_source_is_left_alone_longer() {
    let fixture = fixture(Remote::Service("http://tokenizer:8100".to_owned()));
    fixture.client.answer(answer(503, "{\"error\":\"loading\"}"));
    assert_eq!(reason(ask(&fixture, RequestKind::Chat, chat()).await), "loading");
    fixture.clock.advance(LOADING_PAUSE - Duration::from_millis(1));
    assert!(!fixture.source.is_open());
    fixture.clock.advance(Duration::from_millis(1));
    assert!(fixture.source.is_open());
}

#[tokio::test]
async fn a_source_says_how_long_it_wants_to_be_left_alone() {
    for (said, seconds) in [("7", 7), ("0", 1), ("86400", 60), ("tomorrow", 5)] {
        for (status, reason) in [(503, "loading"), (429, "too busy")] {
            let fixture = fixture(Remote::Service("http://tokenizer:8100".to_owned()));
            let mut busy = answer(status, "").unwrap();
            busy.headers.insert("retry-after", said.parse().unwrap());
            fixture.client.answer(Ok(busy));
            assert_eq!(self::reason(ask(&fixture, RequestKind::Chat, chat()).await), reason);
            fixture.clock.advance(Duration::from_secs(seconds) - Duration::from_millis(1));
            assert!(!fixture.source.is_open(), "{said}");
            fixture.clock.advance(Duration::from_millis(1));
            assert!(fixture.source.is_open(), "{said}");
        }
    }
}

#[tokio::test]
async fn a_refusal_is_no_failure_of_the_source() {
    for status in [400, 413, 422] {
        let fixture = fixture(Remote::Service("http://tokenizer:8100".to_owned()));
        fixture.client.answer(answer(status, "{}"));
        let asked = fixture.source.encode(&request(RequestKind::Chat, &chat()), Pool::process(), TIME).await;
        assert_eq!(asked, Err(RemoteError::Refused { status }));
        assert!(fixture.source.is_open());
    }
}

#[tokio::test]
async fn one_other_pod_is_tried_when_the_first_does_not_connect() {
    let fixture = engine(EngineKind::Vllm, &["http://a:1", "http://b:1", "http://c:1"]);
    fixture.client.answer(Err(SideError::Connect("refused".to_owned())));
    fixture.client.answer(tokens(&[4]));
    assert_eq!(ask(&fixture, RequestKind::Chat, chat()).await, Ok(vec![4]));
    let urls: Vec<_> = fixture.client.calls().iter().map(|call| call.url.clone()).collect();
    assert_eq!(urls, ["http://a:1/tokenize", "http://b:1/tokenize"]);
    fixture.client.answer(tokens(&[5]));
    assert_eq!(ask(&fixture, RequestKind::Chat, chat()).await, Ok(vec![5]));
    assert_eq!(fixture.client.calls()[2].url, "http://b:1/tokenize", "the pods take turns");
    assert_eq!(reason(ask(&fixture, RequestKind::Chat, chat()).await), "connection failed");
    assert_eq!(fixture.client.calls().len(), 5, "one other pod, not all");
}

#[tokio::test]
async fn without_endpoints_nobody_is_blamed() {
    let fixture = engine(EngineKind::Vllm, &[]);
    assert_eq!(reason(ask(&fixture, RequestKind::Chat, chat()).await), "no endpoint");
    assert!(fixture.source.is_open());
}

#[test]
fn the_budget_is_a_tenth_of_the_prefill_within_bounds() {
    for (bytes, milliseconds) in [(0, 10), (4_000, 10), (40_000, 100), (80_000, 200), (10_000_000, 250)] {
        assert_eq!(budget(bytes), Duration::from_millis(milliseconds), "{bytes}");
    }
}
