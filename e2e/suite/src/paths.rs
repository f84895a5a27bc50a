//! An engine whose every path answers what it was last told to, side calls included.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::scripted::read_request;

/// What a path answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// These bytes, a whole answer; the connection stays open.
    Whole(Bytes),
    /// These bytes, then the end of the connection.
    Cut(Bytes),
    /// Nothing, until the other side leaves.
    Hang,
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
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::<Shared>::default());
        let known = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let known = Arc::clone(&known);
                known.lock().connections += 1;
                tokio::spawn(async move {
                    let _ = serve(stream, &known).await;
                });
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
            Some(Reply::Hang) => {
                let _ = stream.read(&mut [0]).await;
                return Ok(());
            }
            None => stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await?,
        }
    }
    Ok(())
}

/// A whole answer with a type and a body.
pub fn answer(status: &str, media: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Whole(
        format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n{body}")
            .into(),
    )
}
