use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// Sends each connection the port's number, and again whenever it hears something, until it is told to end.
struct Echo {
    main: u16,
}

impl Opener for Echo {
    fn bind(&self, port: u16) -> io::Result<TcpListener> {
        crate::listener::bind(beside(Ipv4Addr::LOCALHOST.into(), port))
    }

    fn serve(
        &self,
        listener: TcpListener,
        port: u16,
        shutdown: watch::Receiver<bool>,
        accepting: CancellationToken,
    ) -> JoinHandle<()> {
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = accepting.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((mut stream, _)) = accepted else { return };
                let shutdown = shutdown.clone();
                tokio::spawn(async move {
                    let mut heard = [0; 1];
                    loop {
                        stream.write_all(&port.to_be_bytes()).await.unwrap();
                        if *shutdown.borrow() || stream.read(&mut heard).await.unwrap() == 0 {
                            return;
                        }
                    }
                });
            }
        })
    }

    fn main(&self) -> u16 {
        self.main
    }
}

struct Rig {
    ports: Arc<Ports>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn rig(main: u16) -> Rig {
    let (ports, stop) = (Arc::new(Ports::default()), CancellationToken::new());
    let (kept, token) = (Arc::clone(&ports), stop.clone());
    Rig { ports, stop, task: tokio::spawn(async move { kept.keep(Echo { main }, token).await }) }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await
}

/// A connection, as soon as somebody listens.
async fn connected(port: u16) -> TcpStream {
    loop {
        if let Ok(stream) = connect(port).await {
            return stream;
        }
        tokio::task::yield_now().await;
    }
}

async fn closed(port: u16) {
    while connect(port).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

async fn hears(stream: &mut TcpStream, port: u16) {
    let mut heard = [0; 2];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(u16::from_be_bytes(heard), port);
}

#[tokio::test]
async fn ports_open_and_close_and_connections_outlive_their_port() {
    let (one, two) = (free_port(), free_port());
    let rig = rig(0);
    rig.ports.want(BTreeSet::from([one]));
    let mut first = connected(one).await;
    hears(&mut first, one).await;
    rig.ports.want(BTreeSet::from([one, two]));
    hears(&mut connected(two).await, two).await;
    rig.ports.want(BTreeSet::from([two]));
    closed(one).await;
    // What is inside is served, and then told to go.
    first.write_all(b"x").await.unwrap();
    hears(&mut first, one).await;
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
    rig.ports.want(BTreeSet::from([one, two]));
    hears(&mut connected(one).await, one).await;
    rig.stop.cancel();
    rig.task.await.unwrap();
    closed(one).await;
    closed(two).await;
}

#[tokio::test]
async fn the_same_ports_keep_their_sockets() {
    let port = free_port();
    let rig = rig(0);
    rig.ports.want(BTreeSet::from([port]));
    let mut stream = connected(port).await;
    hears(&mut stream, port).await;
    for _ in 0..20 {
        rig.ports.want(BTreeSet::from([port]));
        hears(&mut connect(port).await.unwrap(), port).await;
    }
    stream.write_all(b"x").await.unwrap();
    hears(&mut stream, port).await;
    stream.write_all(b"x").await.unwrap();
    hears(&mut stream, port).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_and_tried_again() {
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = holder.local_addr().unwrap().port();
    let rig = rig(0);
    let mut failed = rig.ports.failed();
    rig.ports.want(BTreeSet::from([taken]));
    let told = failed.wait_for(|failed| !failed.is_empty()).await.unwrap().clone();
    assert!(told.get(&taken).is_some_and(|reason| reason.contains("in use")), "{told:?}");
    drop(holder);
    failed.wait_for(BTreeMap::is_empty).await.unwrap();
    hears(&mut connected(taken).await, taken).await;
    // One that is not wanted any more is not told of either.
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    rig.ports.want(BTreeSet::from([holder.local_addr().unwrap().port()]));
    failed.wait_for(|failed| !failed.is_empty()).await.unwrap();
    rig.ports.want(BTreeSet::new());
    failed.wait_for(BTreeMap::is_empty).await.unwrap();
}

#[tokio::test]
async fn the_main_port_is_left_alone() {
    let main = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, other) = (main.local_addr().unwrap().port(), free_port());
    let rig = rig(port);
    rig.ports.want(BTreeSet::from([port, other]));
    hears(&mut connected(other).await, other).await;
    assert!(rig.ports.failed().borrow().is_empty());
}
