//! The follower's decisions, without I/O: inputs go in with the time, actions come out.
//!
//! The rules (decision D4):
//!
//! - First connection: replay from 0 while live batches wait. If the replay starts with batch 0, or is empty
//!   because nothing was ever published, the owner is exact; else partial.
//! - After a gap, after a reconnect and after a silence: replay from the last batch seen, inclusive, and compare
//!   that batch with what is remembered of it. Equal: go on. Another: the engine restarted; forget, replay from
//!   0. Not offered any more: forget, partial. Nothing offered: the engine's newest is older than our last, so
//!   it restarted.
//! - A number that falls is a restart, unless the very same batch was seen under it.
//! - Without a replay socket: a gap or a reconnect forgets all and makes the owner partial; batch 0 after
//!   nothing, or after a fall, makes it exact.
//! - A failed replay after a gap or a reconnect forgets all too, and is tried again from 0 later.
//! - With a saved state: the first replay is from its last batch, inclusive. Equal: the state is taken in, and what
//!   follows is applied. Another, none, or no longer offered: the state is dropped, and all is read anew. While the
//!   engine does not answer, live batches wait; after three failures the state is dropped too.

mod history;
mod replaying;
mod resume;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kvasir_core::Completeness;

use crate::event::Received;
use history::{History, Known};
pub use resume::ResumePoint;

/// What a follower may do, and how patient it is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether the source has a replay socket.
    pub has_replay: bool,
    /// Live batches that wait for the end of a replay; above it the oldest go, and come again by replay.
    pub most_waiting: usize,
    /// Their bytes.
    pub most_waiting_bytes: usize,
    /// Silence after which the engine is asked whether it still has our last batch. Nothing else notices a peer
    /// that vanished without closing its connection: there are no heart-beats.
    pub probe_after: Duration,
    /// Failed probes after which the connection is made anew.
    pub most_failed_probes: u32,
    /// First pause before a failed replay is tried again; doubles up to 16 times it.
    pub retry_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            has_replay: true,
            // As many as the engine keeps for replay, so a replay never needs more.
            most_waiting: 10_000,
            most_waiting_bytes: 16 * 1024 * 1024,
            probe_after: Duration::from_secs(10),
            most_failed_probes: 3,
            retry_after: Duration::from_secs(5),
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The publisher is connected, and the subscription is on its way.
    Connected,
    /// The publisher is gone.
    Disconnected,
    /// A live batch.
    Live(Received),
    /// A batch of the running replay.
    Replayed(Received),
    /// The running replay is over: with its end marker, or failed.
    ReplayEnded {
        /// Whether the end marker came.
        complete: bool,
    },
    /// Time went by.
    Tick,
}

/// What to do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask for the batches from this number on. One replay runs at a time.
    RequestReplay {
        /// First number wanted.
        from: u64,
    },
    /// Drop the running replay.
    CancelReplay,
    /// Apply a batch.
    Apply(Received),
    /// Forget everything the owner holds: a new epoch begins.
    Clear {
        /// The epoch that begins.
        epoch: u64,
    },
    /// Take the saved state in: the engine is the one that it was saved of.
    Restore,
    /// The saved state is worth nothing.
    DropSaved,
    /// How far the owner's content is known from here on.
    SetCompleteness(Completeness),
    /// Numbers were skipped.
    CountGap,
    /// A gap was filled.
    CountRepair,
    /// Drop the connection and make a new one.
    Reconnect,
}

/// Why a replay runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// For the whole history.
    Full,
    /// To prove a saved state.
    Resume,
    /// Numbers were skipped.
    Gap,
    /// The connection is new.
    Reconnect,
    /// It was silent.
    Probe,
}

/// The running replay.
#[derive(Clone, Copy, Debug)]
struct Replaying {
    reason: Reason,
    /// Whether a batch of it came.
    begun: bool,
    /// Whether it reached batch 0 and had no hole since.
    whole: bool,
}

/// Replays in a row that brought nothing, after which a gap is taken as it is.
const MOST_ATTEMPTS: u32 = 3;

/// The state of one follower.
#[derive(Debug)]
pub struct Follower {
    options: Options,
    connected: bool,
    was_connected: bool,
    history: History,
    /// The saved state that waits for its proof.
    resume: Option<ResumePoint>,
    completeness: Completeness,
    /// Whether this epoch's beginning is out of the engine's reach, so that no replay makes it exact.
    out_of_reach: bool,
    epoch: u64,
    replaying: Option<Replaying>,
    waiting: VecDeque<Received>,
    waiting_bytes: usize,
    attempts: u32,
    failed_probes: u32,
    failed_replays: u32,
    next_probe: Instant,
    next_retry: Instant,
    out: Vec<Action>,
}

