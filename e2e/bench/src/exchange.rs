//! One connection and one request on it: plain HTTP/1.1, as little of a client as can be measured with.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::figures::Figures;

/// Where requests go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Address to connect to.
    pub address: SocketAddr,
    /// Path of every request.
    pub path: String,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn open(site: &Site) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(site.address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.context("handshake")?;
        // Ends when the sender is dropped; its errors show at the sender, too.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    /// Whether the next request may use it.
    pub async fn is_usable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends one request, reads its answer to the end and writes both down. `started` is when its time began.
    ///
    /// # Errors
    /// The connection broke, or the answer's status is no 2xx.
    pub async fn exchange(
        &mut self,
        site: &Site,
        body: Bytes,
        started: Instant,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        figures.sent_bytes += body.len() as u64;
        let request = Request::builder()
            .method(Method::POST)
            .uri(site.path.as_str())
            .header(HOST, site.address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = self.sender.send_request(request).await.context("send")?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let shown = String::from_utf8_lossy(body.get(..200).unwrap_or(&body)).into_owned();
            anyhow::bail!("{status}: {shown}");
        }
        let is_stream = answer
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        read(answer.into_body(), is_stream, started, figures).await
    }
}

async fn read(
    mut body: Incoming,
    is_stream: bool,
    started: Instant,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let mut last: Option<Instant> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("read")?;
        let Some(data) = frame.data_ref() else { continue };
        let now = Instant::now();
        match last.replace(now) {
            None => figures.first_byte.record(now - started),
            Some(before) if is_stream => figures.gap.record(now - before),
            Some(_) => {}
        }
        if is_stream {
            figures.events += memchr::memmem::find_iter(data, b"data: ").count() as u64;
        }
    }
    figures.latency.record(started.elapsed());
    figures.answered += 1;
    Ok(())
}
