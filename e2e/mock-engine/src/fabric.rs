//! What the engines of one prefill/decode group know of each other: what was handed over, who meets whom, who asked what.
//!
//! Real engines find out over their transfer channels. Here the engines of a group share one [`Fabric`] in one process,
//! so that a request that no real pair could serve is refused, and a test can read afterwards what happened when.

mod exchanges;
mod hand_overs;
mod rooms;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kvasir_core::Role;
use parking_lot::Mutex;
use tokio::sync::Notify;

use exchanges::Journal;
pub use exchanges::{End, Exchange};
pub(crate) use exchanges::{Exchanging, watch};
use hand_overs::HandOvers;
use rooms::Rooms;
pub(crate) use rooms::{Parting, Seat};

/// The group that engines share. An engine belongs to the group whose fabric its [`Part`](crate::Part) holds.
#[derive(Debug, Default)]
pub struct Fabric {
    state: Mutex<State>,
    /// Wakes those who wait in a room.
    moved: Notify,
    journal: Mutex<Journal>,
}

#[derive(Debug, Default)]
struct State {
    members: HashMap<u64, Role>,
    starts: u64,
    hand_overs: HandOvers,
    rooms: Rooms,
}

impl Fabric {
    /// A group without engines.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Generation requests that the engines of the group got, oldest first, up to the latest few thousand.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.journal.lock().exchanges()
    }

    /// What was refused because it breaks the rules of the hand-over.
    pub fn refusals(&self) -> Vec<String> {
        let refused = |exchange: Exchange| match exchange.end {
            Some(End::Refused(why)) => Some(why),
            _ => None,
        };
        self.exchanges().into_iter().filter_map(refused).collect()
    }

    /// Requests that are with the engines now.
    pub fn under_way(&self) -> usize {
        self.exchanges().iter().filter(|exchange| exchange.ended.is_none()).count()
    }

    /// Forgets the exchanges that have ended.
    pub fn clear_exchanges(&self) {
        self.journal.lock().clear();
    }

    /// An engine has started.
    pub(crate) fn join(self: &Arc<Self>, role: Role) -> Member {
        let mut state = self.state.lock();
        state.starts += 1;
        let start = state.starts;
        state.members.insert(start, role);
        Member { fabric: Arc::clone(self), start }
    }

    /// A request has reached the engine at `address`.
    pub(crate) fn open(self: &Arc<Self>, address: SocketAddr, role: Role) -> Exchanging {
        Exchanging::new(Arc::clone(self), address, role)
    }

    /// Whether an engine of the group prefills (or decodes) here. Where none does, nothing can be checked against it.
    pub(crate) fn has(&self, wanted: Role) -> bool {
        self.state.lock().members.values().any(|role| *role == wanted || *role == Role::Both)
    }
}

/// One start of one engine in its group. What it gave out is worth nothing once it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    fabric: Arc<Fabric>,
    start: u64,
}

impl Member {
    /// Which start of all in the group.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The group.
    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.fabric.state.lock();
        state.members.remove(&self.start);
        state.hand_overs.forget(self.start);
    }
}

#[cfg(test)]
mod tests;
