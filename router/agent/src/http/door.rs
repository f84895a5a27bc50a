//! Listening, connections, and their end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Desk;

/// Connections at the same time: probes, a scraper, an operator. The next one waits in the listener's queue.
const MOST_CONNECTIONS: usize = 64;

/// Longest wait for a request's head on an open connection; idle ones close after it.
const HEAD: Duration = Duration::from_secs(60);

/// Largest head, bytes.
const MOST_HEAD_BYTES: usize = 16 << 10;

/// Pause after a connection could not be accepted: out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Time for answers that are being written when the agent stops.
const GRACE: Duration = Duration::from_millis(250);

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

    /// Serves until `stop`; then closes within a quarter of a second.
    pub async fn serve(self, stop: CancellationToken) {
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
                    connections.spawn(converse(stream, Arc::clone(&self.desk), stop.clone(), place));
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
        let _ = timeout(GRACE, connections.wait()).await;
    }
}

async fn converse(stream: TcpStream, desk: Arc<Desk>, stop: CancellationToken, place: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = desk.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MOST_HEAD_BYTES);
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
