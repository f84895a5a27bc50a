//! An engine that answers with what it was asked: which pod it plays, and the request as it arrived.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Paths that routers ask about an engine by themselves; nothing else is meant by them.
const SIDE_PATHS: &[&str] = &[
    "/metrics",
    "/health",
    "/version",
    "/tokenize",
    "/kv_event_sources",
    "/server_info",
    "/get_server_info",
    "/get_model_info",
];

/// How an engine answers inference requests.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Status.
    pub status: u16,
    /// Headers beside the content type.
    pub headers: Vec<(String, String)>,
    /// What it waits for before it answers.
    pub after: Duration,
    /// How many requests are answered in this way; those after them get 200 at once. `None` is all of them.
    pub times: Option<usize>,
}

impl Default for Manner {
    fn default() -> Self {
        Self { status: 200, headers: Vec::new(), after: Duration::ZERO, times: None }
    }
}

impl Manner {
    /// How the next request is answered.
    fn take(&mut self) -> Self {
        match &mut self.times {
            Some(0) => Self::default(),
            Some(left) => {
                *left -= 1;
                self.clone()
            }
            None => self.clone(),
        }
    }
}

#[derive(Debug)]
struct Shared {
    pod: String,
    /// What it lists at `/v1/models`; none has no such path.
    models: Vec<String>,
    manner: Mutex<Manner>,
    asked: AtomicUsize,
}

/// The engine.
#[derive(Debug)]
pub struct Echo {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Echo {
    /// Plays the engine of `pod` at an address. With the name of a host it speaks TLS, with a certificate that it made
    /// for that name itself.
    ///
    /// # Errors
    /// The address is taken.
    pub async fn start(
        pod: &str,
        address: SocketAddr,
        models: Vec<String>,
        tls: Option<&str>,
    ) -> Result<Self> {
        let acceptor = tls.map(acceptor).transpose()?;
        let listener = TcpListener::bind(address).await.with_context(|| format!("{address} is taken"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            pod: pod.to_owned(),
            models,
            manner: Mutex::default(),
            asked: AtomicUsize::new(0),
        });
        let known = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // Its connections die with it, as those of a process do.
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let (known, acceptor) = (Arc::clone(&known), acceptor.clone());
                serving.spawn(async move {
                    match acceptor {
                        None => serve(stream, known).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, known).await;
                            }
                        }
                    }
                });
                while serving.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, task })
    }

    /// From now on it answers in this way.
    pub fn behave(&self, manner: Manner) {
        *self.shared.manner.lock() = manner;
    }

    /// How many inference requests arrived.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A loopback address that nobody else of this process has: pods of one port need one each. All of 127.0.0.0/8 is
/// local, and processes that run side by side start at different places of it.
pub fn loopback() -> Ipv4Addr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    // 127.0.x.y is left to others.
    let second = u8::try_from(std::process::id() % 250).unwrap_or(0) + 1;
    loop {
        let [third, last] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        if last != 0 && last != u8::MAX {
            return Ipv4Addr::new(127, second, third, last);
        }
    }
}

fn acceptor(host: &str) -> Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    // A router that leaves is no error of ours.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path();
    if head.method == Method::GET && path == "/v1/models" && !shared.models.is_empty() {
        let data: Vec<Value> =
            shared.models.iter().map(|name| json!({"id": name, "object": "model"})).collect();
        return reply(200, &json!({"object": "list", "data": data}));
    }
    if SIDE_PATHS.contains(&path) || path == "/v1/models" || path.ends_with("/render") {
        return reply(if path == "/health" { 200 } else { 404 }, &json!({}));
    }
    shared.asked.fetch_add(1, Ordering::Relaxed);
    let manner = shared.manner.lock().take();
    if !manner.after.is_zero() {
        tokio::time::sleep(manner.after).await;
    }
    let mut response = reply(manner.status, &told(&shared.pod, &head, &body))?;
    for (name, value) in &manner.headers {
        response.headers_mut().append(name.parse::<http::HeaderName>()?, value.parse()?);
    }
    Ok(response)
}

/// The request as it arrived.
fn told(pod: &str, head: &http::request::Parts, body: &Bytes) -> Value {
    let whole = head.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut told = json!({
        "pod": pod,
        "method": head.method.as_str(),
        "path": whole,
        "host": head.headers.get("host").and_then(|host| host.to_str().ok()),
        "headers": headers(&head.headers),
        "model": asked.get("model"),
        "body": String::from_utf8_lossy(body),
    });
    // An engine whose cache another one will fetch says where it is.
    if asked.pointer("/kv_transfer_params/do_remote_decode") == Some(&Value::Bool(true)) {
        told["kv_transfer_params"] = json!({"do_remote_prefill": true, "remote_engine_id": pod});
    }
    told
}

/// Values by name, in the order in which they came.
pub fn headers(map: &HeaderMap) -> Value {
    let mut all = serde_json::Map::new();
    for (name, value) in map {
        let value = Value::from(String::from_utf8_lossy(value.as_bytes()));
        match all.entry(name.as_str()).or_insert_with(|| json!([])) {
            Value::Array(values) => values.push(value),
            _ => continue,
        }
    }
    Value::Object(all)
}

fn reply(status: u16, body: &Value) -> Result<Response<Full<Bytes>>> {
    let body = Full::new(Bytes::from(body.to_string()));
    Ok(Response::builder().status(status).header("content-type", "application/json").body(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{post, send};

    #[tokio::test]
    async fn it_tells_what_it_was_asked() -> Result<()> {
        let echo = Echo::start("pod", SocketAddr::from((loopback(), 0)), Vec::new(), None).await?;
        echo.behave(Manner { status: 503, times: Some(1), ..Manner::default() });
        let ask = || post("/v1/completions?x=1", r#"{"model":"m"}"#);
        assert_eq!(send(echo.address, ask()?).await?.status(), 503);
        let answer = send(echo.address, ask()?).await?;
        assert_eq!(answer.status(), 200);
        let told: Value = serde_json::from_slice(answer.body())?;
        assert_eq!(
            [&told["pod"], &told["path"], &told["model"], &told["host"], &told["headers"]["host"][0]],
            ["pod", "/v1/completions?x=1", "m", "router", "router"]
        );
        assert_eq!(echo.asked(), 2);
        assert_eq!(send(echo.address, crate::client::get("/metrics")?).await?.status(), 404);
        assert_eq!(echo.asked(), 2, "side calls are not what a case is about");
        Ok(())
    }

    #[tokio::test]
    async fn it_says_where_a_cache_is_to_those_who_ask_for_it() -> Result<()> {
        let echo = Echo::start("pod", SocketAddr::from((loopback(), 0)), Vec::new(), None).await?;
        for (asked, told) in [("true", json!("pod")), ("false", Value::Null)] {
            let body = format!(r#"{{"model":"m","kv_transfer_params":{{"do_remote_decode":{asked}}}}}"#);
            let answer = send(echo.address, post("/v1/completions", body)?).await?;
            let answer: Value = serde_json::from_slice(answer.body())?;
            assert_eq!(answer["kv_transfer_params"]["remote_engine_id"], told);
        }
        Ok(())
    }

    #[test]
    fn addresses_differ() {
        let many: std::collections::BTreeSet<Ipv4Addr> = (0..600).map(|_| loopback()).collect();
        assert_eq!(many.len(), 600);
        assert!(many.iter().all(|address| address.is_loopback()));
    }
}
