//! Several data-parallel ranks behind one address, as one engine process serves them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kvasir_core::EngineKind;
use kvasir_mock_engine::{Engine, EngineConfig, EventsConfig};
use kvasir_suite::client::{get, send};
use kvasir_suite::router::MODEL;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The ranks and the address they share.
pub struct Front {
    pub address: SocketAddr,
    pub ranks: Vec<Engine>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    kind: EngineKind,
    ranks: Vec<SocketAddr>,
    /// Takes turns where no rank is asked for, as vLLM's own balancer does when idle.
    turn: AtomicUsize,
    /// The rank that each inference request asked for.
    asked: Mutex<Vec<Option<String>>>,
}

impl Front {
    pub async fn start(kind: EngineKind, count: u32) -> anyhow::Result<Self> {
        let mut ranks = Vec::new();
        for rank in 0..count {
            let config = EngineConfig {
                kind,
                model: MODEL.to_owned(),
                events: Some(EventsConfig { rank, ..EventsConfig::default() }),
                decode_us_per_token: 1000.0,
                answer_tokens: 8_000,
                ..EngineConfig::default()
            };
            ranks.push(Engine::start(config).await?);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            kind,
            ranks: ranks.iter().map(Engine::address).collect(),
            turn: AtomicUsize::new(0),
            asked: Mutex::default(),
        });
        let known = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let known = Arc::clone(&known);
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(Arc::clone(&known), request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, ranks, shared, task })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The ranks that the inference requests so far asked for.
    pub fn asked(&self) -> Vec<Option<String>> {
        self.shared.asked.lock().clone()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> anyhow::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    match head.uri.path() {
        "/metrics" => return Ok(Response::new(Full::from(pages(&shared).await?))),
        "/kv_event_sources" => return Ok(Response::new(Full::from(sources(&shared).await?))),
        _ => {}
    }
    let infers = head.method == Method::POST && head.uri.path() == "/v1/chat/completions";
    let asked =
        head.headers.get("x-data-parallel-rank").and_then(|rank| rank.to_str().ok().map(str::to_owned));
    let rank = match asked.as_deref().map(str::parse::<usize>) {
        Some(rank) => rank.ok().filter(|rank| *rank < shared.ranks.len()),
        None if infers => Some(shared.turn.fetch_add(1, Ordering::Relaxed) % shared.ranks.len()),
        None => Some(0),
    };
    if infers {
        shared.asked.lock().push(asked);
    }
    // vLLM answers so to a rank that it does not have.
    let Some(to) = rank.and_then(|rank| shared.ranks.get(rank)) else {
        return Ok(Response::builder().status(400).body(Full::default())?);
    };
    let answer = send(*to, Request::from_parts(head, Full::new(body))).await?;
    let (mut head, body) = answer.into_parts();
    head.headers.remove("transfer-encoding");
    Ok(Response::from_parts(head, Full::new(body)))
}

/// One page with the series of every rank.
async fn pages(shared: &Shared) -> anyhow::Result<String> {
    let mut all = String::new();
    for (rank, address) in shared.ranks.iter().enumerate() {
        let answer = send(*address, get("/metrics")?).await?;
        let page = std::str::from_utf8(answer.body())?;
        all.push_str(&match shared.kind {
            EngineKind::Vllm => page.replace("engine=\"0\"", &format!("engine=\"{rank}\"")),
            EngineKind::Sglang => page.replace("model_name=", &format!("dp_rank=\"{rank}\",model_name=")),
        });
    }
    Ok(all)
}

/// The event sources of every rank, by rank.
async fn sources(shared: &Shared) -> anyhow::Result<String> {
    let mut all = Map::new();
    for address in &shared.ranks {
        let answer = send(*address, get("/kv_event_sources")?).await?;
        if let Ok(Value::Object(sources)) = serde_json::from_slice(answer.body()) {
            all.extend(sources);
        }
    }
    Ok(Value::Object(all).to_string())
}
