//! Listening, TLS, connections, and their end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::desk::Desk;
use super::served::HTTP_2;

/// Pause after a connection could not be accepted: out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Largest head of a request, bytes.
const MOST_HEAD_BYTES: usize = 64 << 10;

/// Requests of one HTTP/2 connection at the same time. An API server opens more connections when it needs more.
const MOST_STREAMS: u32 = 32;

/// Between the polite end of a connection and its hard end.
const PARTING: Duration = Duration::from_secs(2);

/// What connections may cost. The times are kthena's, which takes 30 s for each part of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at the same time. The next one waits in the listener's queue.
    pub connections: usize,
    /// Longest handshake.
    pub handshake: Duration,
    /// Longest time from the end of a request's head until its answer is ready: to read its body and to review it.
    pub request: Duration,
    /// Longest wait for a request's head, and for a client to take the end of an answer; idle connections end after it.
    pub quiet: Duration,
    /// Longest time for what is being answered when the server stops.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 256,
            handshake: Duration::from_secs(10),
            request: Duration::from_secs(60),
            quiet: Duration::from_secs(30),
            drain: Duration::from_secs(30),
        }
    }
}

/// Everything that a connection needs.
pub struct Server {
    /// TLS, with whatever certificate is current.
    pub acceptor: TlsAcceptor,
    /// What answers.
    pub desk: Arc<Desk>,
    /// The bounds.
    pub bounds: Bounds,
    /// How many connections are open.
    pub open: Arc<AtomicUsize>,
}

/// One open connection: its place among them all.
struct Place {
    open: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

/// Binds an address.
///
/// # Errors
/// It is taken, or not ours.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

impl Server {
    /// Serves until `stop`, then lets what is being answered finish.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let cut = CancellationToken::new();
        let places = Arc::new(Semaphore::new(self.bounds.connections));
        loop {
            // The place first: a connection that nobody has a place for is better left to wait in the queue.
            let next = async {
                let permit = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
                let (stream, _) = listener.accept().await?;
                Ok::<_, io::Error>((permit, stream))
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = next => accepted,
            };
            match accepted {
                Ok((permit, stream)) => {
                    let place = Place::take(&self.open, permit);
                    let server = Arc::clone(&self);
                    let (stop, cut) = (stop.clone(), cut.clone());
                    connections.spawn(async move {
                        tokio::select! {
                            () = cut.cancelled() => {}
                            () = server.converse(stream, stop) => {}
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "admission webhook: a connection cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        connections.close();
        if timeout(self.bounds.drain, connections.wait()).await.is_err() {
            cut.cancel();
            connections.wait().await;
        }
    }

    async fn converse(&self, stream: TcpStream, stop: CancellationToken) {
        let _ = stream.set_nodelay(true);
        let handshake = timeout(self.bounds.handshake, self.acceptor.accept(stream));
        let shaken = tokio::select! {
            () = stop.cancelled() => return,
            shaken = handshake => shaken,
        };
        match shaken {
            Ok(Ok(stream)) => self.exchange(stream, stop).await,
            Ok(Err(error)) => tracing::debug!(%error, "admission webhook: a handshake failed"),
            Err(_) => tracing::debug!("admission webhook: a handshake took too long"),
        }
    }

    /// Requests and answers, until the client leaves, is too slow, or we stop.
    async fn exchange(&self, stream: TlsStream<TcpStream>, stop: CancellationToken) {
        let activity = Activity::new();
        let service = service_fn(|request| {
            let running = activity.begin();
            let desk = Arc::clone(&self.desk);
            async move { Ok::<_, Infallible>(desk.answer(request, running).await) }
        });
        let is_http_2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
        let builder = self.builder(is_http_2);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = loop {
            let deadline = activity.deadline(self.bounds.request, self.bounds.quiet);
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    // Bounded by whoever stops us.
                    break connection.await;
                }
                () = sleep_until(deadline) => {
                    // Another request may have begun, or the last one ended, since the deadline was asked for.
                    if activity.deadline(self.bounds.request, self.bounds.quiet) <= deadline {
                        connection.as_mut().graceful_shutdown();
                        break timeout(PARTING, connection).await.unwrap_or(Ok(()));
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "admission webhook: a connection ended");
        }
    }

    /// The version is known from the handshake; to guess it from the first bytes would mean waiting for them.
    fn builder(&self, is_http_2: bool) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.quiet)
            .max_buf_size(MOST_HEAD_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(MOST_HEAD_BYTES as u32);
        if is_http_2 { builder.http2_only() } else { builder.http1_only() }
    }
}

impl Place {
    fn take(open: &Arc<AtomicUsize>, permit: OwnedSemaphorePermit) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self { open: Arc::clone(open), _permit: permit }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
