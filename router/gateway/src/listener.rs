//! Listening sockets: accept, hand over to Pingora, and drain at shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::ServerApp;
use pingora_core::protocols::Stream;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Gateway;
use crate::admin::Admin;
use crate::connection::Connection;
use crate::page::MetricsPage;
use crate::ports::{self, Opener};
use crate::service::{Door, Service};

/// Connections waiting to be accepted.
const BACKLOG: u32 = 4096;

/// After an accept error that is not about one connection (no descriptors left), wait this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The router's three listeners. Those of Gateways come and go while it serves; see [`crate::Ports`].
#[derive(Debug)]
pub struct Doors {
    inference: TcpListener,
    metrics: TcpListener,
    admin: TcpListener,
}

/// How long a shutdown takes at most.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// New requests are still taken for this long, while readiness already fails.
    pub settle: Duration,
    /// Requests inside may take this long to finish.
    pub drain: Duration,
}

/// Why serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// Everybody inside finished.
    Drained,
    /// The drain time passed, or a second signal came, with this many requests inside.
    Cut(usize),
}

/// Binds one address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Doors {
    /// Binds all three, so that a taken port is reported before anything else happens.
    ///
    /// # Errors
    /// The first address that cannot be bound, by name.
    pub fn bind(inference: SocketAddr, metrics: SocketAddr, admin: SocketAddr) -> Result<Self, String> {
        let named = |flag: &str, address| bind(address).map_err(|error| format!("{flag} {address}: {error}"));
        Ok(Self {
            inference: named("--listen", inference)?,
            metrics: named("--metrics-listen", metrics)?,
            admin: named("--admin-listen", admin)?,
        })
    }

    /// Addresses as bound: inference, metrics, admin.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn addresses(&self) -> io::Result<[SocketAddr; 3]> {
        Ok([self.inference.local_addr()?, self.metrics.local_addr()?, self.admin.local_addr()?])
    }

    /// Serves until `stop`, then drains: readiness fails at once, new requests are taken for `grace.settle`, then
    /// the listener closes and requests inside may finish for `grace.drain`. `hurry` ends the wait.
    pub async fn serve(
        self,
        gateway: Arc<Gateway>,
        stop: CancellationToken,
        hurry: CancellationToken,
        grace: Grace,
    ) -> Served {
        let (shutdown, watch) = watch::channel(false);
        let side = CancellationToken::new();
        let accepting = CancellationToken::new();
        let silence = gateway.limits.header_timeout;
        // A socket that cannot tell its address has none that a route could name, and no neighbours.
        let main = self.inference.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        let door = Door { port: main.port(), shows_metrics: gateway.metrics_on_router_port };
        let inference = accept(
            self.inference,
            Arc::new(Service::new(Arc::clone(&gateway), door)),
            silence,
            watch.clone(),
            accepting.clone(),
        );
        let neighbours = tokio::spawn({
            let (gateway, accepting) = (Arc::clone(&gateway), accepting.clone());
            async move { gateway.ports.keep(Beside { gateway: Arc::clone(&gateway), main }, accepting).await }
        });
        let metrics = accept(
            self.metrics,
            Arc::new(MetricsPage::new(Arc::clone(&gateway))),
            silence,
            watch.clone(),
            side.clone(),
        );
        let admin =
            accept(self.admin, Arc::new(Admin::new(Arc::clone(&gateway))), silence, watch, side.clone());
        stop.cancelled().await;
        gateway.readiness.start_draining();
        tokio::select! {
            () = tokio::time::sleep(grace.settle) => {}
            () = hurry.cancelled() => {}
        }
        accepting.cancel();
        let _ = shutdown.send(true);
        let _ = tokio::join!(inference, neighbours);
        let served = tokio::select! {
            () = gateway.readiness.emptied() => Served::Drained,
            () = tokio::time::sleep(grace.drain) => Served::Cut(gateway.readiness.inside()),
            () = hurry.cancelled() => Served::Cut(gateway.readiness.inside()),
        };
        side.cancel();
        let _ = metrics.await;
        let _ = admin.await;
        served
    }
}

/// Opens ports on the main listener's interface.
struct Beside {
    gateway: Arc<Gateway>,
    main: SocketAddr,
}

impl Opener for Beside {
    fn bind(&self, port: u16) -> io::Result<TcpListener> {
        bind(ports::beside(self.main.ip(), port))
    }

    fn serve(
        &self,
        listener: TcpListener,
        port: u16,
        shutdown: watch::Receiver<bool>,
        accepting: CancellationToken,
    ) -> JoinHandle<()> {
        let door = Door { port, shows_metrics: false };
        let service = Arc::new(Service::new(Arc::clone(&self.gateway), door));
        accept(listener, service, self.gateway.limits.header_timeout, shutdown, accepting)
    }

    fn main(&self) -> u16 {
        self.main.port()
    }
}

/// Accepts until `stop`; each connection is a task of its own.
fn accept<A>(
    listener: TcpListener,
    app: Arc<A>,
    silence: Duration,
    shutdown: watch::Receiver<bool>,
    stop: CancellationToken,
) -> JoinHandle<()>
where
    A: ServerApp + Send + Sync + 'static,
{
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(converse(Arc::clone(&app), stream, silence, shutdown.clone()));
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

/// One connection, request after request.
async fn converse<A: ServerApp + Send + Sync>(
    app: Arc<A>,
    stream: TcpStream,
    silence: Duration,
    shutdown: watch::Receiver<bool>,
) {
    // Small events must leave at once: without this, Nagle holds each back until the one before is acknowledged.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut next: Option<Stream> = Some(Box::new(Connection::new(stream, silence)));
    while let Some(stream) = next {
        next = app.process_new(stream, &shutdown).await;
    }
}
