//! A request moves on to another engine, whole, until the first byte of an answer; after that nothing is retried.

use bytes::Bytes;
use kvasir_suite::client::{Raw, post, send};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, json_answer, last_chunk, stream_head};

/// A streamed chat of about two megabytes.
fn large_chat() -> String {
    let text = "All work and no play makes a dull router. ".repeat(48_000);
    format!(
        r#"{{"model":"{MODEL}","stream":true,"stream_options":{{"include_usage":true}},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

const EVENTS: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n";

fn good_stream() -> Vec<Step> {
    vec![Step::Send(stream_head()), Step::Send(chunk(EVENTS)), Step::Send(last_chunk()), Step::Again]
}

/// Sends the large chat over two engines, the first of which is `bad`, until the bad one was met; each answer must be whole.
async fn moves_on(bad: Vec<Step>) -> anyhow::Result<()> {
    let (bad, good) = (Scripted::start(bad).await?, Scripted::start(good_stream()).await?);
    let router = Router::start(settings(&[bad.url(), good.url()])?).await?;
    let body = large_chat();
    assert!(body.len() > 2_000_000);
    for _ in 0..64 {
        let answer = send(router.inference, post("/v1/chat/completions", body.clone())?).await?;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.body(), EVENTS, "the answer must be byte-equal");
        if !bad.arrived().is_empty() {
            break;
        }
    }
    assert!(!bad.arrived().is_empty(), "the bad engine was never asked");
    for arrived in bad.arrived().iter().chain(&good.arrived()) {
        assert_eq!(arrived.body.len(), body.len());
        assert!(arrived.body == body, "an engine got other bytes than the client sent");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_before_the_first_byte_moves_a_large_request_on() -> anyhow::Result<()> {
    moves_on(vec![Step::Reset]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_before_the_first_byte_moves_a_large_request_on() -> anyhow::Result<()> {
    moves_on(vec![Step::Close]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_moves_a_large_request_on() -> anyhow::Result<()> {
    moves_on(vec![
        Step::Send(json_answer("503 Service Unavailable", r#"{"error":{"message":"busy"}}"#)),
        Step::Again,
    ])
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_between_its_header_and_its_first_event_is_replaced() -> anyhow::Result<()> {
    moves_on(vec![Step::Send(stream_head()), Step::Reset]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_moves_a_large_request_on() -> anyhow::Result<()> {
    let good = Scripted::start(good_stream()).await?;
    let nobody = Scripted::start(Vec::new()).await?;
    let refused = nobody.url();
    drop(nobody);
    let router = Router::start(settings(&[refused, good.url()])?).await?;
    let body = large_chat();
    for _ in 0..8 {
        let answer = send(router.inference, post("/v1/chat/completions", body.clone())?).await?;
        assert_eq!((answer.status().as_u16(), answer.body().as_ref()), (200, EVENTS));
    }
    assert_eq!(good.arrived().len(), 8);
    assert!(good.arrived().iter().all(|arrived| arrived.body == body));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_first_byte_nothing_is_retried_and_the_cut_is_seen() -> anyhow::Result<()> {
    let cut = vec![Step::Send(stream_head()), Step::Send(chunk(EVENTS)), Step::Wait, Step::Reset];
    let (first, second) = (Scripted::start(cut.clone()).await?, Scripted::start(cut).await?);
    let router = Router::start(settings(&[first.url(), second.url()])?).await?;
    let body = format!(r#"{{"model":"{MODEL}","stream":true,"messages":[]}}"#);
    let mut client = Raw::post(router.inference, "/v1/chat/completions", body.as_bytes()).await?;
    let begun = client.read().await?.unwrap_or_default();
    assert!(begun.starts_with(b"HTTP/1.1 200"), "{begun:?}");
    first.proceed();
    second.proceed();
    let (rest, _) = client.read_to_end().await;
    let all = [begun.as_ref(), &rest].concat();
    assert!(!all.ends_with(b"0\r\n\r\n"), "a cut stream must not look finished");
    assert_eq!(first.arrived().len() + second.arrived().len(), 1, "nothing is retried after the first byte");
    kvasir_suite::eventually("the outcome is counted", || {
        router
            .metric(&format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"stream_broken\"}}"))
            == Some(1.0)
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_body_is_a_cut_and_not_an_end() -> anyhow::Result<()> {
    let short = Bytes::from_static(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"half\":",
    );
    let engine = Scripted::start(vec![Step::Send(short), Step::Close]).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let body = format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#);
    let answer = send(router.inference, post("/v1/completions", body)?).await;
    assert!(answer.is_err(), "the client must notice: {answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_kills_engines_does_not_walk_the_fleet() -> anyhow::Result<()> {
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(Scripted::start(vec![Step::Reset]).await?);
    }
    let urls: Vec<String> = engines.iter().map(Scripted::url).collect();
    let router = Router::start(settings(&urls)?).await?;
    let body = format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#);
    let answer = send(router.inference, post("/v1/completions", body)?).await?;
    assert_eq!(answer.status(), 502);
    assert_eq!(engines.iter().map(|engine| engine.arrived().len()).sum::<usize>(), 2);
    let denied = format!("kvasir_retries_denied_total{{model=\"{MODEL}\",reason=\"second_death\"}}");
    assert_eq!(router.metric(&denied), Some(1.0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_error_is_passed_on_and_never_retried() -> anyhow::Result<()> {
    let text = r#"{"error":{"message":"max_tokens too large"}}"#;
    for status in ["400 Bad Request", "404 Not Found", "422 Unprocessable Entity"] {
        let script = vec![Step::Send(json_answer(status, text)), Step::Again];
        let (first, second) = (Scripted::start(script.clone()).await?, Scripted::start(script).await?);
        let router = Router::start(settings(&[first.url(), second.url()])?).await?;
        for stream in [true, false] {
            let body = format!(r#"{{"model":"{MODEL}","stream":{stream},"prompt":"x"}}"#);
            let answer = send(router.inference, post("/v1/completions", body)?).await?;
            assert_eq!(format!("{} ", answer.status().as_u16()), status.get(..4).unwrap_or_default());
            assert_eq!(answer.body(), text.as_bytes());
        }
        assert_eq!(first.arrived().len() + second.arrived().len(), 2);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_engine_is_busy_the_engines_own_answer_goes_back() -> anyhow::Result<()> {
    let busy = Bytes::from_static(
        b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 7\r\ncontent-length: 13\r\n\r\n{\"error\":\"q\"}",
    );
    let script = vec![Step::Send(busy), Step::Again];
    let (first, second) = (Scripted::start(script.clone()).await?, Scripted::start(script).await?);
    let router = Router::start(settings(&[first.url(), second.url()])?).await?;
    let body = format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#);
    let answer = send(router.inference, post("/v1/completions", body)?).await?;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers().get("retry-after").and_then(|value| value.to_str().ok()), Some("7"));
    assert_eq!(answer.body().as_ref(), b"{\"error\":\"q\"}");
    assert_eq!((first.arrived().len(), second.arrived().len()), (1, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_a_502() -> anyhow::Result<()> {
    let engine = Scripted::start(vec![
        Step::Send(Bytes::from_static(b"\x00\x01not http at all\r\n\r\n")),
        Step::Close,
    ])
    .await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let body = format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#);
    let answer = send(router.inference, post("/v1/completions", body)?).await?;
    assert_eq!(answer.status(), 502);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_never_answers_is_a_504_and_is_not_tried_elsewhere() -> anyhow::Result<()> {
    let (first, second) =
        (Scripted::start(vec![Step::Hold]).await?, Scripted::start(vec![Step::Hold]).await?);
    let mut settings = settings(&[first.url(), second.url()])?;
    settings.limits.first_byte_timeout = std::time::Duration::from_millis(300);
    let router = Router::start(settings).await?;
    let body = format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#);
    let answer = send(router.inference, post("/v1/completions", body)?).await?;
    assert_eq!(answer.status(), 504);
    assert_eq!(first.arrived().len() + second.arrived().len(), 1);
    kvasir_suite::eventually("the engine sees the router leave", || first.left() + second.left() == 1).await;
    Ok(())
}
