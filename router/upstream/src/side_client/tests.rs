use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What the server under test does with one connection, once the request's head is read.
#[derive(Clone, Copy)]
enum Answer {
    /// Sends this and goes on with the connection.
    Send(&'static str),
    /// Sends this and closes.
    SendAndClose(&'static str),
    /// Sends this and then nothing, without closing.
    SendAndHang(&'static str),
    /// Sends the request's own text back.
    Echo,
}

struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(bind: &str, answer: Answer) -> std::io::Result<Self> {
        let listener = TcpListener::bind(bind).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answer));
            }
        });
        Ok(Self { address, connections })
    }

    fn get(&self) -> SideRequest {
        SideRequest {
            method: Method::GET,
            url: format!("http://{}/path?x=1", self.address),
            tls: None,
            body: Bytes::new(),
            timeout: Duration::from_secs(20),
            max_bytes: 1000,
        }
    }
}

async fn serve(mut stream: TcpStream, answer: Answer) {
    let mut seen = Vec::new();
    while let Ok(read) = stream.read_buf(&mut seen).await {
        if read == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&seen).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        if body.len() < length.parse().expect("a length") {
            continue;
        }
        let echoed = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        let (send, close, hang) = match answer {
            Answer::Send(send) => (send, false, false),
            Answer::SendAndClose(send) => (send, true, false),
            Answer::SendAndHang(send) => (send, false, true),
            Answer::Echo => (echoed.as_str(), false, false),
        };
        let _ = stream.write_all(send.as_bytes()).await;
        if hang {
            std::future::pending::<()>().await;
        }
        if close {
            return;
        }
        seen.clear();
    }
}

async fn server(answer: Answer) -> Server {
    Server::start("127.0.0.1:0", answer).await.expect("a loopback listener")
}

#[tokio::test]
async fn a_post_carries_its_body_and_type() {
    let server = server(Answer::Echo).await;
    let mut call = server.get();
    (call.method, call.body) = (Method::POST, Bytes::from_static(b"{\"a\":1}"));
    let answer = HyperSideClient::default().call(call).await.expect("an answer");
    let text = String::from_utf8_lossy(&answer.body);
    assert!(text.starts_with("POST /path?x=1 HTTP/1.1\r\n"), "{text}");
    assert!(
        text.contains("content-type: application/json\r\n") && text.ends_with("\r\n\r\n{\"a\":1}"),
        "{text}"
    );
    assert!(text.contains(&format!("host: {}\r\n", server.address)), "{text}");
}

#[tokio::test]
async fn every_status_is_an_answer() {
    let server =
        server(Answer::Send("HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy")).await;
    let answer = HyperSideClient::default().call(server.get()).await.expect("an answer");
    assert_eq!((answer.status, &*answer.body), (StatusCode::SERVICE_UNAVAILABLE, b"busy".as_slice()));
    assert_eq!(answer.headers.get("retry-after").map(HeaderValue::as_bytes), Some(b"1".as_slice()));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server =
        server(Answer::Send("HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n")).await;
    let answer = HyperSideClient::default().call(server.get()).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::FOUND);
}

#[tokio::test]
async fn connections_are_reused() {
    let server = server(Answer::Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let client = HyperSideClient::default();
    for _ in 0..5 {
        client.call(server.get()).await.expect("an answer");
        // The connection goes back to the pool on hyper's own task.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert!(server.connections.load(Ordering::SeqCst) < 5, "no connection was used twice");
}

#[tokio::test]
async fn the_limit_holds_for_announced_and_for_endless_bodies() {
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e8\r\n";
    let exact: &'static str = format!("{chunked}{}\r\n0\r\n\r\n", "x".repeat(1000)).leak();
    let over: &'static str = format!("{chunked}{}\r\n1\r\nx\r\n", "x".repeat(1000)).leak();
    let client = HyperSideClient::default();
    for answer in [announced, over] {
        let server = server(Answer::SendAndHang(answer)).await;
        assert_eq!(client.call(server.get()).await.map(|_| ()), Err(SideError::TooLarge(1000)));
    }
    let server = server(Answer::Send(exact)).await;
    assert_eq!(client.call(server.get()).await.map(|answer| answer.body.len()), Ok(1000));
}

#[tokio::test]
async fn the_time_limit_covers_the_whole_answer() {
    let client = HyperSideClient::default();
    for sent in ["", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"] {
        let server = server(Answer::SendAndHang(sent)).await;
        let mut call = server.get();
        call.timeout = Duration::from_millis(50);
        assert_eq!(client.call(call).await.map(|_| ()), Err(SideError::Timeout), "{sent:?}");
    }
}

#[tokio::test]
async fn a_cut_answer_is_no_answer() {
    let server = server(Answer::SendAndClose("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")).await;
    let result = HyperSideClient::default().call(server.get()).await;
    assert!(matches!(result, Err(SideError::Connect(_))), "{result:?}");
}

#[tokio::test]
async fn refusal_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback listener");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let mut call = server(Answer::Echo).await.get();
    call.url = format!("http://{address}/");
    let result = HyperSideClient::default().call(call).await.map(|_| ());
    let refused = matches!(&result, Err(SideError::Connect(text)) if text.contains("refused"));
    assert!(refused, "{result:?}");
}

/// K8S-04, and names that DNS or the hosts file knows.
#[tokio::test]
async fn names_and_ipv6_addresses_are_reached() {
    let client = HyperSideClient::default();
    let named = server(Answer::Echo).await;
    let mut call = named.get();
    call.url = format!("http://localhost:{}/", named.address.port());
    assert!(client.call(call).await.is_ok());
    let six = match Server::start("[::1]:0", Answer::Echo).await {
        Ok(six) => six,
        // A machine without IPv6 has nothing to reach.
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => return,
        Err(error) => panic!("binding ::1: {error}"),
    };
    assert!(six.get().url.contains("[::1]"));
    assert!(client.call(six.get()).await.is_ok());
}

#[tokio::test]
async fn other_urls_are_refused() {
    let client = HyperSideClient::default();
    for url in ["ftp://127.0.0.1/", "/path", "http://user@127.0.0.1/", "http://", "not a url"] {
        let mut call = server(Answer::Echo).await.get();
        call.url = url.to_owned();
        let result = client.call(call).await.map(|_| ());
        assert!(matches!(result, Err(SideError::Bad(_))), "{url}: {result:?}");
    }
}
