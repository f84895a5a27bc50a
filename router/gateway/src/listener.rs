//! Listening sockets: accept, hand over to Pingora, and drain at shutdown.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
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

/// Binds one address. `[::]` takes connections of IPv4 too, by the usual setting of Linux (`net.ipv6.bindv6only` 0), and
/// where there is no IPv6 it means every interface of IPv4.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    or_without_ipv6(address, bind_exactly)
}

/// Whatever else keeps a socket from being opened keeps one of IPv4 from it too, and is said then.
fn or_without_ipv6<L>(address: SocketAddr, open: impl Fn(SocketAddr) -> io::Result<L>) -> io::Result<L> {
    let opened = open(address);
    let is_in_the_way = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
    };
    match opened {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && !is_in_the_way(&error) => {
            open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        opened => opened,
    }
}

fn bind_exactly(address: SocketAddr) -> io::Result<TcpListener> {
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
        let door = Door { port: main.port(), is_own: true, shows_metrics: gateway.metrics_on_router_port };
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
        // Another replica may have time at once; what runs here may take all that is left.
        gateway.turnstile.admission().close();
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
        let door = Door { port, is_own: false, shows_metrics: false };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn every_interface_is_reached_by_ipv4_and_by_ipv6() {
        let listener = bind(address("[::]:0")).unwrap();
        let bound = listener.local_addr().unwrap();
        assert!(bound.ip().is_unspecified());
        TcpStream::connect((Ipv4Addr::LOCALHOST, bound.port())).await.unwrap();
        listener.accept().await.unwrap();
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, bound.port())).await.unwrap();
            listener.accept().await.unwrap();
        }
    }

    #[test]
    fn without_ipv6_every_interface_is_those_of_ipv4() {
        let without_ipv6 = |address: SocketAddr| match address {
            SocketAddr::V4(_) => Ok(address),
            SocketAddr::V6(_) => Err(io::Error::from(io::ErrorKind::AddrNotAvailable)),
        };
        let opened = |text| or_without_ipv6(address(text), without_ipv6).ok();
        assert_eq!(opened("[::]:8080"), Some(address("0.0.0.0:8080")));
        assert_eq!(opened("127.0.0.1:8080"), Some(address("127.0.0.1:8080")));
        assert_eq!(opened("[::1]:8080"), None, "an address that was meant is not another one");
    }

    #[test]
    fn a_port_that_is_taken_is_not_shared_with_its_holder() {
        let taken = |address: SocketAddr| match address {
            SocketAddr::V4(_) => Ok(address),
            SocketAddr::V6(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
        };
        let error = or_without_ipv6(address("[::]:8080"), taken).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
