//! Requests in: expectations, lengths, sizes; nothing is smuggled and nothing waits for ever.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kvasir_suite::GUARD;
use kvasir_suite::client::{post, send};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, json_answer};
use kvasir_suite::socket::Socket;
use tokio::net::TcpStream;

const OK: &str = r#"{"id":"cmpl-1","choices":[]}"#;

async fn engine() -> anyhow::Result<Scripted> {
    Ok(Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?)
}

fn body(model: &str) -> String {
    format!(r#"{{"prompt":"x","model":"{model}"}}"#)
}

/// The head of a POST with more header lines.
fn head(lines: &str) -> String {
    format!("POST /v1/completions HTTP/1.1\r\nhost: public.example\r\n{lines}\r\n")
}

/// HDR-03.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_gets_its_own_host_the_new_length_and_no_expectation() -> anyhow::Result<()> {
    let engine = engine().await?;
    let mut settings = settings(&[engine.url()])?;
    settings.models[0].aliases = vec!["a".into(), "an-alias-that-is-longer-than-the-name".into()];
    let router = Router::start(settings).await?;
    for alias in ["a", "an-alias-that-is-longer-than-the-name"] {
        let body = body(alias);
        let mut client = Socket::open(router.inference).await?;
        let lines = format!("expect: 100-continue\r\ncontent-length: {}\r\n", body.len());
        client.say(head(&lines).as_bytes()).await?;
        assert_eq!(client.answer().await?.status, 100, "the body is waited for, so it must be asked for");
        client.say(body.as_bytes()).await?;
        assert_eq!(client.answer().await?.status, 200);
        let arrived = engine.arrived().pop().unwrap_or_default();
        let expected = self::body(MODEL);
        assert_eq!(arrived.body, expected);
        let seen = arrived.head.to_lowercase();
        assert!(seen.contains(&format!("content-length: {}\r\n", expected.len())), "{seen}");
        assert!(seen.contains(&format!("host: {}", engine.address)), "{seen}");
        assert!(!seen.contains("expect") && !seen.contains("public.example"), "{seen}");
    }
    Ok(())
}

/// HDR-03: a body that turns out to be wrong after it was asked for still gets its answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_a_continue_is_answered() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    for (body, status) in [("{\"model\":", 400), (r#"{"model":"nobody"}"#, 404)] {
        let mut client = Socket::open(router.inference).await?;
        let lines = format!("expect: 100-continue\r\ncontent-length: {}\r\n", body.len());
        client.say(head(&lines).as_bytes()).await?;
        assert_eq!(client.answer().await?.status, 100);
        client.say(body.as_bytes()).await?;
        let answer = client.answer().await?;
        assert_eq!((answer.status, answer.header("content-type").is_some()), (status, true));
    }
    Ok(())
}

/// HDR-03, BODY-01: what is too large is refused before the client is asked to send it.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_not_asked_for() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut client = Socket::open(router.inference).await?;
    client.say(head("expect: 100-continue\r\ncontent-length: 99999999\r\n").as_bytes()).await?;
    assert_eq!(client.answer().await?.status, 413);
    let mut other = Socket::open(router.inference).await?;
    other.say(head("expect: tea\r\ncontent-length: 5\r\n").as_bytes()).await?;
    assert_eq!(other.answer().await?.status, 417);
    Ok(())
}

/// HDR-03. Whatever is made of the first request, what is hidden behind it is never one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn two_lengths_smuggle_nothing() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let inner = body(MODEL);
    let hidden = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-hidden: 1\r\ncontent-length: {}\r\n\r\n{inner}",
        inner.len()
    );
    let chunked = format!("{:x}\r\n{inner}\r\n0\r\n\r\n{hidden}", inner.len());
    let length = chunked.len();
    for (lines, rest) in [
        (format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"), &chunked),
        (format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"), &chunked),
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n".to_owned(), &chunked),
        ("transfer-encoding: chunked, identity\r\n".to_owned(), &chunked),
        ("transfer-encoding: xchunked\r\n".to_owned(), &chunked),
        (format!("content-length: 0\r\ncontent-length: {}\r\n", hidden.len()), &hidden),
        (format!("content-length: +{}\r\n", hidden.len()), &hidden),
    ] {
        let mut client = Socket::open(router.inference).await?;
        client.say(head(&lines).as_bytes()).await?;
        client.say(rest.as_bytes()).await?;
        let heard = tokio::time::timeout(Duration::from_secs(3), client.hear_out()).await;
        let hidden_seen = engine.arrived().iter().any(|arrived| arrived.head.contains("x-hidden"));
        assert!(!hidden_seen, "{lines:?} smuggled a request");
        assert!(heard.is_ok(), "{lines:?}: the connection must not be used again");
    }
    Ok(())
}

/// A JSON body of about `megabytes` that carries an image.
fn image(megabytes: f64) -> Bytes {
    let data = "iVBORw0K".repeat((megabytes * 125_000.0) as usize);
    let part = format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#);
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":[{part}]}}]}}"#).into()
}

/// Sends a body in chunks of a megabyte, without a length.
async fn send_chunked(router: &Router, body: Bytes) -> anyhow::Result<http::Response<Bytes>> {
    let pieces: Vec<Bytes> = body.chunks(1 << 20).map(|piece| body.slice_ref(piece)).collect();
    let frames =
        futures_util::stream::iter(pieces).map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(piece)));
    let (parts, _) = post("/v1/chat/completions", "")?.into_parts();
    let request = http::Request::from_parts(parts, StreamBody::new(frames));
    let stream = TcpStream::connect(router.inference).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await?.into_parts();
    Ok(http::Response::from_parts(parts, body.collect().await?.to_bytes()))
}

