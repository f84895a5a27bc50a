//! The I/O around the follower: one task that subscribes, replays and applies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use kvasir_core::{Clock, OwnerSlot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket};

use super::machine::{Action, Follower, Input, Options, ResumePoint};
use super::replay::{Answer, Replay};
use super::source::KvEventsSource;
use super::status::{Link, SavedState};
use super::tap::EventTap;
use crate::event::{Received, decode_batch, parse_live};
use crate::index::{Index, SavedOwner};

/// To connect to a publisher. The library waits for a peer that is not there and backs off up to 30 s by itself;
/// a short limit keeps the pace ours.
const CONNECT: Duration = Duration::from_secs(2);

/// First and longest pause between two tries to connect.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How often the follower is told the time.
const TICK: Duration = Duration::from_millis(500);

/// Follows one owner's events until `stop`: subscribes, replays, applies to `index`. The owner must be registered;
/// it counts as partial from the first connection on, exact when its whole history was read, and approximate
/// while nobody was ever connected.
pub fn follow(
    index: Arc<Index>,
    slot: OwnerSlot,
    source: KvEventsSource,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    follow_with(index, slot, source, clock, stop, FollowSetup::default())
}

/// What a follower may have beside the index.
#[derive(Clone, Default)]
pub struct FollowSetup {
    /// Sees the same batches.
    pub tap: Option<Arc<dyn EventTap>>,
    /// What an earlier process knew of the owner. Taken in when the engine still offers the last batch that is in it:
    /// then it is the same engine, and nothing since is lost. Dropped otherwise, and read anew from the engine.
    pub resume_from: Option<SavedOwner>,
}

impl std::fmt::Debug for FollowSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FollowSetup")
            .field("tap", &self.tap.is_some())
            .field("resume_from", &self.resume_from)
            .finish()
    }
}

/// Follows as [`follow`] does, with what `setup` adds.
pub fn follow_with(
    index: Arc<Index>,
    slot: OwnerSlot,
    source: KvEventsSource,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    setup: FollowSetup,
) -> JoinHandle<()> {
    let options = Options { has_replay: source.replay.is_some(), ..Options::default() };
    let task = Subscription::new(index, slot, source, clock, setup, options);
    task.spawn(stop)
}

/// One owner's follower with all that it works on.
pub(super) struct Subscription {
    index: Arc<Index>,
    slot: OwnerSlot,
    source: KvEventsSource,
    clock: Arc<dyn Clock>,
    tap: Option<Arc<dyn EventTap>>,
    saved: Option<SavedOwner>,
    follower: Follower,
    replay: Option<Replay>,
    noted_rank: bool,
}

/// Says when the owner is not followed any more, however its task ended.
struct Followed {
    index: Arc<Index>,
    slot: OwnerSlot,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.index.update_follower(self.slot, |status| status.link = Link::None);
    }
}

/// Why a connection is given up.
enum Left {
    Closed,
    Wanted,
}

impl Subscription {
    pub(super) fn new(
        index: Arc<Index>,
        slot: OwnerSlot,
        source: KvEventsSource,
        clock: Arc<dyn Clock>,
        setup: FollowSetup,
        options: Options,
    ) -> Self {
        let FollowSetup { tap, resume_from } = setup;
        let (saved, point) = usable(&index, slot, resume_from, options.has_replay);
        let follower = match point {
            Some(point) => Follower::resuming(options, clock.now(), point),
            None => Follower::new(options, clock.now()),
        };
        index.update_follower(slot, |status| {
            status.link = Link::Connecting;
            status.has_replay = options.has_replay;
            status.saved = if saved.is_some() { SavedState::Unproven } else { SavedState::None };
        });
        Self { index, slot, source, clock, tap, saved, follower, replay: None, noted_rank: false }
    }

