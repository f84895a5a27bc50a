//! Answers: types and errors pass unchanged, usage is counted and hidden where nobody asked, hops stay behind.

use std::io::Write as _;

use bytes::Bytes;
use kvasir_mock_engine::Engine;
use kvasir_suite::client::{post, send};
use kvasir_suite::eventually;
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, last_chunk, stream_head};
use kvasir_suite::socket::Socket;
use serde_json::Value;

use crate::fleet::quick;

const CHAT: &str = "/v1/chat/completions";

/// A streamed chat with more members of the body, as JSON.
fn chat(more: &str) -> String {
    format!(r#"{{"model":"{MODEL}","stream":true{more},"messages":[{{"role":"user","content":"hi"}}]}}"#)
}

/// The head of a chunked answer.
fn head(status: &str, lines: &str) -> Step {
    Step::Send(Bytes::from(format!("HTTP/1.1 {status}\r\n{lines}transfer-encoding: chunked\r\n\r\n")))
}

/// STR-01.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_is_one_however_its_type_is_written() -> anyhow::Result<()> {
    let first = "data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n";
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n";
    for media in [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "TEXT/EVENT-STREAM",
        "text/event-stream  ;x=1",
    ] {
        let script = vec![
            head("200 OK", &format!("content-type: {media}\r\n")),
            Step::Send(chunk(first.as_bytes())),
            Step::Wait,
            Step::Send(chunk(usage.as_bytes())),
            Step::Send(chunk(b"data: [DONE]\n\n")),
            Step::Send(last_chunk()),
        ];
        let engine = Scripted::start(script).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        let mut client = Socket::open(router.inference).await?;
        client.post(CHAT, &chat("")).await?;
        let begun = client.hear_until(first.as_bytes()).await?;
        let spelled = format!("content-type: {media}\r\n");
        assert!(String::from_utf8_lossy(&begun).to_lowercase().contains(&spelled.to_lowercase()), "{media}");
        engine.proceed();
        let rest = client.hear_until(b"0\r\n\r\n").await?;
        assert!(!String::from_utf8_lossy(&rest).contains("usage"), "{media}: taken for a plain body");
    }
    Ok(())
}

/// STR-02.
#[tokio::test(flavor = "multi_thread")]
async fn the_type_of_an_answer_passes_unchanged() -> anyhow::Result<()> {
    for media in [Some("application/json"), Some("audio/wav"), Some("text/event-stream"), None] {
        let line = media.map_or_else(String::new, |media| format!("content-type: {media}\r\n"));
        let script =
            vec![head("200 OK", &line), Step::Send(chunk(b"RIFF\x00\xff\r\n\r\n")), Step::Send(last_chunk())];
        let engine = Scripted::start(script).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        let body = format!(r#"{{"model":"{MODEL}","input":"say it"}}"#);
        let answer = send(router.inference, post("/v1/audio/speech", body)?).await?;
        let shown = answer.headers().get("content-type").map(|value| value.to_str()).transpose()?;
        assert_eq!(shown, media);
        assert_eq!(answer.body().as_ref(), b"RIFF\x00\xff\r\n\r\n");
    }
    Ok(())
}

/// STR-04.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_answer_to_a_stream_request_is_whole() -> anyhow::Result<()> {
    let error = format!("{{\"error\":{{\"message\":\"{}\"}}}}", "x".repeat(156));
    assert_eq!(error.len(), 180);
    for (status, more) in [("400 Bad Request", ""), ("429 Too Many Requests", "Retry-After: 13\r\n")] {
        let lines = format!(
            "HTTP/1.1 {status}\r\n{more}content-type: application/json\r\ncontent-length: 180\r\n\r\n{error}"
        );
        let engine = Scripted::start(vec![Step::Send(lines.into()), Step::Again]).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        let mut client = Socket::open(router.inference).await?;
        client.post(CHAT, &chat("")).await?;
        let heard = client.answer().await?;
        assert_eq!(heard.status.to_string(), status.split(' ').next().unwrap_or_default());
        assert_eq!((heard.header("content-length"), heard.body.as_ref()), (Some("180"), error.as_bytes()));
        assert_eq!(heard.header("retry-after"), (!more.is_empty()).then_some("13"));
    }
    Ok(())
}

