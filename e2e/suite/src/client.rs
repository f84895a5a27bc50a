//! Clients: a convenient one, and a raw one that sees every byte and can leave at any moment.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends one request and reads the whole answer.
///
/// # Errors
/// When the connection fails or the answer breaks off.
pub async fn send(to: SocketAddr, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Bytes>> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

/// A request with a JSON body.
///
/// # Errors
/// When the path is no URI.
pub fn post(path: &str, body: impl Into<Bytes>) -> anyhow::Result<Request<Full<Bytes>>> {
    Ok(Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("host", "router")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))?)
}

/// A request without a body.
///
/// # Errors
/// When the path is no URI.
pub fn get(path: &str) -> anyhow::Result<Request<Full<Bytes>>> {
    Ok(Request::builder().method(Method::GET).uri(path).header("host", "router").body(Full::default())?)
}

/// A raw connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Connects and writes one POST.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn post(to: SocketAddr, path: &str, body: &[u8]) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        Ok(Self { stream })
    }

    /// Reads what comes next; `None` at the end of the connection, an error when it was reset.
    ///
    /// # Errors
    /// When the connection was reset.
    pub async fn read(&mut self) -> std::io::Result<Option<Bytes>> {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer).await? {
            0 => Ok(None),
            read => {
                buffer.truncate(read);
                Ok(Some(Bytes::from(buffer)))
            }
        }
    }

    /// Everything up to the end of the connection, and whether it ended in an orderly way.
    pub async fn read_to_end(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        loop {
            match self.read().await {
                Ok(Some(bytes)) => all.extend_from_slice(&bytes),
                Ok(None) => return (all, true),
                Err(_) => return (all, false),
            }
        }
    }
}
