//! The end of the router: readiness first, a settle time for new requests, a bound for old ones.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kvasir::house::Furniture;
use kvasir::signals::Signals;
use kvasir_gateway::listener::Served;
use kvasir_settings::Settings;
use kvasir_suite::client::{get, post, send};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, json_answer, last_chunk, stream_head};
use kvasir_suite::socket::Socket;
use kvasir_suite::{GUARD, eventually};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const OK: &str = r#"{"id":"cmpl-1","choices":[]}"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n";

fn chat() -> String {
    format!(r#"{{"model":"{MODEL}","stream":true,"messages":[]}}"#)
}

/// An engine whose stream goes on after its first event when it is told to.
async fn streaming() -> anyhow::Result<Scripted> {
    let script =
        vec![Step::Send(stream_head()), Step::Send(chunk(EVENT)), Step::Wait, Step::Send(last_chunk())];
    Ok(Scripted::start(script).await?)
}

/// SHD-01.
#[tokio::test(flavor = "multi_thread")]
async fn new_requests_are_served_while_the_shutdown_settles_and_refused_after() -> anyhow::Result<()> {
    let engine = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
    let mut settings = settings(&[engine.url()])?;
    settings.drain_settle = Duration::from_millis(800);
    let router = Router::start(settings).await?;
    let to = router.inference;
    router.signals.stop.cancel();
    eventually("readiness fails", || !router.gateway.readiness.is_ready()).await;
    assert_eq!(send(to, get("/readyz")?).await?.status(), 503);
    assert_eq!(send(to, get("/healthz")?).await?.status(), 200, "it lives on");
    let answer = send(to, post("/v1/completions", format!(r#"{{"model":"{MODEL}","prompt":"x"}}"#))?).await?;
    assert_eq!(answer.status(), 200);
    let connection = answer.headers().get("connection").and_then(|value| value.to_str().ok());
    assert_eq!(connection, Some("close"), "a client that stays would meet the end");
    let deadline = Instant::now() + GUARD;
    while TcpStream::connect(to).await.is_ok() {
        assert!(Instant::now() < deadline, "new connections are still taken");
    }
    assert_eq!(router.stop().await?, Served::Drained);
    Ok(())
}

/// SHD-02: a stream may finish within its time.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_finishes_within_the_drain_time() -> anyhow::Result<()> {
    let engine = streaming().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let to = router.inference;
    let mut client = Socket::open(to).await?;
    client.post("/v1/chat/completions", &chat()).await?;
    client.hear_until(EVENT).await?;
    router.signals.stop.cancel();
    let deadline = Instant::now() + GUARD;
    while TcpStream::connect(to).await.is_ok() {
        assert!(Instant::now() < deadline, "new connections are still taken");
    }
    engine.proceed();
    client.hear_until(b"0\r\n\r\n").await?;
    assert_eq!(router.stop().await?, Served::Drained);
    Ok(())
}

/// Runs a router as the process does, on a runtime that ends with it. Gives its address and, later, how it ended.
async fn as_a_process(
    settings: Settings,
    signals: Signals,
) -> anyhow::Result<(SocketAddr, tokio::task::JoinHandle<anyhow::Result<Served>>)> {
    let (opened, is_open) = oneshot::channel();
    let process = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let served = runtime.block_on(kvasir::router::serve(
            settings,
            signals,
            Furniture::default(),
            move |running| {
                let _ = opened.send(running.addresses);
            },
        ));
        runtime.shutdown_background();
        served
    });
    let [inference, ..] = is_open.await.context("the router ended")?;
    Ok((inference, process))
}

/// A router in the middle of a stream, and the client that reads it.
async fn in_mid_stream(
    drain: Duration,
    signals: &Signals,
) -> anyhow::Result<(Scripted, Socket, tokio::task::JoinHandle<anyhow::Result<Served>>)> {
    let engine = streaming().await?;
    let mut settings = settings(&[engine.url()])?;
    settings.drain_timeout = drain;
    let (router, process) = as_a_process(settings, signals.clone()).await?;
    let mut client = Socket::open(router).await?;
    client.post("/v1/chat/completions", &chat()).await?;
    client.hear_until(EVENT).await?;
    signals.stop.cancel();
    Ok((engine, client, process))
}

/// SHD-02: at the bound a stream is cut, and looks cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_cut_at_the_bound() -> anyhow::Result<()> {
    let signals = Signals::default();
    let (_engine, mut client, process) = in_mid_stream(Duration::from_millis(400), &signals).await?;
    assert_eq!(process.await??, Served::Cut(1));
    let rest = client.hear_out().await?;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a cut stream must not look finished");
    Ok(())
}

/// SHD-02: a second signal does not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() -> anyhow::Result<()> {
    let signals = Signals::default();
    let (_engine, mut client, process) = in_mid_stream(Duration::from_secs(600), &signals).await?;
    let asked = Instant::now();
    signals.hurry.cancel();
    assert_eq!(process.await??, Served::Cut(1));
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert!(!client.hear_out().await?.ends_with(b"0\r\n\r\n"), "a cut stream must not look finished");
    Ok(())
}
