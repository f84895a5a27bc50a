//! An engine for tests: its HTTP answers, and its publisher and replay sockets spoken by hand.

mod zmtp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_kvcache::KvEventsSource;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long anything may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A vLLM of one rank that serves the model `served`, as seen from outside.
#[derive(Debug)]
pub struct FakeEngine {
    http: SocketAddr,
    events: Arc<TcpListener>,
    replays: Arc<TcpListener>,
    history: zmtp::History,
    live: broadcast::Sender<(u64, Bytes)>,
    /// Ends with the process that the engine stands for.
    life: CancellationToken,
    answers: Arc<Mutex<Answers>>,
    /// Time stamps differ from life to life.
    born: f64,
}

/// What it answers over HTTP.
#[derive(Debug)]
struct Answers {
    is_up: bool,
    sources: String,
    asleep: bool,
}

impl FakeEngine {
    /// An engine that is up and has published nothing.
    pub async fn start() -> Self {
        let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (http, events, replays) = (listen().await, Arc::new(listen().await), Arc::new(listen().await));
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let sources = format!(
            r#"{{"0":{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:{}","replay_endpoint":"tcp://*:{}"}}}}"#,
            port(&events),
            port(&replays)
        );
        let address = http.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(Answers { is_up: true, sources, asleep: false }));
        tokio::spawn(serve_http(http, Arc::clone(&answers)));
        let engine = Self {
            http: address,
            events,
            replays,
            history: zmtp::History::default(),
            live: broadcast::channel(256).0,
            life: CancellationToken::new(),
            answers,
            born: 1000.0,
        };
        engine.open();
        engine
    }

    fn open(&self) {
        zmtp::publish(Arc::clone(&self.events), self.live.clone(), self.life.clone());
        zmtp::replay(Arc::clone(&self.replays), Arc::clone(&self.history), self.life.clone());
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Its HTTP port, part of what owners are called.
    pub fn port(&self) -> u16 {
        self.http.port()
    }

    /// Whether it answers over HTTP.
    pub fn set_up(&self, is_up: bool) {
        self.answers.lock().is_up = is_up;
    }

    /// What it says of its event sources.
    pub fn set_sources(&self, sources: &str) {
        sources.clone_into(&mut self.answers.lock().sources);
    }

    /// Whether it sleeps, by its metrics.
    pub fn set_asleep(&self, asleep: bool) {
        self.answers.lock().asleep = asleep;
    }

    /// Stores blocks of 16 tokens, one batch for all: block N has the ids from 16 N on and the name N + 1.
    pub fn store(&self, blocks: std::ops::Range<u32>) {
        self.publish(&stored(blocks.clone(), blocks));
    }

    /// Stores a block under the name that another one would have.
    pub fn store_as(&self, block: u32, name: u32) {
        self.publish(&stored(block..block + 1, name..name + 1));
    }

    /// Removes blocks.
    pub fn remove(&self, blocks: std::ops::Range<u32>) {
        let mut event = pack_text("BlockRemoved", 2);
        pack_names(&mut event, blocks);
        self.publish(&event);
    }

    fn publish(&self, event: &[u8]) {
        let mut history = self.history.lock();
        let seq = history.last().map_or(0, |(seq, _)| seq + 1);
        let mut payload = vec![0x93, 0xcb];
        payload.extend_from_slice(&(self.born + seq as f64).to_be_bytes());
        payload.push(0x91);
        payload.extend_from_slice(event);
        payload.push(0x00);
        let batch = (seq, Bytes::from(payload));
        history.push(batch.clone());
        // Nobody may be connected.
        let _ = self.live.send(batch);
    }

    /// Drops all but the last batches from what can be replayed.
    pub fn keep_for_replay(&self, batches: usize) {
        let mut history = self.history.lock();
        let gone = history.len().saturating_sub(batches);
        history.drain(..gone);
    }

    /// Where it publishes.
    pub fn source(&self) -> KvEventsSource {
        let at = |listener: &TcpListener| format!("tcp://{}", listener.local_addr().unwrap());
        KvEventsSource::configured(&at(&self.events), Some(&at(&self.replays)), "", 0)
    }

    /// Its event ports are cut off; HTTP goes on.
    pub fn cut_off(&mut self) {
        std::mem::take(&mut self.life).cancel();
    }

    /// They can be reached again, and the process is the same.
    pub fn reconnect(&mut self) {
        self.open();
    }

    /// A new process at the same address, with an empty cache and numbers from 0.
    pub fn restart(&mut self) {
        std::mem::take(&mut self.life).cancel();
        self.history = zmtp::History::default();
        self.live = broadcast::channel(256).0;
        self.born += 100_000.0;
        self.open();
    }
}

/// One `BlockStored`: hashes, no parent, tokens, size, no adapter.
fn stored(blocks: std::ops::Range<u32>, names: std::ops::Range<u32>) -> Vec<u8> {
    let mut event = pack_text("BlockStored", 6);
    pack_names(&mut event, names);
    event.extend_from_slice(&[0xc0, 0xdc]);
    event.extend_from_slice(&(blocks.len() as u16 * 16).to_be_bytes());
    for id in blocks.start * 16..blocks.end * 16 {
        event.push(0xce);
        event.extend_from_slice(&id.to_be_bytes());
    }
    event.extend_from_slice(&[16, 0xc0]);
    event
}

/// The head of an event: an array of `parts` that begins with its tag.
fn pack_text(tag: &str, parts: u8) -> Vec<u8> {
    let mut bytes = vec![0x90 | parts, 0xa0 | tag.len() as u8];
    bytes.extend_from_slice(tag.as_bytes());
    bytes
}

fn pack_names(bytes: &mut Vec<u8>, blocks: std::ops::Range<u32>) {
    bytes.push(0xdc);
    bytes.extend_from_slice(&(blocks.len() as u16).to_be_bytes());
    for block in blocks {
        bytes.push(0xcf);
        bytes.extend_from_slice(&u64::from(block + 1).to_be_bytes());
    }
}

async fn serve_http(listener: TcpListener, answers: Arc<Mutex<Answers>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        if answers.lock().is_up {
            tokio::spawn(answer(stream, Arc::clone(&answers)));
        }
    }
}

async fn answer(mut stream: TcpStream, answers: Arc<Mutex<Answers>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let body = {
        let answers = answers.lock();
        match head.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => Some(r#"{"data":[{"id":"served","owned_by":"vllm"}]}"#.to_owned()),
            "/version" => Some(r#"{"version":"0.32.0"}"#.to_owned()),
            "/kv_event_sources" => Some(answers.sources.clone()),
            "/metrics" => Some(format!(
                "vllm:num_requests_running{{engine=\"0\"}} 0\nvllm:num_requests_waiting{{engine=\"0\"}} 0\n\
                 vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"5000\"}} 1\n\
                 vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"weights_offloaded\"}} {}\n",
                u8::from(answers.asleep)
            )),
            _ => None,
        }
    };
    let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
    let body = body.unwrap_or_default();
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await
}

/// One GET: status and body.
pub async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    send(address, "GET", path).await
}

/// One request without a body: status and body.
pub async fn send(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Waits until something holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
