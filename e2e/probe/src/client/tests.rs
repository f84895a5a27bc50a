//! Tests of the connections: kept, closed, refused.

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::testing::{Give, Server};

fn client(url: &str) -> Client {
    Client::new(BaseUrl::parse(url).unwrap())
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::builder().method(Method::GET).uri(path).header("host", "test").body(Full::default()).unwrap()
}

#[tokio::test]
async fn one_connection_serves_many_requests_and_two_at_once_need_two() {
    let server = Server::start(|_| Give::new(200, "text/plain", "hello")).await;
    let client = client(&server.url());
    for _ in 0..20 {
        let mut reply = client.send(get("/a")).await.unwrap();
        assert_eq!(reply.whole(100).await.unwrap(), "hello");
    }
    assert!(server.got().iter().all(|got| got.connection == 1));

    let (one, two) = tokio::join!(client.send(get("/b")), client.send(get("/b")));
    let (mut one, mut two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.whole(100).await.unwrap(), two.whole(100).await.unwrap());
    assert_eq!(server.got().iter().map(|got| got.connection).max(), Some(2));
    assert_eq!(client.idle.lock().len(), 2);
}

#[tokio::test]
async fn a_reply_that_is_not_read_to_its_end_takes_its_connection_along() {
    let server = Server::start(|_| Give::new(200, "text/plain", vec![b'x'; 1_000_000])).await;
    let client = client(&server.url());
    let mut reply = client.send(get("/")).await.unwrap();
    assert!(reply.chunk().await.unwrap().is_some());
    drop(reply);
    assert_eq!(client.idle.lock().len(), 0);
    let mut reply = client.send(get("/")).await.unwrap();
    assert_eq!(reply.whole(10_000).await.unwrap_err().kind, FailureKind::TooLarge);
    assert_eq!(client.send(get("/")).await.unwrap().beginning(10).await, b"xxxxxxxxxx");
}

/// Reads one request head and answers it.
async fn answer_once(stream: &mut TcpStream, answer: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()));
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let serving = async {
        let (mut first, _) = listener.accept().await.unwrap();
        answer_once(&mut first, answer).await;
        first
    };
    let asking = async { client.send(get("/")).await.unwrap().whole(10).await };
    let (first, reply) = tokio::join!(serving, asking);
    assert_eq!(reply.unwrap(), "ok");
    drop(first);
    // The close has arrived when the kept connection is no longer usable.
    let mut kept = client.idle.lock().pop().unwrap();
    while kept.is_usable().await {
        tokio::task::yield_now().await;
    }
    client.idle.lock().push(kept);
    let serving = async {
        let (mut second, _) = listener.accept().await.unwrap();
        answer_once(&mut second, answer).await;
        second
    };
    let asking = async { client.send(get("/")).await.unwrap().whole(10).await };
    let (_second, reply) = tokio::join!(serving, asking);
    assert_eq!(reply.unwrap(), "ok");
}

#[tokio::test]
async fn a_refused_connection_names_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let failure = client(&url).send(get("/")).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Connect);
    assert!(failure.message.starts_with(&format!("cannot connect to {url}: ")), "{failure}");
}

#[tokio::test]
async fn a_server_that_hangs_up_or_talks_nonsense() {
    for (answer, kind) in [
        ("", FailureKind::Closed),
        ("HTTP/1.1 200 OK\r\nconten", FailureKind::Closed),
        ("SSH-2.0-OpenSSH_9\r\n\r\n", FailureKind::BadAnswer),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = client(&format!("http://{}", listener.local_addr().unwrap()));
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            answer_once(&mut stream, answer).await;
        };
        let (reply, ()) = tokio::join!(client.send(get("/")), serving);
        assert_eq!(reply.unwrap_err().kind, kind, "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()));
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer_once(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nok").await;
    };
    let asking = async { client.send(get("/")).await.unwrap().whole(100).await };
    let ((), body) = tokio::join!(serving, asking);
    assert_eq!(body.unwrap_err().kind, FailureKind::StreamCut);
}
