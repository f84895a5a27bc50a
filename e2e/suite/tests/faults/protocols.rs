//! Connections: HTTP/2 without TLS, reuse, pipelining, and a client that reads slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use kvasir_suite::client::{Raw, get, post, send};
use kvasir_suite::h2c::H2c;
use kvasir_suite::paths::{Paths, answer};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, json_answer, last_chunk, stream_head};
use kvasir_suite::socket::Socket;
use kvasir_suite::{GUARD, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const OK: &str = r#"{"id":"cmpl-1","choices":[]}"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

fn prompt(text: &str) -> String {
    format!(r#"{{"model":"{MODEL}","prompt":"{text}"}}"#)
}

fn chat() -> String {
    format!(r#"{{"model":"{MODEL}","stream":true,"messages":[]}}"#)
}

async fn plain() -> anyhow::Result<Scripted> {
    Ok(Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_carries_requests_of_every_size_side_by_side() -> anyhow::Result<()> {
    let engine = plain().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let client = H2c::connect(router.inference).await?;
    assert_eq!(client.send(get("/readyz")?).await?.status(), 200);
    assert_eq!(client.send(post("/v1/completions", "{")?).await?.status(), 400);
    assert_eq!(client.send(get("/v1/models")?).await?.status(), 200);
    let large = prompt(&"z".repeat(2 << 20));
    let bodies: Vec<String> = (0..32).map(|number| prompt(&format!("p{number}"))).chain([large]).collect();
    let asked = bodies.iter().map(|body| async { client.send(post("/v1/completions", body.clone())?).await });
    let mut seen = 0;
    for answer in try_join_all(asked).await? {
        assert_eq!((answer.status().as_u16(), answer.body().as_ref()), (200, OK.as_bytes()));
        assert!(
            !answer.headers().contains_key("connection")
                && !answer.headers().contains_key("transfer-encoding")
        );
        seen += 1;
    }
    let mut arrived: Vec<Bytes> = engine.arrived().into_iter().map(|arrived| arrived.body).collect();
    let mut sent: Vec<Bytes> = bodies.into_iter().map(Bytes::from).collect();
    arrived.sort();
    sent.sort();
    assert!(seen == 33 && arrived == sent, "{seen} answers");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_streams_events_as_they_come_and_others_do_not_wait() -> anyhow::Result<()> {
    let script = vec![
        Step::Send(stream_head()),
        Step::Send(chunk(EVENT)),
        Step::Wait,
        Step::Send(chunk(DONE)),
        Step::Send(last_chunk()),
    ];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let client = H2c::connect(router.inference).await?;
    let mut answer = client.begin(post("/v1/chat/completions", chat())?).await?;
    let first = answer.body_mut().frame().await.transpose()?.and_then(|frame| frame.into_data().ok());
    assert_eq!(first.as_deref(), Some(EVENT), "the first event comes before the second is made");
    assert_eq!(client.send(get("/healthz")?).await?.status(), 200, "beside an open stream");
    engine.proceed();
    assert_eq!(answer.into_body().collect().await?.to_bytes(), DONE);
    Ok(())
}

/// STR-03.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_upstream_is_a_reset_stream_on_http_2() -> anyhow::Result<()> {
    let script = vec![Step::Send(stream_head()), Step::Send(chunk(EVENT)), Step::Wait, Step::Reset];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let client = H2c::connect(router.inference).await?;
    let answer = client.begin(post("/v1/chat/completions", chat())?).await?;
    engine.proceed();
    let ended = answer.into_body().collect().await;
    assert!(ended.is_err(), "a cut stream must not look finished: {ended:?}");
    assert_eq!(client.send(get("/healthz")?).await?.status(), 200, "the connection goes on");
    let broken = format!("kvasir_request_outcomes_total{{model=\"{MODEL}\",outcome=\"stream_broken\"}}");
    eventually("it is counted as broken", || router.metric(&broken) == Some(1.0)).await;
    Ok(())
}

/// STR-03: headers, then a reset, with nobody else to ask.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_behind_its_header_is_a_502() -> anyhow::Result<()> {
    let engine = Scripted::start(vec![Step::Send(stream_head()), Step::Reset]).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let answer = send(router.inference, post("/v1/chat/completions", chat())?).await?;
    assert_eq!(answer.status(), 502, "nothing is invented: {:?}", answer.body());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_used_again_on_both_sides() -> anyhow::Result<()> {
    let engine = Paths::start().await?;
    engine.tell("/v1/completions", answer("200 OK", "application/json", OK));
    let router = Router::start(settings(&[engine.url()])?).await?;
    let side_calls = engine.connections();
    let mut client = Socket::open(router.inference).await?;
    for _ in 0..50 {
        client.post("/v1/completions", &prompt("x")).await?;
        let heard = client.answer().await?;
        assert_eq!((heard.status, heard.header("connection")), (200, Some("keep-alive")));
    }
    // Side calls (a scrape a second) have connections of their own.
    let made = engine.connections() - side_calls;
    assert!(made < 10, "{made} connections for 50 requests");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() -> anyhow::Result<()> {
    let engine = plain().await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut client = Socket::open(router.inference).await?;
    let mut all = String::new();
    for number in 0..5 {
        let body = prompt(&number.to_string());
        all.push_str(&format!(
            "POST /v1/completions HTTP/1.1\r\nhost: r\r\nx-request-id: r-{number}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
    client.say(all.as_bytes()).await?;
    for number in 0..5 {
        let heard = client.answer().await?;
        assert_eq!((heard.status, heard.header("x-request-id")), (200, Some(format!("r-{number}").as_str())));
    }
    let bodies: Vec<Bytes> = engine.arrived().into_iter().map(|arrived| arrived.body).collect();
    assert_eq!(bodies, (0..5).map(|number| Bytes::from(prompt(&number.to_string()))).collect::<Vec<_>>());
    Ok(())
}

/// The next request, which is there already, must not keep the events of this one back.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_behind_a_stream_delays_no_event() -> anyhow::Result<()> {
    let script = vec![
        Step::Send(stream_head()),
        Step::Send(chunk(EVENT)),
        Step::Wait,
        Step::Send(chunk(b"data: 2\n\n")),
        Step::Wait,
        Step::Send(chunk(DONE)),
        Step::Send(last_chunk()),
        Step::Again,
    ];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let mut client = Socket::open(router.inference).await?;
    client.post("/v1/chat/completions", &chat()).await?;
    client.say(b"GET /healthz HTTP/1.1\r\nhost: r\r\n\r\n").await?;
    client.hear_until(EVENT).await?;
    engine.proceed();
    client.hear_until(b"data: 2\n\n").await?;
    engine.proceed();
    client.hear_until(b"0\r\n\r\n").await?;
    assert_eq!(client.answer().await?.status, 200);
    Ok(())
}

/// Bytes of the endless answer, in megabytes.
const FLOOD_MEGABYTES: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_slows_its_own_engine_only() -> anyhow::Result<()> {
    let (engine, written) = flooding().await?;
    let router = Router::start(settings(&[format!("http://{engine}")])?).await?;
    let mut slow = Raw::post(router.inference, "/v1/completions", prompt("x").as_bytes()).await?;
    // Nothing is read: the engine's writes must come to a stand, far below the whole answer.
    let (mut before, mut still) = (0, 0);
    eventually("the engine is held up", || {
        let now = written.load(Ordering::Acquire);
        still = if now == before && now > 0 { still + 1 } else { 0 };
        before = now;
        still > 150
    })
    .await;
    let held = written.load(Ordering::Acquire);
    assert!(held < FLOOD_MEGABYTES << 19, "{held} bytes were taken in for a client that reads nothing");
    try_join_all((0..20).map(|_| async { send(router.inference, get("/healthz")?).await })).await?;
    let mut total = 0;
    while total < FLOOD_MEGABYTES << 20 {
        match tokio::time::timeout(GUARD, slow.read()).await?? {
            Some(bytes) => total += bytes.len(),
            None => break,
        }
    }
    assert!(total >= FLOOD_MEGABYTES << 20, "only {total} bytes came");
    Ok(())
}

/// A client that reads nothing at all is given up after the idle time, and leaves no trace.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_given_up() -> anyhow::Result<()> {
    let piece = chunk(&[b'x'; 1024]);
    let mut script = vec![Step::Send(stream_head())];
    script.extend((0..40_000).map(|_| Step::Send(piece.clone())));
    script.push(Step::Hold);
    let engine = Scripted::start(script).await?;
    let mut settings = settings(&[engine.url()])?;
    settings.limits.stream_idle_timeout = std::time::Duration::from_millis(300);
    let router = Router::start(settings).await?;
    let silent = Raw::post(router.inference, "/v1/chat/completions", chat().as_bytes()).await?;
    eventually("the engine has it", || engine.arrived().len() == 1).await;
    eventually("the request has left the router", || router.gateway.readiness.inside() == 0).await;
    assert_eq!(router.metric("kthena_router_active_upstream_requests"), Some(0.0));
    drop(silent);
    Ok(())
}

/// An engine that answers one request with many megabytes, and counts those it could write.
async fn flooding() -> anyhow::Result<(std::net::SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let written = Arc::new(AtomicUsize::new(0));
    let known = Arc::clone(&written);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(flood(stream, Arc::clone(&known)));
        }
    });
    Ok((address, written))
}

/// Serves one request; side calls get a 404.
async fn flood(mut stream: TcpStream, written: Arc<AtomicUsize>) -> std::io::Result<()> {
    let (mut request, mut buffer) = (Vec::new(), vec![0; 4096]);
    while !request.ends_with(b"}") {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => request.extend_from_slice(&buffer[..read]),
        }
        if request.starts_with(b"GET ") && request.ends_with(b"\r\n\r\n") {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        }
    }
    let length = FLOOD_MEGABYTES << 20;
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..FLOOD_MEGABYTES {
        stream.write_all(&piece).await?;
        written.fetch_add(piece.len(), Ordering::AcqRel);
    }
    Ok(())
}