impl Follower {
    /// A follower that has not connected yet.
    pub fn new(options: Options, now: Instant) -> Self {
        Self {
            options,
            connected: false,
            was_connected: false,
            history: History::default(),
            resume: None,
            completeness: Completeness::Partial,
            out_of_reach: false,
            epoch: 0,
            replaying: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            attempts: 0,
            failed_probes: 0,
            failed_replays: 0,
            next_probe: now + options.probe_after,
            next_retry: now + options.retry_after,
            out: Vec::new(),
        }
    }

    /// Takes one input; gives what to do about it.
    pub fn step(&mut self, now: Instant, input: Input) -> Vec<Action> {
        match input {
            Input::Connected => self.connect(now),
            Input::Disconnected => {
                self.connected = false;
                self.stop_replay();
                self.drop_waiting();
            }
            Input::Live(batch) => {
                // A bound socket may deliver before it tells that somebody connected.
                if !self.connected {
                    self.connect(now);
                }
                self.next_probe = now + self.options.probe_after;
                self.failed_probes = 0;
                self.take_live(batch);
            }
            Input::Replayed(batch) => self.take_replayed(batch),
            Input::ReplayEnded { complete } => self.end_replay(now, complete),
            Input::Tick => self.tick(now),
        }
        std::mem::take(&mut self.out)
    }

    /// How far the content is known.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// Epochs begun after the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a replay runs.
    pub fn is_replaying(&self) -> bool {
        self.replaying.is_some()
    }

    /// Whether the publisher is connected.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    fn connect(&mut self, now: Instant) {
        let again = std::mem::replace(&mut self.was_connected, true);
        self.connected = true;
        self.attempts = 0;
        self.failed_probes = 0;
        self.next_probe = now + self.options.probe_after;
        if !again {
            self.set(Completeness::Partial);
        }
        if !self.options.has_replay {
            // Whether the engine lived on cannot be asked: what it holds is unknown from here on.
            if again {
                self.clear();
                self.set(Completeness::Partial);
            }
        } else {
            self.ask(Reason::Reconnect);
        }
    }

    fn tick(&mut self, now: Instant) {
        if !self.connected || !self.options.has_replay || self.replaying.is_some() {
            return;
        }
        let incomplete = self.completeness != Completeness::Exact && !self.out_of_reach;
        if incomplete && now >= self.next_retry {
            self.attempts = 0;
            self.start(if self.resume.is_some() { Reason::Resume } else { Reason::Full });
        } else if now >= self.next_probe {
            self.next_probe = now + self.options.probe_after;
            self.ask(Reason::Probe);
        }
    }

    /// A live batch, in the order of arrival.
    fn take_live(&mut self, batch: Received) {
        if self.replaying.is_some() || self.resume.is_some() {
            self.wait(batch);
            return;
        }
        let can_ask = self.options.has_replay && self.attempts < MOST_ATTEMPTS;
        match self.history.compare(&batch) {
            Known::Next => {
                if batch.seq == 0 {
                    self.set(Completeness::Exact);
                }
                self.attempts = 0;
                self.apply(batch);
            }
            Known::Same => {}
            Known::Ahead => {
                if self.history.last().is_some() {
                    self.out.push(Action::CountGap);
                }
                if can_ask {
                    let reason = if self.history.last().is_some() { Reason::Gap } else { Reason::Full };
                    self.start(reason);
                    self.wait(batch);
                } else {
                    if self.history.last().is_some() {
                        self.clear();
                    }
                    self.out_of_reach = self.options.has_replay && self.failed_replays == 0;
                    self.set(Completeness::Partial);
                    self.apply(batch);
                }
            }
            Known::Other | Known::Forgotten => {
                self.clear();
                if batch.seq == 0 {
                    self.set(Completeness::Exact);
                    self.apply(batch);
                } else if can_ask {
                    self.set(Completeness::Partial);
                    self.start(Reason::Full);
                    self.wait(batch);
                } else {
                    self.set(Completeness::Partial);
                    self.apply(batch);
                }
            }
        }
    }

    fn apply(&mut self, batch: Received) {
        self.history.push(&batch);
        self.out.push(Action::Apply(batch));
    }

    fn clear(&mut self) {
        self.epoch += 1;
        self.history.clear();
        self.out_of_reach = false;
        self.out.push(Action::Clear { epoch: self.epoch });
    }

    fn set(&mut self, completeness: Completeness) {
        self.completeness = completeness;
        self.out.push(Action::SetCompleteness(completeness));
    }

    fn wait(&mut self, batch: Received) {
        self.waiting_bytes += batch.payload.len();
        self.waiting.push_back(batch);
        while self.waiting.len() > self.options.most_waiting
            || self.waiting_bytes > self.options.most_waiting_bytes
        {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= oldest.payload.len();
        }
    }

    fn drop_waiting(&mut self) -> VecDeque<Received> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests;