/// The JSON of every event but the last.
fn events(stream: &[u8]) -> anyhow::Result<Vec<Value>> {
    let text = std::str::from_utf8(stream)?;
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    Ok(data.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Tokens of a kind that the router counted.
fn tokens(router: &Router, kind: &str) -> f64 {
    let page = router.metrics_page();
    let kind = format!("token_type=\"{kind}\"");
    let lines = page.lines().filter(|line| line.starts_with("kthena_router_tokens_total{"));
    lines
        .filter(|line| line.contains(&kind))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// USE-01.
#[tokio::test(flavor = "multi_thread")]
async fn content_beside_usage_is_delivered_without_the_usage() -> anyhow::Result<()> {
    let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}"#;
    for choices in
        [r#"[{"index":0,"delta":{"content":"z"},"finish_reason":"stop"}]"#, r#"[{"index":0,"delta":{}}]"#]
    {
        let last = format!("data: {{\"id\":\"c\",\"choices\":{choices},{usage}}}\n\n");
        let script = vec![
            Step::Send(stream_head()),
            Step::Send(chunk(last.as_bytes())),
            Step::Send(chunk(b"data: [DONE]\n\n")),
            Step::Send(last_chunk()),
        ];
        let engine = Scripted::start(script).await?;
        let router = Router::start(settings(&[engine.url()])?).await?;
        let answer = send(router.inference, post(CHAT, chat(""))?).await?;
        let expected: Value = serde_json::from_str(&format!("{{\"id\":\"c\",\"choices\":{choices}}}"))?;
        assert_eq!(events(answer.body())?, [expected], "{:?}", answer.body());
        eventually("the usage is counted", || {
            (tokens(&router, "input"), tokens(&router, "output")) == (7.0, 2.0)
        })
        .await;
    }
    Ok(())
}

/// What differs from one answer to the next, taken out.
fn timeless(mut events: Vec<Value>) -> Vec<Value> {
    for event in events.iter_mut().filter_map(Value::as_object_mut) {
        event.remove("id");
        event.remove("created");
    }
    events
}

/// USE-02.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_sees_what_its_own_options_give_and_all_is_counted() -> anyhow::Result<()> {
    // The second and later answers to a prompt are cached, so that both sides report the same usage.
    let engine = Engine::start(quick()).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut counted = 0.0;
    for options in [
        "",
        r#","stream_options":{"include_usage":true}"#,
        r#","stream_options":{"include_usage":false}"#,
        r#","stream_options":{"continuous_usage_stats":true,"include_usage":true}"#,
    ] {
        let direct = send(engine.address(), post(CHAT, chat(options))?).await?;
        let routed = send(router.inference, post(CHAT, chat(options))?).await?;
        assert_eq!(timeless(events(routed.body())?), timeless(events(direct.body())?), "{options}");
        assert!(routed.body().ends_with(b"data: [DONE]\n\n"), "{options}");
        eventually("the usage is counted", || tokens(&router, "output") > counted).await;
        counted = tokens(&router, "output");
    }
    assert_eq!(counted, 16.0, "four answers of four tokens");
    Ok(())
}

/// HDR-01.
#[tokio::test(flavor = "multi_thread")]
async fn hops_stay_behind_and_the_encoding_stays_with_its_bytes() -> anyhow::Result<()> {
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    zip.write_all(br#"{"id":"c","choices":[]}"#)?;
    let zipped = zip.finish()?;
    let lines = "connection: x-foo, keep-alive\r\nx-foo: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\n\
                 server: uvicorn\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-type: application/json\r\n\
                 content-encoding: gzip\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n";
    let script = vec![head("200 OK", lines), Step::Send(chunk(&zipped)), Step::Send(last_chunk())];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut client = Socket::open(router.inference).await?;
    client.post("/v1/completions", &format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#)).await?;
    let heard = client.answer().await?;
    for gone in ["x-foo", "keep-alive", "proxy-authenticate"] {
        assert_eq!(heard.header(gone), None, "{}", heard.head);
    }
    for single in ["server", "date", "transfer-encoding", "connection", "content-type", "content-encoding"] {
        assert_eq!(heard.all(single).len(), 1, "{single}: {}", heard.head);
    }
    assert_eq!(heard.header("content-encoding"), Some("gzip"));
    assert_eq!(heard.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(heard.body, zipped, "encoded bytes pass as they are");
    Ok(())
}
