//! The decisions of following one stream, without I/O: what was read and the time go in, actions come out.
//!
//! - A refresh lists the owners with their leases and heads, on the server's clock. An owner that somebody wants, whose
//!   lease lasts, and whose epoch is not the one that is here, is loaded.
//! - Deltas are entered in their order; a hole means loading again. A refresh that says twice that there is more than was
//!   entered means the same, so nothing depends on a single message.
//! - A lease ends by the server's clock at a refresh, never between two of them. After a pause in which Redis was not
//!   reached, or in which its clock was set forward, writers get a moment to renew first: they were likely cut off as well.
//! - Cut off from Redis: for the grace everything stays, then owners are partial and count as not published, and after ten
//!   times the grace they lapse.

mod entries;
mod loading;
mod owner;
mod refreshed;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{BlockChange, Completeness, EndpointId, ModelName, OwnerContent, OwnerSlot};

use super::status::MirroredOwner;
use crate::connection::StoreError;
use crate::delta::{Delta, Entry, StreamId};
use crate::snapshot::{Blocks, ChunkError, Epoch, Head, HeadFault};
use owner::Mirrored;

/// The most owners of one stream; more are not looked at.
pub(super) const MOST_OWNERS: usize = 4096;
/// Longer than any lease. One that seems longer was written by a server whose clock was ahead.
const LONGEST_LEASE_MS: u64 = 60_000;
/// How many graces after the last contact owners lapse.
const LAPSE_GRACES: u32 = 10;

/// How patient a follower is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) refresh: Duration,
    pub(super) grace: Duration,
    /// How long writers may take to renew their leases after Redis is back.
    pub(super) settle: Duration,
    /// How long content of an older epoch may be used while the newer one cannot be loaded.
    pub(super) stale: Duration,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Input {
    /// The list of owners was read.
    Refreshed(Refresh),
    /// It could not be read.
    Unreachable,
    /// Entries of the stream came, in their order.
    Entries(Vec<(StreamId, Entry)>),
    /// Entries came that could not be read.
    Malformed(u64),
    /// A resync ended.
    Loaded(Vec<(Arc<str>, Result<Loaded, LoadFault>)>),
    /// The owner's slot was not its own any more when something was to be entered.
    Refused(Arc<str>),
    /// The index did not take what was to be entered: what the machine believes to be there is not.
    NotTaken(Arc<str>),
    /// Time went by.
    Tick,
}

/// What a refresh read.
#[derive(Clone, Debug)]
pub(super) struct Refresh {
    /// The server's clock, milliseconds.
    pub(super) now_ms: u64,
    /// The store's name.
    pub(super) store: Option<String>,
    /// The stream's newest entry.
    pub(super) last_id: Option<StreamId>,
    /// How far the stream was read when the refresh began.
    pub(super) tailed: Option<StreamId>,
    pub(super) owners: Vec<Listed>,
    /// Names among the owners that are none.
    pub(super) malformed: u64,
}

/// One published owner.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) name: Arc<str>,
    pub(super) id: EndpointId,
    /// Server's milliseconds.
    pub(super) lease_end: u64,
    pub(super) head: Result<Head, HeadFault>,
    /// Under which number it is wanted here.
    pub(super) slot: Option<OwnerSlot>,
}

/// An owner's content, and the deltas that are not in it, without holes up to its head's.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) head: Head,
    pub(super) blocks: Blocks,
    pub(super) deltas: Vec<Delta>,
}

/// Why an owner could not be loaded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum LoadFault {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Head(#[from] HeadFault),
    #[error("a chunk is missing")]
    ChunkMissing,
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error("deltas are missing")]
    Hole,
    #[error("the reading broke off, which is a fault of this program")]
    Broken,
}

/// Whose blocks an action is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Whose {
    pub(super) name: Arc<str>,
    pub(super) id: EndpointId,
    pub(super) model: ModelName,
    pub(super) slot: OwnerSlot,
}

/// What to do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Load(Whose, OwnerContent),
    Change(Whose, Vec<BlockChange>),
    SetCompleteness(Whose, Completeness),
    Lapse(Whose),
    /// Read these owners' heads, chunks and deltas. One resync of a stream runs at a time, and of few owners: all of what
    /// it read is in memory until it is entered.
    Resync(Vec<Arc<str>>),
    /// Refresh without waiting.
    Refresh,
    /// Read the stream from here on.
    Rewind(StreamId),
}

/// How far knowledge has decayed without contact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decay {
    Fresh,
    Partial,
    Lapsed,
}

/// How far the first synchronization is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    Waiting,
    Loading,
    Done,
}

/// The state of following one stream.
#[derive(Debug)]
pub(super) struct StreamMirror {
    patience: Patience,
    owners: HashMap<Arc<str>, Mirrored>,
    by_id: HashMap<EndpointId, Arc<str>>,
    epochs: HashMap<Epoch, Arc<str>>,
    store: Option<String>,
    /// The last entry that came, or where reading began.
    tailed: Option<StreamId>,
    /// When Redis was reached, and the server's clock then.
    contact: Option<(Instant, u64)>,
    connected: bool,
    /// Until when writers may renew their leases first, server's milliseconds.
    settle_until_ms: u64,
    decay: Decay,
    start: Start,
    resyncing: bool,
    emptied: u64,
    malformed: u64,
    /// Names among the owners that are none, at the last refresh.
    malformed_names: u64,
    out: Vec<Action>,
}

