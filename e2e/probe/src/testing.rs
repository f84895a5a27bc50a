//! An HTTP server inside the test: scripted answers, cut where a test wants it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// One request as the server got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    /// Number of the connection it came on, from 1.
    pub(crate) connection: usize,
}

/// What the server answers.
#[derive(Clone, Debug)]
pub(crate) struct Give {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) pieces: Vec<Piece>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    /// The connection breaks, in the middle of the body.
    Break,
    /// Nothing more comes.
    Hang,
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    /// Aborts the server and its connections when dropped.
    _accepting: JoinSet<()>,
}

type Frames = std::pin::Pin<Box<dyn futures_util::Stream<Item = io::Result<Frame<Bytes>>> + Send>>;

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Give {
    pub(crate) fn new(status: u16, kind: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type", kind.to_owned())],
            pieces: vec![Piece::Bytes(body.into())],
        }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::new(200, "application/json", value.to_string())
    }

    pub(crate) fn sse(pieces: Vec<Piece>) -> Self {
        Self { pieces, ..Self::new(200, "text/event-stream; charset=utf-8", "") }
    }

    /// A proper stream: role, `text`, finish reason, usage, `[DONE]`.
    pub(crate) fn chat_stream(text: &str, prompt_tokens: u64, cached_tokens: Option<u64>) -> Self {
        Self::sse(vec![Piece::Bytes(Bytes::from(chat_stream(text, prompt_tokens, cached_tokens)))])
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

impl Server {
    /// Serves what `answer` makes of each request.
    pub(crate) async fn start(answer: impl Fn(&Got) -> Give + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (answer, log) = (Arc::new(answer), Arc::clone(&got));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let connection = connections.len() + 1;
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    async move {
                        let (head, body) = request.into_parts();
                        let got = Got {
                            method: head.method.to_string(),
                            path: head.uri.path().to_owned(),
                            headers: head.headers,
                            body: body.collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
                            connection,
                        };
                        log.lock().push(got.clone());
                        Ok::<_, Infallible>(respond(answer(&got)))
                    }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, got, _accepting: accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().clone()
    }
}

/// The text of a proper chat stream.
pub(crate) fn chat_stream(text: &str, prompt_tokens: u64, cached_tokens: Option<u64>) -> String {
    let chunk = |choices: Value| {
        format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": choices}))
    };
    let details = cached_tokens.map(|cached| json!({"cached_tokens": cached}));
    let usage = json!({
        "choices": [],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 2, "prompt_tokens_details": details},
    });
    [
        chunk(json!([{"delta": {"role": "assistant", "content": ""}, "finish_reason": null}])),
        chunk(json!([{"delta": {"content": text}, "finish_reason": null}])),
        chunk(json!([{"delta": {"content": ""}, "finish_reason": "stop"}])),
        format!("data: {usage}\n\n"),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}

fn respond(give: Give) -> Response<StreamBody<Frames>> {
    let mut response = Response::builder().status(give.status);
    for (name, value) in &give.headers {
        response = response.header(*name, value);
    }
    let frames = stream::unfold(give.pieces.into_iter(), |mut pieces| async move {
        let item = match pieces.next()? {
            Piece::Bytes(bytes) => Ok(Frame::data(bytes)),
            Piece::Break => Err(io::Error::other("broken on purpose")),
            Piece::Hang => std::future::pending().await,
        };
        // Lets the piece before this one leave before a break ends the connection.
        tokio::task::yield_now().await;
        Some((item, pieces))
    });
    response.body(StreamBody::new(Box::pin(frames) as Frames)).unwrap()
}
