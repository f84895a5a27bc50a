//! Listening, connections, and their end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Desk;

/// Connections at the same time. The next one waits in the listener's queue.
const MOST_CONNECTIONS: usize = 1_024;

/// Longest wait for a request's head on an open connection; idle ones close after it.
const HEAD: Duration = Duration::from_secs(60);

/// Largest head, bytes.
const MOST_HEAD_BYTES: usize = 64 << 10;

/// Pause after a connection could not be accepted: out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket and what answers at it.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    desk: Arc<Desk>,
}

impl Door {
    /// Opens.
    pub fn new(listener: TcpListener, desk: Arc<Desk>) -> Self {
        Self { listener, desk }
    }

    /// Serves until `stop`, then closes: no new connections, idle ones end, and requests that are being answered have
    /// `grace` for it.
    pub async fn serve(self, stop: CancellationToken, grace: Duration) {
        let connections = TaskTracker::new();
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let next = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, self.listener.accept().await)
            };
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = next => accepted,
            };
            match accepted {
                (Ok(place), Ok((stream, _))) => {
                    let desk = Arc::clone(&self.desk);
                    connections.spawn(converse(stream, desk, stop.clone(), place));
                }
                (_, Err(error)) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
                (Err(_), Ok(_)) => break,
            }
        }
        drop(self.listener);
        connections.close();
        if timeout(grace, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "connections are cut");
        }
    }
}

async fn converse(stream: TcpStream, desk: Arc<Desk>, stop: CancellationToken, place: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(desk.answer(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MOST_HEAD_BYTES);
    builder.http2().timer(TokioTimer::new()).max_header_list_size(MOST_HEAD_BYTES as u32);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
    drop(place);
}