impl StreamMirror {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            patience,
            owners: HashMap::new(),
            by_id: HashMap::new(),
            epochs: HashMap::new(),
            store: None,
            tailed: None,
            contact: None,
            connected: false,
            settle_until_ms: 0,
            decay: Decay::Fresh,
            start: Start::Waiting,
            resyncing: false,
            emptied: 0,
            malformed: 0,
            malformed_names: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn step(&mut self, now: Instant, input: Input) -> Vec<Action> {
        match input {
            Input::Refreshed(refresh) => self.refreshed(now, refresh),
            Input::Unreachable => {
                self.connected = false;
                if self.start == Start::Waiting {
                    self.start = Start::Done;
                }
                self.decay(now);
            }
            Input::Entries(entries) => self.entries(now, entries),
            Input::Malformed(count) => self.malformed += count,
            Input::Loaded(results) => self.loaded(now, results),
            Input::Refused(name) => {
                if let Some(owner) = self.owners.get_mut(&name) {
                    owner.unwant();
                }
                self.out.push(Action::Refresh);
            }
            Input::NotTaken(name) => {
                if let Some(owner) = self.owners.get_mut(&name) {
                    owner.reject(now);
                }
            }
            Input::Tick => self.decay(now),
        }
        self.start_resync(now);
        if self.start == Start::Loading && !self.owners.values().any(Mirrored::is_starting) {
            self.start = Start::Done;
        }
        std::mem::take(&mut self.out)
    }

    /// Everything from before is forgotten, but for what is counted: whose blocks are in the index.
    pub(super) fn start_over(&mut self) -> Vec<Whose> {
        let fresh = Self::new(self.patience);
        let before = std::mem::replace(self, fresh);
        (self.emptied, self.malformed) = (before.emptied, before.malformed);
        if before.start == Start::Done {
            self.start = Start::Done;
        }
        let loaded = before.owners.values().filter(|owner| owner.loaded.is_some());
        loaded.filter_map(Mirrored::whose).collect()
    }

    /// When something is due even if nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let grace = self.patience.grace;
        let decay = self.contact.and_then(|(contact, _)| match self.decay {
            Decay::Fresh => Some(contact + grace),
            Decay::Partial => Some(contact + LAPSE_GRACES * grace),
            Decay::Lapsed => None,
        });
        let resync = self.owners.values().filter_map(Mirrored::resync_due).min().filter(|_| !self.resyncing);
        [decay, resync].into_iter().flatten().min()
    }

    /// Whether all that was there at the start was loaded once, or Redis is out of reach.
    pub(super) fn first_synced(&self) -> bool {
        self.start == Start::Done
    }

    /// Whether an owner's lease lasted at the last refresh, and that is not longer ago than the grace.
    pub(super) fn publishes(&self, id: &EndpointId) -> bool {
        self.decay == Decay::Fresh
            && self.by_id.get(id).and_then(|name| self.owners.get(name)).is_some_and(Mirrored::is_alive)
    }

    /// The names that a refresh has to read the heads of.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.owners.keys().cloned().collect()
    }

    /// How far the stream was read.
    pub(super) fn tailed(&self) -> Option<StreamId> {
        self.tailed
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// How long Redis was not reached; `None` if it never was.
    pub(super) fn silence(&self, now: Instant) -> Option<Duration> {
        self.contact.map(|(contact, _)| now.saturating_duration_since(contact))
    }

    /// Times the store was emptied, and things that could not be read.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.emptied, self.malformed + self.malformed_names)
    }

    pub(super) fn status(&self, now: Instant) -> Vec<MirroredOwner> {
        let server_now = self.server_now(now);
        self.owners.values().map(|owner| owner.status(server_now)).collect()
    }

    /// The server's clock, as far as it can be told: for showing only, nothing is decided by it.
    fn server_now(&self, now: Instant) -> u64 {
        self.contact.map_or(0, |(contact, server_ms)| {
            server_ms + now.saturating_duration_since(contact).as_millis() as u64
        })
    }

    /// Knowledge ages while Redis cannot be reached.
    fn decay(&mut self, now: Instant) {
        let Some(silence) = self.silence(now) else { return };
        if self.decay == Decay::Fresh && silence >= self.patience.grace {
            self.decay = Decay::Partial;
            for owner in self.owners.values_mut() {
                owner.report(Completeness::Partial, &mut self.out);
            }
        }
        if self.decay == Decay::Partial && silence >= LAPSE_GRACES * self.patience.grace {
            self.decay = Decay::Lapsed;
            for owner in self.owners.values_mut() {
                owner.lapse(&mut self.out);
                owner.alive = false;
            }
        }
    }
}
