//! The ports of Gateways' listeners: opened and closed as the routes change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Waits between two tries to open a port: doubled from the first to the last.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Most ports. Each is a socket and a task; a Gateway has 64 listeners at most.
const MOST_PORTS: usize = 256;

/// Which ports should be open beside the main one, and which of them cannot be opened.
#[derive(Debug, Default)]
pub struct Ports {
    wanted: watch::Sender<BTreeSet<u16>>,
    failed: watch::Sender<BTreeMap<u16, String>>,
}

impl Ports {
    /// From now on these ports are open. A port that stays keeps its socket; one that goes takes no more connections,
    /// and the requests on those it has are served to their end. Quick; the work is done beside.
    pub fn want(&self, ports: BTreeSet<u16>) {
        self.wanted.send_if_modified(|wanted| {
            let news = *wanted != ports;
            *wanted = ports;
            news
        });
    }

    /// The ports that cannot be opened, each with the system's reason, as they come and go. They are tried again.
    pub fn failed(&self) -> watch::Receiver<BTreeMap<u16, String>> {
        self.failed.subscribe()
    }

    /// Opens and closes until `stop`; then nothing is accepted any more, and open connections are asked to end.
    pub(crate) async fn keep<O>(&self, opener: O, stop: CancellationToken)
    where
        O: Opener,
    {
        let mut wanted = self.wanted.subscribe();
        let mut keeper = Keeper { opener, open: BTreeMap::new(), refused: BTreeMap::new() };
        loop {
            let ports = wanted.borrow_and_update().clone();
            keeper.close_others(&ports).await;
            keeper.open(&ports, Instant::now());
            self.failed.send_if_modified(|failed| {
                let now: BTreeMap<u16, String> =
                    keeper.refused.iter().map(|(port, refused)| (*port, refused.reason.clone())).collect();
                let news = *failed != now;
                *failed = now;
                news
            });
            let again = keeper.refused.values().map(|refused| refused.again).min();
            tokio::select! {
                () = stop.cancelled() => break,
                // The sender is ours, so there is always a next time.
                _ = wanted.changed() => {}
                () = at(again) => {}
            }
        }
        keeper.close_others(&BTreeSet::new()).await;
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// How ports are opened and served.
pub(crate) trait Opener {
    /// Binds a port.
    fn bind(&self, port: u16) -> io::Result<TcpListener>;

    /// Serves what is accepted there until `accepting` is cancelled; connections look at `shutdown`.
    fn serve(
        &self,
        listener: TcpListener,
        port: u16,
        shutdown: watch::Receiver<bool>,
        accepting: CancellationToken,
    ) -> JoinHandle<()>;

    /// The port that is open anyway.
    fn main(&self) -> u16;
}

struct Keeper<O> {
    opener: O,
    open: BTreeMap<u16, OpenPort>,
    refused: BTreeMap<u16, Refused>,
}

struct OpenPort {
    accepting: CancellationToken,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
}

struct Refused {
    reason: String,
    pause: Duration,
    again: Instant,
}

impl<O: Opener> Keeper<O> {
    async fn close_others(&mut self, wanted: &BTreeSet<u16>) {
        self.refused.retain(|port, _| wanted.contains(port));
        let gone: Vec<u16> = self.open.keys().copied().filter(|port| !wanted.contains(port)).collect();
        for port in gone {
            let Some(open) = self.open.remove(&port) else { continue };
            open.accepting.cancel();
            let _ = open.shutdown.send(true);
            // The socket is closed when this has ended, so that the port can be bound again.
            let _ = open.task.await;
            tracing::info!(port, "port closed");
        }
    }

    fn open(&mut self, wanted: &BTreeSet<u16>, now: Instant) {
        for &port in wanted {
            if port == self.opener.main() || self.open.contains_key(&port) {
                continue;
            }
            let before = self.refused.get(&port);
            if before.is_some_and(|refused| now < refused.again) {
                continue;
            }
            let bound = if self.open.len() < MOST_PORTS {
                self.opener.bind(port)
            } else {
                Err(io::Error::other(format!("no more than {MOST_PORTS} ports are opened")))
            };
            match bound {
                Ok(listener) => {
                    self.refused.remove(&port);
                    self.open.insert(port, serve(&self.opener, listener, port));
                    tracing::info!(port, "port opened");
                }
                Err(error) => {
                    let pause = before.map_or(AGAIN.0, |refused| (refused.pause * 2).min(AGAIN.1));
                    if before.is_none() {
                        tracing::warn!(port, %error, "the port of a Gateway's listener cannot be opened; it is tried again");
                    }
                    let refused = Refused { reason: error.to_string(), pause, again: now + pause };
                    self.refused.insert(port, refused);
                }
            }
        }
    }
}

fn serve(opener: &impl Opener, listener: TcpListener, port: u16) -> OpenPort {
    let accepting = CancellationToken::new();
    let (shutdown, watch) = watch::channel(false);
    let task = opener.serve(listener, port, watch, accepting.clone());
    OpenPort { accepting, shutdown, task }
}

/// The address of a port on the main listener's interface.
pub(crate) fn beside(main: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(main, port)
}

#[cfg(test)]
mod tests;