    pub(super) fn spawn(mut self, stop: CancellationToken) -> JoinHandle<()> {
        let link = Followed { index: Arc::clone(&self.index), slot: self.slot };
        tokio::spawn(async move {
            let _link = link;
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.run() => {}
            }
        })
    }

    /// Never ends by itself; dropped at the stop.
    async fn run(&mut self) {
        let mut pause = PAUSE.0;
        loop {
            let mut options = SocketOptions::default();
            options.connect_timeout(CONNECT);
            let mut socket = SubSocket::with_options(options);
            match self.open(&mut socket).await {
                Ok(()) => {
                    pause = PAUSE.0;
                    let left = self.listen(&mut socket).await;
                    drop(socket);
                    self.step(Input::Disconnected);
                    if let Left::Closed = left {
                        self.note("the publisher closed the connection");
                    }
                }
                Err(reason) => self.note(reason),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn open(&self, socket: &mut SubSocket) -> Result<(), &'static str> {
        // Remembered by the socket and sent at each connection.
        socket.subscribe(&self.source.topic).await.map_err(|_| "cannot subscribe")?;
        if self.source.bind {
            let bound = socket.bind(&self.source.bind_address()).await;
            bound.map(|_| ()).map_err(|_| "cannot listen at the event endpoint")
        } else {
            socket.connect(&self.source.endpoint).await.map_err(|_| "cannot connect to the event endpoint")
        }
    }

    async fn listen(&mut self, socket: &mut SubSocket) -> Left {
        let mut events = socket.monitor();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if !self.source.bind {
            self.connected();
        }
        loop {
            // Connections before messages: a batch of a new connection must find the old one ended.
            let reconnect = tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(SocketEvent::Accepted(..)) => { self.connected(); false }
                    Some(SocketEvent::Disconnected(_)) if self.source.bind => self.step(Input::Disconnected),
                    Some(SocketEvent::Disconnected(_)) => return Left::Closed,
                    Some(_) => false,
                    None => return Left::Closed,
                },
                _ = ticks.tick() => self.step(Input::Tick),
                answer = answer(&mut self.replay) => self.take_answer(answer),
                message = socket.recv() => match message {
                    Ok(message) => self.take(&message.into_vec()),
                    Err(_) if self.source.bind => false,
                    Err(_) => return Left::Closed,
                },
            };
            if reconnect {
                return Left::Wanted;
            }
        }
    }

    fn connected(&mut self) {
        self.index.update_follower(self.slot, |status| status.connects += 1);
        self.step(Input::Connected);
    }

    fn take(&mut self, frames: &[bytes::Bytes]) -> bool {
        match parse_live(frames) {
            Ok(batch) => self.step(Input::Live(batch)),
            Err(error) => {
                self.index.update_follower(self.slot, |status| {
                    status.bad_messages += 1;
                    status.last_error = Some(error.to_string());
                });
                false
            }
        }
    }

    fn take_answer(&mut self, answer: Answer) -> bool {
        match answer {
            Answer::Batch(batch) => self.step(Input::Replayed(batch)),
            Answer::End(end) => {
                self.replay = None;
                if let Err(error) = end {
                    self.index.update_follower(self.slot, |status| {
                        status.failed_replays += 1;
                        status.last_error = Some(error.to_string());
                    });
                }
                self.step(Input::ReplayEnded { complete: end.is_ok() })
            }
        }
    }

    /// Lets the follower decide and does what it says. True when the connection is to be made anew.
    fn step(&mut self, input: Input) -> bool {
        let epoch = self.follower.epoch();
        let mut reconnect = false;
        for action in self.follower.step(self.clock.now(), input) {
            match action {
                Action::RequestReplay { from } => self.request(from),
                Action::CancelReplay => self.replay = None,
                Action::Apply(batch) => self.apply(&batch),
                Action::Clear { .. } => {
                    self.index.reset(self.slot);
                    if let Some(tap) = &self.tap {
                        tap.reset();
                    }
                }
                Action::Restore => self.restore(),
                Action::DropSaved => {
                    self.saved = None;
                    self.index.update_follower(self.slot, |status| status.saved = SavedState::Dropped);
                    tracing::info!(
                        owner = self.slot.0, source = %self.source,
                        "the saved state is of another life of the engine, or too old; it is not used"
                    );
                }
                Action::SetCompleteness(completeness) => {
                    self.index.set_completeness(self.slot, completeness);
                }
                Action::CountGap => self.index.count_gap(self.slot),
                Action::CountRepair => self.index.count_repair(self.slot),
                Action::Reconnect => reconnect = true,
            }
        }
        if self.follower.epoch() != epoch {
            tracing::info!(
                owner = self.slot.0, source = %self.source, epoch = self.follower.epoch(),
                completeness = self.follower.completeness().as_str(),
                "what the engine holds is read anew: it restarted, or events were lost"
            );
        }
        self.report();
        reconnect
    }

    fn request(&mut self, from: u64) {
        if let Some(endpoint) = &self.source.replay {
            self.index.update_follower(self.slot, |status| status.replays += 1);
            self.replay = Some(Replay::start(endpoint.clone(), from));
        }
    }

    fn restore(&mut self) {
        let Some(saved) = self.saved.take() else { return };
        // It fits: that was seen to at the start. An owner that was forgotten since needs nothing any more.
        if self.index.restore(self.slot, &saved).is_err() {
            return;
        }
        self.index.update_follower(self.slot, |status| status.saved = SavedState::Taken);
        if let Some(tap) = &self.tap {
            tap.restored();
        }
        tracing::info!(
            owner = self.slot.0, source = %self.source, blocks = saved.blocks(), seq = saved.last_batch().seq,
            "going on from a saved state"
        );
    }

    fn apply(&mut self, received: &Received) {
        let batch = match decode_batch(received.seq, &received.payload) {
            Ok(batch) => batch,
            Err(error) => {
                self.index.undecodable(self.slot);
                self.index.update_follower(self.slot, |status| status.last_error = Some(error.to_string()));
                return;
            }
        };
        if let (Some(wanted), Some(said)) = (self.source.rank, batch.rank)
            && wanted != said
        {
            self.index.count_rank_mismatch(self.slot);
            if !std::mem::replace(&mut self.noted_rank, true) {
                tracing::warn!(
                    owner = self.slot.0, source = %self.source, wanted, said,
                    "the events are of another data-parallel rank than configured"
                );
            }
        }
        let applied = self.index.apply_digested(self.slot, &batch, Some(received.digest));
        if let Some(tap) = self.tap.as_ref().filter(|_| applied) {
            tap.applied(&batch);
        }
    }

    fn report(&self) {
        let link = match (self.follower.is_connected(), self.follower.is_replaying()) {
            (false, _) => Link::Connecting,
            (true, true) => Link::Replaying,
            (true, false) => Link::Following,
        };
        self.index.update_follower(self.slot, |status| {
            status.link = link;
            status.epoch = self.follower.epoch();
        });
    }

    fn note(&self, reason: &'static str) {
        tracing::debug!(owner = self.slot.0, source = %self.source, reason, "KV events are not followed");
        self.index.update_follower(self.slot, |status| {
            status.link = Link::Connecting;
            status.last_error = Some(reason.to_owned());
        });
    }
}

/// A saved state that may prove right, and what proves it.
fn usable(
    index: &Index,
    slot: OwnerSlot,
    saved: Option<SavedOwner>,
    has_replay: bool,
) -> (Option<SavedOwner>, Option<ResumePoint>) {
    let Some(saved) = saved else { return (None, None) };
    let last = saved.last_batch();
    let reason = match (index.fits(slot, &saved), last.digest) {
        (Ok(()), Some(digest)) if has_replay => {
            let point = ResumePoint { seq: last.seq, digest, completeness: saved.completeness() };
            return (Some(saved), Some(point));
        }
        (Err(error), _) => error.to_string(),
        (Ok(()), _) => "nothing can prove it without a replay socket".to_owned(),
    };
    tracing::warn!(owner = slot.0, reason, "the saved state is not used");
    (None, None)
}

/// The next answer of the running replay; waits for ever when none runs.
async fn answer(replay: &mut Option<Replay>) -> Answer {
    match replay {
        Some(replay) => replay.next().await,
        None => std::future::pending().await,
    }
}
