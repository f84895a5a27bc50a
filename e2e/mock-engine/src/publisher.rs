//! KV events over ZMQ: the publisher, its sequence numbers, and replay.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::EngineKind;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use crate::config::{Encoding, EventsConfig, EventsEndpoint};
use crate::event::{Batch, Style};
use crate::port::Port;

/// Batches that may wait for the publisher; vLLM's `max_queue_size`.
const QUEUED_BATCHES: usize = 100_000;

/// Sequence number of the message that ends a replay: -1.
const END_OF_REPLAY: [u8; 8] = [0xff; 8];

/// The ports of one engine's events; they outlive restarts.
#[derive(Debug)]
pub(crate) struct EventPorts {
    publisher: Option<Port>,
    replay: Option<Port>,
}

impl EventPorts {
    /// Reserves what `config` needs.
    pub(crate) fn reserve(config: &EventsConfig) -> std::io::Result<Self> {
        let (publisher, replay_at) = match &config.endpoint {
            EventsEndpoint::Bind(address) => {
                (Some(Port::reserve(*address)?), SocketAddr::new(address.ip(), 0))
            }
            EventsEndpoint::Connect(_) => (None, SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let replay = if config.replay { Some(Port::reserve(replay_at)?) } else { None };
        Ok(Self { publisher, replay })
    }

    /// Where the publisher is bound; `None` when it connects.
    pub(crate) fn publisher(&self) -> Option<SocketAddr> {
        self.publisher.as_ref().map(Port::address)
    }

    /// Where replay is asked for.
    pub(crate) fn replay(&self) -> Option<SocketAddr> {
        self.replay.as_ref().map(Port::address)
    }
}

/// The way from the engine to its publisher. Never waits.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    sender: mpsc::Sender<Message>,
    published: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) enum Message {
    Batch(Batch),
    Disturb(Disturbance),
}

/// What becomes of the next batches on their way to subscribers. A new one takes the place of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Disturbance {
    /// Nothing.
    #[default]
    None,
    /// They are lost.
    Lose {
        batches: u64,
        /// Whether replay still has them.
        replayable: bool,
    },
    /// Each comes twice.
    Duplicate { batches: u64 },
    /// The second of each pair comes first.
    Reorder { pairs: u64 },
}

impl Outlet {
    /// An outlet without a publisher, and what goes into it.
    #[cfg(test)]
    pub(crate) fn captured() -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(QUEUED_BATCHES);
        (Self { sender, published: Arc::default() }, receiver)
    }

    /// Sends one batch; a full queue loses it, as in vLLM.
    pub(crate) fn send(&self, batch: Batch) {
        if self.sender.try_send(Message::Batch(batch)).is_err() {
            tracing::warn!("the mock engine lost a batch of KV events: its publisher is gone or too slow");
        }
    }

    /// Disturbs the batches after those sent so far.
    pub(crate) async fn disturb(&self, disturbance: Disturbance) {
        let _ = self.sender.send(Message::Disturb(disturbance)).await;
    }

    /// Batches that got a sequence number in this start.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }
}

/// The running publisher of one start.
#[derive(Debug)]
pub(crate) struct Publisher {
    outlet: Outlet,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Binds (or begins to connect) and counts from 0.
    pub(crate) async fn start(
        config: &EventsConfig,
        engine: EngineKind,
        ports: &EventPorts,
    ) -> anyhow::Result<Self> {
        let mut socket = PubSocket::new();
        if let Some(port) = &ports.publisher {
            socket.bind_listener(port.listen()?.into_std()?).await?;
        }
        let replay = match &ports.replay {
            Some(port) => {
                let mut router = RouterSocket::new();
                router.bind_listener(port.listen()?.into_std()?).await?;
                Some(router)
            }
            None => None,
        };
        let (sender, incoming) = mpsc::channel(QUEUED_BATCHES);
        let outlet = Outlet { sender, published: Arc::new(AtomicU64::new(0)) };
        let stop = CancellationToken::new();
        let loop_ = Loop {
            style: Style { engine, encoding: config.encoding, hash: config.hash, rank: config.rank },
            topic: Bytes::from(config.topic.clone()),
            buffer: VecDeque::new(),
            capacity: config.replay_buffer,
            disturbance: Disturbance::None,
            held: None,
            next: 0,
            published: Arc::clone(&outlet.published),
        };
        let connect_to = match &config.endpoint {
            EventsEndpoint::Connect(endpoint) => Some(endpoint.clone()),
            EventsEndpoint::Bind(_) => None,
        };
        let sockets = Sockets { publisher: socket, replay, incoming };
        let task = tokio::spawn(run(loop_, sockets, connect_to, stop.clone()));
        Ok(Self { outlet, stop, task })
    }

    pub(crate) fn outlet(&self) -> Outlet {
        self.outlet.clone()
    }

