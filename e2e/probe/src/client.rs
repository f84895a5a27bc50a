//! Keep-alive HTTP/1.1 connections to one server, one request on each at a time.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::base_url::BaseUrl;
use crate::config::MAX_CONCURRENCY;
use crate::failure::{Failure, FailureKind};

/// Longest wait for a connection: a router answers a SYN at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server, and the connections to it that are idle.
#[derive(Debug)]
pub(crate) struct Client {
    url: BaseUrl,
    idle: Mutex<Vec<Connection>>,
}

/// A connection whose work is done by whoever waits for its answer: no task of its own, no hand-over between
/// threads, and dropping it closes the socket.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once the connection has ended. Dropping it resolves everything that still waits for it.
    driver: Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>,
}

/// An answer whose body is still to be read. Dropped early, it takes its connection with it.
#[derive(Debug)]
pub(crate) struct Reply<'c> {
    client: &'c Client,
    /// Given back when the body has ended.
    connection: Option<Connection>,
    head: http::response::Parts,
    body: Incoming,
}

/// A request that failed; `unsent` holds it when not a byte of it was sent.
struct SendFailure {
    unsent: Option<Request<Full<Bytes>>>,
    failure: Failure,
}

impl Client {
    /// A client without connections.
    pub(crate) fn new(url: BaseUrl) -> Self {
        Self { url, idle: Mutex::new(Vec::new()) }
    }

    /// Where it sends to.
    pub(crate) fn url(&self) -> &BaseUrl {
        &self.url
    }

    /// Sends a request and waits for the head of its answer. The request needs its `host` header.
    ///
    /// A kept connection that the server closed meanwhile is passed over; a request of which anything may have
    /// been sent is never sent again.
    pub(crate) async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Reply<'_>, Failure> {
        loop {
            let kept = self.lease().await;
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.send(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return Ok(Reply { client: self, connection: Some(connection), head, body });
                }
                Err(SendFailure { unsent: Some(unsent), .. }) if reused => request = unsent,
                Err(SendFailure { failure, .. }) => return Err(failure),
            }
        }
    }

    async fn lease(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.is_usable().await {
                return Some(connection);
            }
        }
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_CONCURRENCY {
            idle.push(connection);
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let refused = |reason: &dyn std::fmt::Display| {
            Failure::new(FailureKind::Connect, &format!("cannot connect to {}: {reason}", self.url))
        };
        let connecting = TcpStream::connect((self.url.host.as_str(), self.url.port));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| refused(&format_args!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| refused(&error))?;
        stream.set_nodelay(true).map_err(|error| refused(&error))?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| refused(&error))?;
        Ok(Connection { sender, driver: Some(driver) })
    }
}

impl Connection {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<http::Response<Incoming>, SendFailure> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let outcome = std::future::poll_fn(|cx| drive(driver, cx, |cx| answer.as_mut().poll(cx))).await;
        outcome.map_err(|mut error| {
            let unsent = error.take_message();
            SendFailure { unsent, failure: before_answer(&error.into_error()) }
        })
    }

    /// Whether a kept connection can take another request. Polling its driver is what notices that the server
    /// has closed it.
    async fn is_usable(&mut self) -> bool {
        let Self { sender, driver } = self;
        std::future::poll_fn(|cx| {
            advance(driver, cx);
            let ready = matches!(sender.poll_ready(cx), Poll::Ready(Ok(())));
            Poll::Ready(driver.is_some() && ready)
        })
        .await
    }
}

impl Reply<'_> {
    /// The status.
    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    /// A header, when it is there and is text.
    pub(crate) fn header(&self, name: &header::HeaderName) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the body, `None` at its proper end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(connection) = &mut self.connection else { return Ok(None) };
            let (body, driver) = (&mut self.body, &mut connection.driver);
            let frame =
                std::future::poll_fn(|cx| drive(driver, cx, |cx| Pin::new(&mut *body).poll_frame(cx))).await;
            match frame {
                // Trailers carry nothing that we read.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    self.connection = None;
                    let message = format!("the answer broke off: {}", causes(&error));
                    return Err(Failure::new(FailureKind::StreamCut, &message));
                }
                None => {
                    if let Some(connection) = self.connection.take() {
                        self.client.give_back(connection);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// The whole body, or `TooLarge`.
    pub(crate) async fn whole(&mut self, limit: usize) -> Result<Bytes, Failure> {
        let mut collected = Vec::new();
        let mut first: Option<Bytes> = None;
        while let Some(chunk) = self.chunk().await? {
            if collected.len() + first.as_ref().map_or(0, Bytes::len) + chunk.len() > limit {
                let message = format!("the answer is larger than {limit} bytes");
                return Err(Failure::new(FailureKind::TooLarge, &message));
            }
            match first.take() {
                // Small answers come in one piece, which is passed on as it is.
                None if collected.is_empty() => first = Some(chunk),
                held => {
                    collected.extend_from_slice(&held.unwrap_or_default());
                    collected.extend_from_slice(&chunk);
                }
            }
        }
        Ok(first.unwrap_or_else(|| Bytes::from(collected)))
    }

    /// The beginning of the body, for an error message; what breaks off meanwhile is left out.
    pub(crate) async fn beginning(&mut self, limit: usize) -> Vec<u8> {
        let mut collected = Vec::new();
        while let Ok(Some(chunk)) = self.chunk().await {
            collected.extend_from_slice(&chunk);
            if collected.len() >= limit {
                collected.truncate(limit);
                break;
            }
        }
        collected
    }
}

/// Moves the connection's own work forward.
fn advance(driver: &mut Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>, cx: &mut Context<'_>) {
    let ended = driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready());
    if ended {
        *driver = None;
    }
}

/// Polls for something that the connection delivers, and between two looks lets the connection work.
fn drive<T>(
    driver: &mut Option<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>,
    cx: &mut Context<'_>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    if let Poll::Ready(value) = poll(cx) {
        return Poll::Ready(value);
    }
    advance(driver, cx);
    poll(cx)
}

fn before_answer(error: &hyper::Error) -> Failure {
    if error.is_parse() || error.is_user() {
        return Failure::new(
            FailureKind::BadAnswer,
            &format!("the answer is no HTTP/1.1: {}", causes(error)),
        );
    }
    let message = format!("the connection ended before an answer came: {}", causes(error));
    Failure::new(FailureKind::Closed, &message)
}

/// An error with everything beneath it, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += ": ";
        text += &error.to_string();
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
