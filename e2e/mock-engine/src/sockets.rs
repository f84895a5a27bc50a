//! A connection whose end can be chosen: an orderly close or a reset.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// What a request's handler can do to the connection it came on.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionHandle {
    resets: Arc<AtomicBool>,
    close: CancellationToken,
}

impl ConnectionHandle {
    /// `close` ends the connection's task.
    pub(crate) fn new(close: CancellationToken) -> Self {
        Self { resets: Arc::default(), close }
    }

    /// However the connection ends from here on, the peer sees a reset.
    pub(crate) fn reset_at_end(&self) {
        self.resets.store(true, Ordering::Release);
    }

    /// Ends the connection now.
    pub(crate) fn close(&self) {
        self.close.cancel();
    }
}

/// A TCP stream that looks at its handle when it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    handle: ConnectionHandle,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, handle: ConnectionHandle) -> Self {
        Self { stream, handle }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.handle.resets.load(Ordering::Acquire) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A half-close before the reset would look like an orderly end to a quick reader.
        if self.handle.resets.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
