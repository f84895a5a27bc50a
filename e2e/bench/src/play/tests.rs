//! The loop against a small server of its own.

use std::convert::Infallible;
use std::sync::Mutex;

use http::Response;
use http_body_util::{BodyExt as _, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use super::*;
use crate::corpus::Corpus;
use crate::prompt::Sizes;

/// What arrived: the number of messages of each body, and how many connections there were.
#[derive(Default)]
struct Seen {
    messages: Mutex<Vec<usize>>,
    connections: AtomicU64,
}

/// Answers everything with `status` and a two-event stream.
async fn serve(status: u16) -> (std::net::SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            shared.connections.fetch_add(1, Ordering::Relaxed);
            let seen = Arc::clone(&shared);
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let seen = Arc::clone(&seen);
                async move {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    seen.messages.lock().unwrap().push(body["messages"].as_array().unwrap().len());
                    let events = Full::new(Bytes::from_static(b"data: {}\n\ndata: [DONE]\n\n"));
                    let answer =
                        Response::builder().status(status).header("content-type", "text/event-stream");
                    Ok::<_, Infallible>(answer.body(events).unwrap())
                }
            });
            tokio::spawn(async move {
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await)
            });
        }
    });
    (address, seen)
}

fn conversations() -> Arc<Conversations<'static>> {
    let text: String = (0..200).map(|line| format!("line {line}\n")).collect();
    Arc::new(Conversations {
        corpus: Box::leak(Box::new(Corpus::new(&text).unwrap())),
        model: "m".to_owned(),
        stream: true,
        max_tokens: 2,
        seed: 1,
        sizes: Sizes { first: 400, message: 200, turn: 100 },
    })
}

fn work(address: std::net::SocketAddr, connections: Connections, plan: Plan) -> Work {
    let site = Site { address, path: "/v1/chat/completions".to_owned() };
    Work { site, clients: 2, connections, plan, most: 6, time: Duration::from_secs(60) }
}

#[tokio::test]
async fn every_turn_of_every_conversation_is_sent_once_on_kept_connections() {
    let (address, seen) = serve(200).await;
    let plan = Plan::Turns { from: 1, turns: 3 };
    let (figures, _) = play(work(address, Connections::Kept, plan), conversations()).await.unwrap();
    assert_eq!((figures.answered, figures.failed, figures.events), (18, 0, 36));
    assert_eq!((figures.latency.len(), figures.first_byte.len()), (18, 18));
    assert_eq!(seen.connections.load(Ordering::Relaxed), 2);
    let mut messages = seen.messages.lock().unwrap().clone();
    messages.sort_unstable();
    assert_eq!(messages, [[4; 6], [6; 6], [8; 6]].concat());
}

#[tokio::test]
async fn new_connections_are_one_for_each_request() {
    let (address, seen) = serve(200).await;
    let plan = Plan::Shared { groups: 2 };
    let (figures, _) = play(work(address, Connections::New, plan), conversations()).await.unwrap();
    assert_eq!(figures.answered, 6);
    assert_eq!(seen.connections.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn failures_are_counted_and_their_first_one_is_told() {
    let (address, _) = serve(503).await;
    let plan = Plan::Turns { from: 0, turns: 1 };
    let (figures, _) = play(work(address, Connections::Kept, plan), conversations()).await.unwrap();
    assert_eq!((figures.answered, figures.failed), (0, 6));
    assert!(figures.first_failure.is_some_and(|failure| failure.starts_with("503")));
}
