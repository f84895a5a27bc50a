//! A client's connection under Pingora's sessions: small writes are gathered, so that an answer's head and body, or the
//! three parts of a chunk, leave in one system call.

use std::io;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, BytesMut};
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest,
    UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes gathered before they are sent without a flush. Pieces this large are sent as they are: copying them would cost
/// more than the call.
const GATHER: usize = 16 * 1024;

/// What an HTTP/2 client with prior knowledge sends first (RFC 9113 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How often a first packet that is shorter than the preface is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    gathered: BytesMut,
    /// How long a new connection may stay silent.
    first_byte: Duration,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, first_byte: Duration) -> Self {
        Self { stream, gathered: BytesMut::new(), first_byte }
    }

    /// Sends what was gathered.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.gathered))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the first bytes are the HTTP/2 preface; decided at the first byte that differs.
    async fn peek_preface(&self, buffer: &mut [u8]) -> io::Result<bool> {
        loop {
            let seen = self.stream.peek(buffer).await?;
            let differs = buffer.iter().zip(H2_PREFACE).take(seen).any(|(byte, expected)| byte != expected);
            if seen == 0 || seen == buffer.len() || differs {
                return Ok(true);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl AsyncRead for Connection {
    /// Whoever waits for the client has nothing more to add: what was gathered leaves first.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.gathered.is_empty()
            && let Poll::Ready(Err(error)) = this.poll_send(cx)
        {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.gathered.len() + bytes.len() <= GATHER {
            this.gathered.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    /// Whole answers were flushed before. What is left here belongs to a cut one, whose client may not be reading: it is
    /// sent if that is possible at once, and dropped else.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let _ = this.poll_send(cx);
        this.gathered.clear();
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Peek for Connection {
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match tokio::time::timeout(self.first_byte, self.peek_preface(buffer)).await {
            Ok(peeked) => peeked,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        // The other side may be gone already; there is nobody to tell.
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut self.stream).await;
    }
}

impl UniqueID for Connection {
    fn id(&self) -> UniqueIDType {
        self.stream.as_raw_fd()
    }
}

impl Ssl for Connection {}

impl GetTimingDigest for Connection {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Connection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Connection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (Connection::new(server, Duration::from_secs(5)), client)
    }

    #[tokio::test]
    async fn small_writes_wait_for_a_flush_and_leave_together() {
        let (mut server, mut client) = pair().await;
        server.write_all(b"head").await.unwrap();
        server.write_all(b"body").await.unwrap();
        let mut buffer = [0; 64];
        assert!(client.try_read(&mut buffer).is_err(), "nothing may have left yet");
        server.flush().await.unwrap();
        let read = client.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], b"headbody");
    }

    #[tokio::test]
    async fn waiting_for_the_client_sends_what_was_gathered() {
        let (mut server, mut client) = pair().await;
        server.write_all(b"part").await.unwrap();
        let mut byte = [0];
        assert!(futures_util::poll!(Box::pin(server.read(&mut byte))).is_pending());
        let mut buffer = [0; 4];
        client.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"part");
    }

    #[tokio::test]
    async fn large_pieces_follow_small_ones_in_order() {
        let (mut server, mut client) = pair().await;
        let large = vec![7u8; 3 * GATHER];
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
            all
        });
        server.write_all(b"x").await.unwrap();
        server.write_all(&large).await.unwrap();
        server.write_all(b"y").await.unwrap();
        server.flush().await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut server).await.unwrap();
        let all = reader.await.unwrap();
        assert_eq!(all.len(), large.len() + 2);
        assert_eq!((all.first(), all.last()), (Some(&b'x'), Some(&b'y')));
    }

    #[tokio::test]
    async fn the_end_does_not_wait_for_a_client_that_reads_nothing() {
        let (mut server, client) = pair().await;
        let piece = [0; 1024];
        // Fill the socket until a flush would block.
        while futures_util::poll!(Box::pin(server.flush())).is_ready() {
            server.write_all(&piece).await.unwrap();
        }
        tokio::io::AsyncWriteExt::shutdown(&mut server).await.unwrap();
        drop(client);
    }

    #[tokio::test]
    async fn the_preface_is_seen_even_in_pieces_and_anything_else_at_once() {
        let (mut server, mut client) = pair().await;
        let mut buffer = [0; 24];
        client.write_all(&H2_PREFACE[..10]).await.unwrap();
        let rest = tokio::spawn(async move {
            client.write_all(&H2_PREFACE[10..]).await.unwrap();
            client
        });
        assert!(server.try_peek(&mut buffer).await.unwrap());
        assert_eq!(buffer, H2_PREFACE);
        drop(rest.await.unwrap());

        let (mut server, mut client) = pair().await;
        let mut buffer = [0; 24];
        client.write_all(b"GET /").await.unwrap();
        assert!(server.try_peek(&mut buffer).await.unwrap());
        assert_ne!(buffer, H2_PREFACE);
    }
}
