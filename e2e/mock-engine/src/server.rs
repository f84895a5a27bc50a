//! The door of one engine: listening, connections, and the faults that live there.

use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault::{Fault, FaultBoard, FaultOrder};
use crate::http::{Desk, answer};
use crate::port::Port;
use crate::publisher::Disturbance;
use crate::sockets::{Connection, ConnectionHandle};

/// What is sent in place of HTTP.
const GARBAGE: &[u8] = b"\x15\x03\x03\x00\x02\x02\x28 this is no HTTP\r\n\r\n";

/// Orders that may wait for the door.
const QUEUED_ORDERS: usize = 64;

/// A running server; stops when its token is cancelled.
#[derive(Debug)]
pub(crate) struct Server {
    task: JoinHandle<()>,
}

/// Passes fault orders to the running server.
#[derive(Clone, Debug)]
pub(crate) struct FaultControl {
    orders: mpsc::Sender<(FaultOrder, oneshot::Sender<()>)>,
}

impl FaultControl {
    /// The control, and what [`Server::start`] needs of it.
    pub(crate) fn new() -> (Self, Orders) {
        let (orders, incoming) = mpsc::channel(QUEUED_ORDERS);
        (Self { orders }, Orders(incoming))
    }

    /// Returns once the order is in force.
    pub(crate) async fn set(&self, order: FaultOrder) {
        let (done, applied) = oneshot::channel();
        if self.orders.send((order, done)).await.is_ok() {
            let _ = applied.await;
        }
    }
}

/// The receiving end of a [`FaultControl`].
#[derive(Debug)]
pub(crate) struct Orders(mpsc::Receiver<(FaultOrder, oneshot::Sender<()>)>);

impl Server {
    /// Listens on `port` unless the fault in force forbids it.
    pub(crate) fn start(
        port: Arc<Port>,
        desk: Arc<Desk>,
        orders: Orders,
        stop: CancellationToken,
    ) -> std::io::Result<Self> {
        let mut door = Door {
            listener: None,
            faults: Arc::clone(&desk.faults),
            port,
            desk,
            open: Connections::new(&stop),
            expires: None,
            stop,
        };
        door.open_or_shut()?;
        Ok(Self { task: tokio::spawn(door.run(orders)) })
    }

    /// Waits until every connection is closed and nobody listens.
    pub(crate) async fn stopped(self) {
        let _ = self.task.await;
    }
}

struct Door {
    port: Arc<Port>,
    desk: Arc<Desk>,
    faults: Arc<FaultBoard>,
    listener: Option<TcpListener>,
    open: Connections,
    expires: Option<Instant>,
    stop: CancellationToken,
}

/// The connections opened since the last time that all were closed.
#[derive(Clone)]
struct Connections {
    close: CancellationToken,
    tasks: TaskTracker,
}

impl Connections {
    fn new(stop: &CancellationToken) -> Self {
        Self { close: stop.child_token(), tasks: TaskTracker::new() }
    }

    async fn close_all(&self) {
        self.close.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Door {
    async fn run(mut self, mut orders: Orders) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some((order, done)) = orders.0.recv() => {
                    self.apply(order).await;
                    let _ = done.send(());
                }
                () = passed(self.expires) => self.apply(FaultOrder::default()).await,
                stream = accept(self.listener.as_ref()) => self.welcome(stream),
            }
        }
        self.listener = None;
        self.open.close_all().await;
    }

    async fn apply(&mut self, order: FaultOrder) {
        self.expires = order.lifetime().map(|lifetime| Instant::now() + lifetime);
        let closes = order.fault.closes_connections();
        let disturbance = match order.fault {
            Fault::DropEvents { batches, replayable } => Some(Disturbance::Lose { batches, replayable }),
            Fault::DuplicateEvents { batches } => Some(Disturbance::Duplicate { batches }),
            Fault::ReorderEvents { pairs } => Some(Disturbance::Reorder { pairs }),
            _ => None,
        };
        self.faults.set(order);
        if let Err(error) = self.open_or_shut() {
            tracing::error!(%error, address = %self.port.address(), "the mock engine cannot listen again");
        }
        if let Some(disturbance) = disturbance {
            self.desk.disturb_events(disturbance).await;
        }
        if closes {
            self.open.close_all().await;
            self.open = Connections::new(&self.stop);
        }
    }

    fn open_or_shut(&mut self) -> std::io::Result<()> {
        if self.faults.current() == Fault::RefuseConnections {
            self.listener = None;
        } else if self.listener.is_none() {
            self.listener = Some(self.port.listen()?);
        }
        Ok(())
    }

    fn welcome(&self, stream: TcpStream) {
        let open = self.open.clone();
        let desk = Arc::clone(&self.desk);
        if self.faults.current() == Fault::Garbage {
            self.open.tasks.spawn(self.open.close.clone().run_until_cancelled_owned(talk_nonsense(stream)));
        } else {
            self.open.tasks.spawn(serve(stream, desk, open));
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Out of descriptors, or the peer is gone already: others may still come.
            Err(error) => {
                tracing::warn!(%error, "the mock engine cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}

async fn passed(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn serve(stream: TcpStream, desk: Arc<Desk>, open: Connections) {
    let _ = stream.set_nodelay(true);
    let close = open.close.child_token();
    let handle = ConnectionHandle::new(close.clone());
    let io = TokioIo::new(Connection::new(stream, handle.clone()));
    let service = service_fn(move |request| answer(Arc::clone(&desk), handle.clone(), request));
    let builder = Builder::new(StreamTasks(open));
    let connection = builder.serve_connection(io, service);
    if let Some(Err(error)) = close.run_until_cancelled(connection).await {
        tracing::debug!(%error, "a connection of the mock engine ended");
    }
}

/// Runs the streams of HTTP/2 connections; they end with their connection.
#[derive(Clone)]
struct StreamTasks(Connections);

impl<F> hyper::rt::Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let close = self.0.close.clone();
        self.0.tasks.spawn(async move {
            close.run_until_cancelled(stream).await;
        });
    }
}

async fn talk_nonsense(mut stream: TcpStream) {
    // Something is read first: a close with unread bytes would be a reset, and the nonsense might get lost.
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await;
    let _ = stream.write_all(GARBAGE).await;
    let _ = stream.shutdown().await;
}
