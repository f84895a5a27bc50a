//! An engine whose every path answers what it was last told to, side calls included.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::scripted::{Arrived, read_request};

/// What a path answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These bytes, a whole answer; the connection stays open.
    Whole(Bytes),
    /// These bytes, then the end of the connection.
    Cut(Bytes),
    /// Nothing, until the other side leaves.
    Hang,
    /// The same bytes as [`Self::Whole`], after a while.
    Late(Duration, Bytes),
    /// What a server at this address answers to the same request.
    From(SocketAddr),
}

#[derive(Debug, Default)]
struct Shared {
    replies: HashMap<String, Reply>,
    asked: HashMap<String, usize>,
    connections: usize,
}

/// The engine. A path that was told nothing is a 404.
#[derive(Debug)]
pub struct Paths {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

impl Paths {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> std::io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Listens on an address, that of one that was dropped for example.
    ///
    /// # Errors
    /// When it is taken.
    pub async fn start_at(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::<Shared>::default());
        let known = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // Its connections die with it, as those of a process do.
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let known = Arc::clone(&known);
                known.lock().connections += 1;
                serving.spawn(async move {
                    let _ = serve(stream, &known).await;
                });
                while serving.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, task })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on `path` answers `reply`.
    pub fn tell(&self, path: &str, reply: Reply) {
        self.shared.lock().replies.insert(path.to_owned(), reply);
    }

    /// Connections that were made to it so far.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// How often `path` was asked.
    pub fn asked(&self, path: &str) -> usize {
        self.shared.lock().asked.get(path).copied().unwrap_or(0)
    }
}

impl Drop for Paths {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some(request) = read_request(&mut stream).await? {
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default().to_owned();
        let reply = {
            let mut shared = shared.lock();
            let reply = shared.replies.get(&path).cloned();
            *shared.asked.entry(path).or_default() += 1;
            reply
        };
        match reply {
            Some(Reply::Whole(bytes)) => stream.write_all(&bytes).await?,
            Some(Reply::Cut(bytes)) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Some(Reply::Late(after, bytes)) => {
                tokio::time::sleep(after).await;
                stream.write_all(&bytes).await?;
            }
            Some(Reply::From(other)) => {
                stream.write_all(&forward(other, &request).await?).await?;
                return stream.shutdown().await;
            }
            Some(Reply::Hang) => {
                let _ = stream.read(&mut [0]).await;
                return Ok(());
            }
            None => stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await?,
        }
    }
    Ok(())
}

/// Another server's whole answer.
async fn forward(to: SocketAddr, request: &Arrived) -> std::io::Result<Vec<u8>> {
    let mut other = TcpStream::connect(to).await?;
    let line = request.head.lines().next().unwrap_or_default();
    let length = request.body.len();
    let head = format!(
        "{line}\r\nhost: other\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    other.write_all(head.as_bytes()).await?;
    other.write_all(&request.body).await?;
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).await?;
    Ok(answer)
}

/// A whole answer with a type and a body.
pub fn answer(status: &str, media: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Whole(
        format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}")
            .into(),
    )
}