/// BODY-01.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_up_to_the_limit_pass_with_a_length_and_in_chunks() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    for megabytes in [4.9, 8.5, 31.0] {
        let body = image(megabytes);
        let announced = send(router.inference, post("/v1/chat/completions", body.clone())?).await?;
        assert_eq!(announced.status(), 200, "{megabytes} MB: {:?}", announced.body());
        let chunked = send_chunked(&router, body.clone()).await?;
        assert_eq!(chunked.status(), 200, "{megabytes} MB in chunks: {:?}", chunked.body());
        let arrived = engine.arrived();
        assert!(arrived.iter().rev().take(2).all(|arrived| arrived.body == body), "{megabytes} MB changed");
    }
    assert_eq!(router.gateway.buffers.held(), 0);
    Ok(())
}

/// BODY-01. The client goes on sending while it is told; the answer must reach it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_above_the_limit_get_a_413() -> anyhow::Result<()> {
    let engine = engine().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let body = image(34.0);
    for attempt in 0..3 {
        let announced = send(router.inference, post("/v1/chat/completions", body.clone())?).await;
        let announced =
            announced.map_err(|error| error.context(format!("attempt {attempt}, with a length")))?;
        assert_eq!(announced.status(), 413);
        let error: serde_json::Value = serde_json::from_slice(announced.body())?;
        assert_eq!(error["error"]["code"], "body_too_large");
        let chunked = send_chunked(&router, body.clone()).await;
        let chunked = chunked.map_err(|error| error.context(format!("attempt {attempt}, in chunks")))?;
        assert_eq!(chunked.status(), 413);
    }
    assert!(engine.arrived().is_empty());
    Ok(())
}

/// Header, idle and slow-body time-outs: a connection that does not get on is not kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stalls_does_not_keep_its_connection() -> anyhow::Result<()> {
    let engine = engine().await?;
    let mut settings = settings(&[engine.url()])?;
    settings.limits.header_timeout = Duration::from_millis(300);
    settings.limits.keepalive_timeout = Duration::from_secs(1);
    settings.limits.body_timeout = Duration::from_millis(300);
    let router = Router::start(settings).await?;
    let mut late = Socket::open(router.inference).await?;
    late.say(head("content-length: 100\r\n").as_bytes()).await?;
    late.say(b"{\"model\"").await?;
    assert_eq!(late.answer().await?.status, 408);
    for begun in ["", "POST /v1/", "POST /v1/completions HTTP/1.1\r\nhost: r"] {
        let mut silent = Socket::open(router.inference).await?;
        silent.say(begun.as_bytes()).await?;
        let began = Instant::now();
        let ended = tokio::time::timeout(GUARD / 5, silent.hear_out()).await;
        assert!(ended.is_ok(), "after {begun:?} the connection stayed open for {:?}", began.elapsed());
    }
    Ok(())
}

/// What a client announces and does not send takes nobody's place.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_announced_and_never_come_block_nobody() -> anyhow::Result<()> {
    let engine = engine().await?;
    let mut settings = settings(&[engine.url()])?;
    let announced = 33_000_000;
    settings.limits.max_buffered_bytes = 2 * announced / 1024 * 1024 + 1024;
    let router = Router::start(settings).await?;
    let mut silent = Vec::new();
    for _ in 0..2 {
        let mut client = Socket::open(router.inference).await?;
        client
            .say(head(&format!("expect: 100-continue\r\ncontent-length: {announced}\r\n")).as_bytes())
            .await?;
        assert_eq!(client.answer().await?.status, 100);
        client.say(b"{").await?;
        silent.push(client);
    }
    let small = post("/v1/completions", body(MODEL))?;
    let answer = tokio::time::timeout(Duration::from_secs(2), send(router.inference, small)).await;
    let status = answer.map(|answer| answer.map(|answer| answer.status().as_u16()));
    assert!(matches!(status, Ok(Ok(200))), "two silent clients keep everybody out: {status:?}");
    Ok(())
}
