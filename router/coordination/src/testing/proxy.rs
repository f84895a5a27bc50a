//! A network that misbehaves, between a client and a server.

use std::net::SocketAddr;
use std::time::Duration;

use kvasir_settings::redis::RedisNode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// What the network does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weather {
    /// Passes everything on.
    Fair,
    /// Every reply arrives so much later.
    Slow(Duration),
    /// Connections are accepted and stay open; nothing is passed on any more, either way.
    BlackHole,
    /// Connections are cut, new ones as soon as they are accepted.
    Cut,
}

/// Listens on loopback and passes on what comes, as the weather allows.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// A proxy to a port on 127.0.0.1, in fair weather.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let (weather, watched) = watch::channel(Weather::Fair);
        let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, target, watched)));
        Self { address, weather, _task: task }
    }

    /// Where it listens.
    pub fn node(&self) -> RedisNode {
        RedisNode { host: self.address.ip().to_string(), port: self.address.port() }
    }

    /// Changes the weather for all connections, also those there are.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn accept(listener: TcpListener, target: u16, weather: watch::Receiver<Weather>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(client, target, weather.clone()));
    }
}

async fn serve(client: TcpStream, target: u16, weather: watch::Receiver<Weather>) {
    let mut cut = weather.clone();
    let work = async {
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = carry(from_client, to_server, weather.clone(), false) => {}
            () = carry(from_server, to_client, weather, true) => {}
        }
    };
    tokio::select! {
        () = work => {}
        _ = cut.wait_for(|weather| *weather == Weather::Cut) => {}
    }
}

/// One direction. Pieces are delayed from their own arrival, so that a delay is one however many pieces there are.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    replies: bool,
) {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let mut seen = weather.clone();
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let delay = match *seen.borrow_and_update() {
                Weather::Slow(delay) if replies => delay,
                _ => Duration::ZERO,
            };
            if sender.send((Instant::now() + delay, buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, piece)) = pieces.recv().await {
            tokio::time::sleep_until(due).await;
            let _ = weather.wait_for(|weather| *weather != Weather::BlackHole).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
