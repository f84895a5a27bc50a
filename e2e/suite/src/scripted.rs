//! An engine that follows a script to the byte: for what no real engine does on order.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Connections waiting to be accepted. With the usual 128 a burst of hundreds overflows the queue on a busy machine, and
/// the kernel then resets connections that nobody has accepted.
const BACKLOG: u32 = 4096;

/// One thing an engine does with a connection, after it has read a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes, in one segment.
    Send(Bytes),
    /// Waits until [`Scripted::proceed`] is called.
    Wait,
    /// Resets the connection.
    Reset,
    /// Closes the connection in an orderly way.
    Close,
    /// Reads the next request on the same connection and starts the script again.
    Again,
    /// Holds the connection, silent, until the other side closes it.
    Hold,
}

/// One request as it arrived, to the byte.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Everything up to the blank line.
    pub head: String,
    /// The body.
    pub body: Bytes,
}

/// A scripted engine.
#[derive(Debug)]
pub struct Scripted {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    arrived: Mutex<Vec<Arrived>>,
    proceed: Notify,
    left: AtomicUsize,
}

impl Scripted {
    /// Listens on a free port and follows `script` on every connection. Side calls get an empty 404 and are
    /// not recorded.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(script: Vec<Step>) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (known, script) = (Arc::clone(&known), script.clone());
                tokio::spawn(async move {
                    let _ = follow(stream, &script, &known).await;
                });
            }
        });
        Ok(Self { address, shared, task })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Inference requests that arrived, in order.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.shared.arrived.lock().clone()
    }

    /// Lets one `Wait` pass, now or when it is reached.
    pub fn proceed(&self) {
        self.shared.proceed.notify_one();
    }

    /// Connections that the router closed during `Hold` or `Wait`.
    pub fn left(&self) -> usize {
        self.shared.left.load(Ordering::Acquire)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(mut stream: TcpStream, script: &[Step], shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    'request: loop {
        let Some(request) = read_request(&mut stream).await? else { return Ok(()) };
        if !is_inference(&request.head) {
            stream
                .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await?;
            return Ok(());
        }
        shared.arrived.lock().push(request);
        for step in script {
            match step {
                Step::Send(bytes) => stream.write_all(bytes).await?,
                Step::Wait => {
                    let mut byte = [0];
                    tokio::select! {
                        () = shared.proceed.notified() => {}
                        read = stream.read(&mut byte) => {
                            if !matches!(read, Ok(1..)) {
                                shared.left.fetch_add(1, Ordering::AcqRel);
                                return Ok(());
                            }
                        }
                    }
                }
                Step::Reset => {
                    // Closing with a zero linger sends RST instead of FIN.
                    stream.set_zero_linger()?;
                    return Ok(());
                }
                Step::Close => return stream.shutdown().await,
                Step::Again => continue 'request,
                Step::Hold => {
                    let mut byte = [0];
                    let _ = stream.read(&mut byte).await;
                    shared.left.fetch_add(1, Ordering::AcqRel);
                    return Ok(());
                }
            }
        }
        return Ok(());
    }
}

/// Scrapes, discovery and tokenize calls are not what a script is about.
fn is_inference(head: &str) -> bool {
    let path = head.split(' ').nth(1).unwrap_or_default();
    path.starts_with("/v1/") && path != "/v1/models"
}

/// Reads one request with a `Content-Length` body; `None` when the connection ended before one began.
pub(crate) async fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<Arrived>> {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut chunk).await? {
            0 => return Ok(None),
            read => buffer.extend_from_slice(chunk.get(..read).unwrap_or_default()),
        }
    };
    let head = String::from_utf8_lossy(buffer.get(..head_end).unwrap_or_default()).into_owned();
    let length: usize = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    let mut body = buffer.split_off(head_end + 4);
    while body.len() < length {
        match stream.read(&mut chunk).await? {
            0 => break,
            read => body.extend_from_slice(chunk.get(..read).unwrap_or_default()),
        }
    }
    Ok(Some(Arrived { head, body: Bytes::from(body) }))
}

/// A whole JSON answer.
pub fn json_answer(status: &str, body: &str) -> Bytes {
    Bytes::from(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// The head of a chunked event stream.
pub fn stream_head() -> Bytes {
    Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// One chunk of a chunked body.
pub fn chunk(data: &[u8]) -> Bytes {
    let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
    framed.extend_from_slice(data);
    framed.extend_from_slice(b"\r\n");
    Bytes::from(framed)
}

/// The end of a chunked body.
pub fn last_chunk() -> Bytes {
    Bytes::from_static(b"0\r\n\r\n")
}