    /// Closes both sockets soon.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Closes both sockets; their ports are free when this returns.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

struct Sockets {
    publisher: PubSocket,
    replay: Option<RouterSocket>,
    incoming: mpsc::Receiver<Message>,
}

/// What one start remembers of its events.
struct Loop {
    style: Style,
    topic: Bytes,
    buffer: VecDeque<(u64, Bytes)>,
    capacity: usize,
    disturbance: Disturbance,
    /// The first of a pair that is sent after the second.
    held: Option<ZmqMessage>,
    next: u64,
    published: Arc<AtomicU64>,
}

async fn run(mut state: Loop, mut sockets: Sockets, connect_to: Option<String>, stop: CancellationToken) {
    if let Some(endpoint) = connect_to {
        tokio::select! {
            () = stop.cancelled() => return,
            () = connect(&mut sockets.publisher, &endpoint) => {}
            // Without a peer, batches are only remembered. The branch ends with the engine.
            () = remember_only(&mut state, &mut sockets.incoming, &mut sockets.replay) => return,
        }
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            message = sockets.incoming.recv() => match message {
                Some(message) => {
                    for frames in state.take(message) {
                        let _ = sockets.publisher.send(frames).await;
                    }
                }
                None => break,
            },
            Some(request) = next_request(&mut sockets.replay) => state.answer(&mut sockets.replay, request).await,
        }
    }
    sockets.publisher.unbind_all().await;
    if let Some(mut replay) = sockets.replay.take() {
        replay.unbind_all().await;
    }
}

async fn connect(socket: &mut PubSocket, endpoint: &str) {
    while let Err(error) = socket.connect(endpoint).await {
        tracing::debug!(%error, "the mock engine's publisher cannot connect yet");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn remember_only(
    state: &mut Loop,
    incoming: &mut mpsc::Receiver<Message>,
    replay: &mut Option<RouterSocket>,
) {
    loop {
        tokio::select! {
            message = incoming.recv() => match message {
                Some(message) => drop(state.take(message)),
                None => return,
            },
            Some(request) = next_request(replay) => state.answer(replay, request).await,
        }
    }
}

/// The next replay request; never without a replay socket.
async fn next_request(replay: &mut Option<RouterSocket>) -> Option<ZmqMessage> {
    match replay {
        Some(router) => router.recv().await.ok(),
        None => std::future::pending().await,
    }
}

impl Loop {
    /// Numbers and remembers a batch; gives the messages for the subscribers.
    fn take(&mut self, message: Message) -> Vec<ZmqMessage> {
        let batch = match message {
            Message::Batch(batch) => batch,
            Message::Disturb(disturbance) => {
                self.disturbance = disturbance;
                return self.held.take().into_iter().collect();
            }
        };
        let payload = match self.style.encode(&batch) {
            Ok(payload) => payload,
            Err(error) => {
                tracing::error!(%error, "the mock engine cannot encode its KV events");
                return Vec::new();
            }
        };
        let sequence = self.next;
        self.next += 1;
        let forgotten =
            matches!(self.disturbance, Disturbance::Lose { batches, replayable: false } if batches > 0);
        if !forgotten {
            self.buffer.push_back((sequence, payload.clone()));
            while self.buffer.len() > self.capacity {
                self.buffer.pop_front();
            }
        }
        self.published.store(self.next, Ordering::Release);
        let mut frames = ZmqMessage::from(self.topic.clone());
        frames.push_back(Bytes::copy_from_slice(&sequence.to_be_bytes()));
        frames.push_back(payload);
        self.pass_on(frames)
    }

    /// What subscribers get now that this message is due.
    fn pass_on(&mut self, frames: ZmqMessage) -> Vec<ZmqMessage> {
        match &mut self.disturbance {
            Disturbance::Lose { batches, .. } if *batches > 0 => {
                *batches -= 1;
                Vec::new()
            }
            Disturbance::Duplicate { batches } if *batches > 0 => {
                *batches -= 1;
                vec![frames.clone(), frames]
            }
            Disturbance::Reorder { pairs } if *pairs > 0 => match self.held.take() {
                None => {
                    self.held = Some(frames);
                    Vec::new()
                }
                Some(first) => {
                    *pairs -= 1;
                    vec![frames, first]
                }
            },
            _ => vec![frames],
        }
    }

    /// Answers one replay request: `[identity, "", start]` in, one message for each batch and an end marker out.
    async fn answer(&self, replay: &mut Option<RouterSocket>, request: ZmqMessage) {
        let Some(router) = replay else { return };
        let [identity, delimiter, start] = &request.into_vec()[..] else {
            tracing::debug!("invalid replay request");
            return;
        };
        let (true, Ok(start)) = (delimiter.is_empty(), <[u8; 8]>::try_from(&start[..])) else {
            tracing::debug!("invalid replay request");
            return;
        };
        let start = u64::from_be_bytes(start);
        let first = self.buffer.partition_point(|(sequence, _)| *sequence < start);
        for (sequence, payload) in self.buffer.range(first..) {
            let sequence = Bytes::copy_from_slice(&sequence.to_be_bytes());
            let message = self.reply(identity, self.topic.clone(), sequence, payload.clone());
            if router.send(message).await.is_err() {
                return;
            }
        }
        let end = self.reply(identity, Bytes::new(), Bytes::from_static(&END_OF_REPLAY), Bytes::new());
        let _ = router.send(end).await;
    }

    fn reply(&self, identity: &Bytes, topic: Bytes, sequence: Bytes, payload: Bytes) -> ZmqMessage {
        let mut frames = ZmqMessage::from(identity.clone());
        frames.push_back(Bytes::new());
        if self.style.encoding == Encoding::Map {
            frames.push_back(topic);
        }
        frames.push_back(sequence);
        frames.push_back(payload);
        frames
    }
}

#[cfg(test)]
mod tests;
