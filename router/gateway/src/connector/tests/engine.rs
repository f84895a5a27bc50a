//! Engines that say what a test wants, and a client, both in plain HTTP/1.1.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};

/// What an engine does with one request.
pub enum Say {
    /// A JSON answer with its length.
    Json(u16, String),
    /// A stream of these pieces.
    Events(Vec<String>),
    /// A stream that breaks off.
    Cut(String),
    /// A stream's first piece, then the rest of it at the signal; unless the router leaves first.
    Pause(String, Arc<Notify>, Vec<String>),
    /// These bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Waits for the signal, then goes on; unless the router leaves first.
    When(Arc<Notify>, Box<Say>),
    /// Waits until the router leaves.
    Nothing,
}

/// One request as it came.
#[derive(Clone)]
pub struct Seen {
    pub head: String,
    pub body: String,
}

impl Seen {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub struct Engine {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    counts: watch::Sender<(usize, usize)>,
    /// Keeps a dead engine's port from others.
    _held: Option<TcpSocket>,
}

impl Engine {
    /// An engine that answers its n-th request, from 0, as `script` says.
    pub async fn start(script: impl Fn(usize) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let counts = watch::channel((0, 0)).0;
        let (script, told, counted) = (Arc::new(script), Arc::clone(&seen), counts.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (script, seen, counts) = (Arc::clone(&script), Arc::clone(&told), counted.clone());
                tokio::spawn(async move {
                    while let Some(request) = read_request(&mut stream).await {
                        let number = {
                            let mut seen = seen.lock();
                            seen.push(request);
                            seen.len() - 1
                        };
                        counts.send_modify(|counts| counts.0 += 1);
                        if !act(&mut stream, script(number), &counts).await {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, seen, counts, _held: None }
    }

    /// An address where nobody listens, and nobody else will.
    pub fn dead() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        Self { address, seen: Arc::default(), counts: watch::channel((0, 0)).0, _held: Some(socket) }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Waits until so many requests came.
    pub async fn asked(&self, requests: usize) {
        self.counts.subscribe().wait_for(|counts| counts.0 >= requests).await.unwrap();
    }

    /// Waits until the router left so many requests that were waiting here.
    pub async fn left(&self, requests: usize) {
        self.counts.subscribe().wait_for(|counts| counts.1 >= requests).await.unwrap();
    }
}

/// Whether the connection may go on.
async fn act(stream: &mut TcpStream, say: Say, counts: &watch::Sender<(usize, usize)>) -> bool {
    let (signal, then) = match say {
        Say::Json(status, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
            );
            let text = format!("{head}x-engine: yes\r\n\r\n{body}");
            return stream.write_all(text.as_bytes()).await.is_ok();
        }
        Say::Events(pieces) => {
            stream.write_all(&stream_head()).await.unwrap();
            return say_on(stream, &pieces).await;
        }
        Say::Cut(piece) => {
            stream.write_all(&stream_head()).await.unwrap();
            stream.write_all(&chunk(&piece)).await.unwrap();
            return false;
        }
        Say::Pause(piece, signal, rest) => {
            stream.write_all(&stream_head()).await.unwrap();
            stream.write_all(&chunk(&piece)).await.unwrap();
            (signal, Then::On(rest))
        }
        Say::Raw(bytes) => {
            stream.write_all(&bytes).await.unwrap();
            return false;
        }
        Say::Close => return false,
        Say::When(signal, then) => (signal, Then::Say(then)),
        Say::Nothing => (Arc::new(Notify::new()), Then::On(Vec::new())),
    };
    let mut byte = [0; 1];
    tokio::select! {
        () = signal.notified() => match then {
            Then::Say(then) => Box::pin(act(stream, *then, counts)).await,
            Then::On(pieces) => say_on(stream, &pieces).await,
        },
        _ = stream.read(&mut byte) => {
            counts.send_modify(|counts| counts.1 += 1);
            false
        }
    }
}

/// What comes behind a signal.
enum Then {
    Say(Box<Say>),
    /// The rest of a stream.
    On(Vec<String>),
}

/// The rest of a stream, and its end.
async fn say_on(stream: &mut TcpStream, pieces: &[String]) -> bool {
    for piece in pieces {
        stream.write_all(&chunk(piece)).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.is_ok()
}

fn chunk(piece: &str) -> Vec<u8> {
    format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes()
}

fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        read_some(stream, &mut bytes).await?;
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = value_of(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        read_some(stream, &mut bytes).await?;
    }
    assert_eq!(bytes.len(), end + length, "the length is the body's");
    Some(Seen { head, body: String::from_utf8(bytes[end..].to_vec()).unwrap() })
}

async fn read_some(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut part = [0; 4096];
    let read = stream.read(&mut part).await.ok().filter(|read| *read > 0)?;
    bytes.extend_from_slice(&part[..read]);
    Some(())
}

pub fn value_of(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then(|| value.to_owned())
    })
}

/// What a client sees: status, head, and the body without its chunks' frames; `whole` when it came to its end.
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: String,
    pub whole: bool,
}

/// Sends a chat whose answer is read by [`finish`].
pub async fn send(to: SocketAddr, body: &str) -> TcpStream {
    send_to(to, "/v1/chat/completions", body).await
}

pub async fn send_to(to: SocketAddr, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n"
    );
    stream.write_all(format!("{head}x-request-id: test\r\n\r\n{body}").as_bytes()).await.unwrap();
    stream
}

pub async fn finish(mut stream: TcpStream) -> Got {
    let mut bytes = Vec::new();
    // A reset ends an answer too.
    while read_some(&mut stream, &mut bytes).await.is_some() {}
    let text = String::from_utf8(bytes).unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    if value_of(head, "transfer-encoding").is_none() {
        let whole = value_of(head, "content-length").is_some_and(|length| length == rest.len().to_string());
        return Got { status, head: head.to_owned(), body: rest.to_owned(), whole };
    }
    let (mut body, mut rest, mut whole) = (String::new(), rest, false);
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole = size == 0;
        let Some(chunk) = tail.get(..size) else { break };
        body.push_str(chunk);
        rest = tail.get(size + 2..).unwrap_or_default();
    }
    Got { status, head: head.to_owned(), body, whole }
}

pub async fn post(to: SocketAddr, body: &str) -> Got {
    finish(send(to, body).await).await
}
