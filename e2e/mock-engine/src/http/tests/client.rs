//! A small client: one connection for each request.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::engine::Engine;

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    http2: bool,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("is JSON")
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).expect("is text")
    }

    /// The JSON of every `data:` line.
    pub(super) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

/// A body that is read piece by piece.
pub(super) struct Pieces {
    pub(super) status: StatusCode,
    body: Incoming,
}

impl Pieces {
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let frame = timeout(PATIENCE, self.body.frame()).await.expect("in time")?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(io::Error::other))
    }

    /// Everything up to the end or the error.
    pub(super) async fn rest(&mut self) -> (String, bool) {
        let mut text = Vec::new();
        loop {
            match self.next().await {
                Some(Ok(piece)) => text.extend_from_slice(&piece),
                Some(Err(_)) => return (String::from_utf8(text).expect("is text"), false),
                None => return (String::from_utf8(text).expect("is text"), true),
            }
        }
    }
}

impl Client {
    pub(super) fn new(engine: &Engine) -> Self {
        Self { address: engine.address(), http2: false }
    }

    pub(super) fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    pub(super) fn patience(&self) -> Duration {
        PATIENCE
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, Vec::new()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, body.to_string()).await
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send_with(method, path, body, &[]).await
    }

    pub(super) async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> Reply {
        self.try_send(method, path, body, headers).await.expect("is answered")
    }

    /// The whole answer, or what went wrong on the way.
    pub(super) async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Reply> {
        timeout(PATIENCE, async {
            let response = self.exchange(method, path, body.into(), headers).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Reply { status: head.status, headers: head.headers, body })
        })
        .await?
    }

    /// A POST whose answer is read piece by piece.
    pub(super) async fn open(&self, path: &str, body: &Value) -> Pieces {
        let response = self.exchange(Method::POST, path, body.to_string().into(), &[]).await.expect("a head");
        Pieces { status: response.status(), body: response.into_body() }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<http::Response<Incoming>> {
        let io = TokioIo::new(TcpStream::connect(self.address).await?);
        let uri = if self.http2 { format!("http://{}{path}", self.address) } else { path.to_owned() };
        let mut request = Request::builder().method(method).uri(uri).header("host", "engine");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body))?;
        if self.http2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            return Ok(sender.send_request(request).await?);
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        Ok(sender.send_request(request).await?)
    }
}

/// Waits until `condition` holds.
pub(super) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
