//! The engines of all pods: one listener for every address of 127.0.0.0/8, which answers as the pod that was called.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

use super::{PodNumber, served_name};

/// A router connects to thousands of pods at once.
const BACKLOG: u32 = 4096;

/// Histograms on a metrics page, and buckets of each: with them it is as long as that of a vLLM rank, some 60 kB.
const HISTOGRAMS: usize = 23;
const BUCKETS: usize = 24;

/// The listener. Its connections end with it.
#[derive(Debug)]
pub struct Hosts {
    /// The port of every pod.
    pub port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    page: Bytes,
    scrapes: AtomicU64,
}

impl Hosts {
    /// Listens on a free port of all addresses.
    ///
    /// # Errors
    /// There is none.
    pub async fn start() -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        let listener = socket.listen(BACKLOG)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { page: page(), scrapes: AtomicU64::new(0) });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, task })
    }

    /// How many metrics pages were asked for.
    pub fn scrapes(&self) -> u64 {
        self.shared.scrapes.load(Ordering::Relaxed)
    }

    /// The length of a metrics page, bytes.
    pub fn page_bytes(&self) -> usize {
        self.shared.page.len()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut serving = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while serving.try_join_next().is_some() {}
        let Ok(SocketAddr::V4(called)) = stream.local_addr() else { continue };
        let Some(pod) = PodNumber::of(*called.ip()) else { continue };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        serving.spawn(async move {
            let service = service_fn(move |request| answer(request, pod, Arc::clone(&shared)));
            // Routers leave whenever they like.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    pod: PodNumber,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            shared.scrapes.fetch_add(1, Ordering::Relaxed);
            respond(StatusCode::OK, "text/plain; version=0.0.4", shared.page.clone())
        }
        (&Method::GET, "/health") => respond(StatusCode::OK, "application/json", Bytes::new()),
        (&Method::GET, "/v1/models") => {
            let models =
                json!({"object": "list", "data": [{"id": served_name(pod.server), "object": "model"}]});
            respond(StatusCode::OK, "application/json", models.to_string().into())
        }
        (&Method::POST, "/v1/chat/completions") => match chat(request, pod).await {
            Ok(body) => respond(StatusCode::OK, "application/json", body),
            Err(_) => respond(StatusCode::BAD_REQUEST, "application/json", Bytes::from_static(b"{}")),
        },
        _ => respond(StatusCode::NOT_FOUND, "application/json", Bytes::from_static(b"{}")),
    })
}

/// The answer to a chat: it says who answers, and which model was asked for.
async fn chat(request: Request<Incoming>, pod: PodNumber) -> Result<Bytes> {
    let body = request.into_body().collect().await?.to_bytes();
    let asked: Value = serde_json::from_slice(&body)?;
    let model = asked["model"].as_str().context("no model")?;
    let message = json!({"role": "assistant", "content": format!("{} {model}", pod.address())});
    let answer = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    });
    Ok(answer.to_string().into())
}

/// What [`chat`] said.
pub(super) fn read_answer(body: &[u8]) -> Option<(PodNumber, String)> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let (address, model) = answer["choices"][0]["message"]["content"].as_str()?.split_once(' ')?;
    let IpAddr::V4(address) = address.parse().ok()? else { return None };
    Some((PodNumber::of(address)?, model.to_owned()))
}

fn respond(status: StatusCode, media: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// The page of an idle engine.
fn page() -> Bytes {
    let labels = r#"engine="0",model_name="served-model""#;
    let mut text = String::new();
    let mut put = |line: std::fmt::Arguments<'_>| {
        // Writing into a string cannot fail.
        let _ = text.write_fmt(line);
    };
    for (name, value) in
        [("num_requests_running", 0.0), ("num_requests_waiting", 0.0), ("kv_cache_usage_perc", 0.25)]
    {
        put(format_args!(
            "# HELP vllm:{name} As the engine says.\n# TYPE vllm:{name} gauge\nvllm:{name}{{{labels}}} {value:?}\n"
        ));
    }
    put(format_args!(
        "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size=\"16\",{labels},num_gpu_blocks=\"20000\"}} 1.0\n"
    ));
    for number in 0..HISTOGRAMS {
        let name = match number {
            0 => "vllm:time_to_first_token_seconds".to_owned(),
            1 => "vllm:inter_token_latency_seconds".to_owned(),
            _ => format!("vllm:request_stage_{number}_time_seconds"),
        };
        put(format_args!(
            "# HELP {name} Histogram of the time of one stage in seconds.\n# TYPE {name} histogram\n"
        ));
        for bucket in 0..BUCKETS {
            let bound = 0.001 * f64::from(1 << bucket);
            put(format_args!("{name}_bucket{{{labels},le=\"{bound:?}\"}} 0.0\n"));
        }
        put(format_args!(
            "{name}_bucket{{{labels},le=\"+Inf\"}} 0.0\n{name}_count{{{labels}}} 0.0\n{name}_sum{{{labels}}} 0.0\n"
        ));
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::super::{Line, Told};
    use super::*;

    #[tokio::test]
    async fn every_address_answers_as_its_pod() {
        let hosts = Hosts::start().await.unwrap();
        for pod in [PodNumber { server: 3, number: 1 }, PodNumber { server: 220, number: 0 }] {
            let mut line = Line::new(SocketAddr::from((pod.address(), hosts.port)));
            let told = line.ask("some-model").await.unwrap();
            assert_eq!(told, Told { status: 200, answer: Some((pod, "some-model".to_owned())) });
        }
        assert_eq!(hosts.scrapes(), 0);
    }

    #[test]
    fn a_page_is_as_long_as_that_of_an_engine() {
        assert!((50_000..70_000).contains(&page().len()), "{}", page().len());
    }
}
