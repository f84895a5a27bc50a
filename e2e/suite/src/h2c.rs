//! A client that speaks HTTP/2 without TLS from the first byte.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// One connection, which carries many requests at once. Dropping it closes it, whatever runs on it.
#[derive(Debug)]
pub struct H2c {
    sender: SendRequest<Full<Bytes>>,
    _open: DropGuard,
}

/// Runs the connection's tasks, one of which owns the socket, until it is dropped.
#[derive(Clone)]
struct UntilDropped(CancellationToken);

impl<F> hyper::rt::Executor<F> for UntilDropped
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let dropped = self.0.clone();
        tokio::spawn(async move { dropped.run_until_cancelled(task).await.is_some() });
    }
}

impl H2c {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens or the other side speaks no HTTP/2.
    pub async fn connect(to: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let open = CancellationToken::new();
        let tasks = UntilDropped(open.clone());
        let (sender, connection) = http2::handshake(tasks.clone(), TokioIo::new(stream)).await?;
        hyper::rt::Executor::execute(&tasks, connection);
        Ok(Self { sender, _open: open.drop_guard() })
    }

    /// Sends a request and waits for the head of its answer. Dropping the future, or the answer, resets the stream.
    ///
    /// # Errors
    /// When the stream or the connection is reset.
    pub async fn begin(&self, mut request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() =
            Uri::builder().scheme("http").authority("router").path_and_query(path).build()?;
        request.headers_mut().remove("host");
        Ok(self.sender.clone().send_request(request).await?)
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the stream or the connection is reset.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Bytes>> {
        let (parts, body) = self.begin(request).await?.into_parts();
        Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
    }
}
