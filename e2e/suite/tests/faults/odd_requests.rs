//! Odd requests to the side doors, and an odd client at the front door: each gets an answer, and nobody else notices.

use http::Request;
use http_body_util::Full;
use kvasir_suite::client::{get, send};
use kvasir_suite::router::{MODEL, Router, settings};
use kvasir_suite::scripted::{Scripted, Step, chunk, json_answer, last_chunk, stream_head};
use kvasir_suite::socket::Socket;

const OK: &str = r#"{"id":"cmpl-1","choices":[]}"#;

async fn router() -> anyhow::Result<(Scripted, Router)> {
    let engine = Scripted::start(vec![Step::Send(json_answer("200 OK", OK)), Step::Again]).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    Ok((engine, router))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_door_shows_metrics_and_nothing_else() -> anyhow::Result<()> {
    let (engine, router) = router().await?;
    let page = send(router.metrics, get("/metrics?name[]=up")?).await?;
    assert_eq!(page.status(), 200);
    let media = page.headers().get("content-type").and_then(|value| value.to_str().ok());
    assert_eq!(media, Some("text/plain; version=0.0.4; charset=utf-8"));
    let long = format!("/{}", "x".repeat(8_000));
    for (method, path) in [
        ("POST", "/metrics"),
        ("DELETE", "/metrics"),
        ("GET", "/metrics/"),
        ("GET", "/explain"),
        ("GET", "/debug/endpoints"),
        ("POST", "/endpoints/drain?endpoint=x"),
        ("POST", "/v1/completions"),
        ("GET", long.as_str()),
    ] {
        let request = Request::builder().method(method).uri(path).header("host", "r").body(Full::default())?;
        assert_eq!(send(router.metrics, request).await?.status(), 404, "{method} {path:.40}");
    }
    assert!(engine.arrived().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_door_answers_mistakes_with_a_reason() -> anyhow::Result<()> {
    let (engine, router) = router().await?;
    let unknown = r#"{"model":"nobody","prompt":"x"}"#;
    let deep = "[".repeat(50_000);
    for (method, path, body, status) in [
        ("GET", "/explain/never-seen", "", 404),
        ("GET", "/explain/%00%ff", "", 404),
        ("GET", "/explain/", "", 404),
        ("GET", "/nowhere", "", 404),
        ("DELETE", "/", "", 404),
        ("PUT", "/explain", "{}", 404),
        ("POST", "/explain", "", 400),
        ("POST", "/explain", deep.as_str(), 400),
        ("POST", "/explain?path=%2Fv1%2Fmessages", "{", 400),
        ("POST", "/explain", unknown, 404),
        ("POST", "/endpoints/drain", "", 400),
        ("POST", "/endpoints/drain?endpoint=", "", 400),
        ("POST", "/endpoints/undrain?endpoint=http%3A%2F%2Fnobody", "", 400),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "r")
            .body(Full::from(body.to_owned()))?;
        let answer = send(router.admin, request).await?;
        assert_eq!(answer.status(), status, "{method} {path}: {:?}", answer.body());
        let error: serde_json::Value = serde_json::from_slice(answer.body())?;
        assert!(error["error"]["message"].as_str().is_some_and(|text| text.len() > 10), "{path}: {error}");
    }
    for path in ["/", "/healthz", "/explain", "/debug/endpoints", "/debug/index", "/debug/tokens"] {
        assert_eq!(send(router.admin, get(path)?).await?.status(), 200, "{path}");
    }
    assert!(engine.arrived().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_http_ends_its_own_connection_only() -> anyhow::Result<()> {
    let (_engine, router) = router().await?;
    let large = format!("GET / HTTP/1.1\r\nhost: r\r\nx: {}\r\n\r\n", "y".repeat(2 << 20));
    let nonsense: [&[u8]; 4] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a tls client that has lost its way",
        b"GET / HTTP/9.9\r\nhost: r\r\n\r\n and then some more bytes\r\n\r\n",
        b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nnothing\x00\x00\r\n\r\n",
        large.as_bytes(),
    ];
    for door in [router.inference, router.metrics, router.admin] {
        for bytes in nonsense {
            let mut socket = Socket::open(door).await?;
            // The other side may have left before all is said.
            let _ = socket.say(bytes).await;
            let heard = socket.hear_out().await?;
            assert!(!heard.starts_with(b"HTTP/1.1 5"), "{:?}", String::from_utf8_lossy(&heard));
        }
    }
    assert_eq!(send(router.metrics, get("/metrics")?).await?.status(), 200);
    assert_eq!(send(router.admin, get("/healthz")?).await?.status(), 200);
    assert_eq!(send(router.inference, get("/healthz")?).await?.status(), 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_gets_no_chunks() -> anyhow::Result<()> {
    let event = b"data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\n";
    let script =
        vec![Step::Send(stream_head()), Step::Send(chunk(event)), Step::Send(last_chunk()), Step::Again];
    let engine = Scripted::start(script).await?;
    let router = Router::start(settings(&[engine.url()])?).await?;
    let body = format!(r#"{{"model":"{MODEL}","stream":true,"messages":[]}}"#);
    let mut client = Socket::open(router.inference).await?;
    let head = format!("POST /v1/chat/completions HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    client.say(head.as_bytes()).await?;
    let answer = client.answer().await?;
    assert_eq!(answer.header("transfer-encoding"), None, "HTTP/1.0 knows no chunks: {}", answer.head);
    assert_eq!(answer.body.as_ref(), event, "the end of the connection is the end of the answer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_the_end_of_the_connection_gets_it() -> anyhow::Result<()> {
    let (_engine, router) = router().await?;
    let mut client = Socket::open(router.inference).await?;
    client.say(b"GET /v1/models HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n").await?;
    let answer = client.answer().await?;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(client.hear_out().await?, b"");
    let mut head = Socket::open(router.inference).await?;
    head.say(b"HEAD /healthz HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n").await?;
    let heard = head.hear_out().await?;
    assert!(
        heard.ends_with(b"\r\n\r\n"),
        "an answer to HEAD has no body: {:?}",
        String::from_utf8_lossy(&heard)
    );
    Ok(())
}
