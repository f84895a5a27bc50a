//! SGLang's bootstrap rooms: a prefill and a decode that are there at the same time.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::Role;
use tokio::time::timeout;

use super::{Fabric, State};

/// Rooms remembered at most, so that a number that comes twice is noticed.
const KEPT: usize = 65_536;

/// The rooms of a group.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: HashMap<u64, Room>,
    order: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Room {
    prompt: u64,
    prefill: Side,
    decode: Side,
    /// Cached tokens that the prefill engine has found, once its work is done.
    computed: Option<usize>,
    taken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Side {
    /// Has not come yet.
    #[default]
    Awaited,
    Here(IpAddr),
    Gone,
}

/// Why two did not come together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parting {
    /// Nobody else came in time.
    Alone,
    /// The other one left before the work was done.
    Left,
}

/// One side's presence in a room; dropping it leaves.
#[derive(Debug)]
pub(crate) struct Seat {
    fabric: Arc<Fabric>,
    number: u64,
    role: Role,
}

impl Fabric {
    /// Takes one side of a room.
    ///
    /// # Errors
    /// When the room was used for this before, or for another prompt.
    pub(crate) fn enter(
        self: &Arc<Self>,
        number: u64,
        role: Role,
        ip: IpAddr,
        prompt: u64,
    ) -> Result<Seat, &'static str> {
        let mut state = self.state.lock();
        let rooms = &mut state.rooms;
        if !rooms.rooms.contains_key(&number) {
            if rooms.order.len() >= KEPT
                && let Some(oldest) = rooms.order.pop_front()
            {
                rooms.rooms.remove(&oldest);
            }
            rooms.order.push_back(number);
        }
        let room = rooms.rooms.entry(number).or_insert_with(|| Room { prompt, ..Room::default() });
        let side = if role == Role::Prefill { &mut room.prefill } else { &mut room.decode };
        if *side != Side::Awaited {
            return Err("was used before");
        }
        if room.prompt != prompt {
            return Err("is another prompt's");
        }
        *side = Side::Here(ip);
        drop(state);
        self.moved.notify_waiters();
        Ok(Seat { fabric: Arc::clone(self), number, role })
    }

    fn change_room(&self, number: u64, change: impl FnOnce(&mut Room)) {
        if let Some(room) = self.state.lock().rooms.rooms.get_mut(&number) {
            change(room);
        }
        self.moved.notify_waiters();
    }
}

impl Seat {
    /// Waits for the other side and gives its address.
    pub(crate) async fn meet(&self, patience: Duration) -> Result<IpAddr, Parting> {
        let other = self.until(|room| match self.other(room) {
            Side::Awaited => None,
            Side::Here(ip) => Some(Ok(ip)),
            Side::Gone => Some(Err(Parting::Left)),
        });
        timeout(patience, other).await.unwrap_or(Err(Parting::Alone))
    }

    /// Prefill: the prompt is computed, `cached` tokens of it were there. Waits until the other side has it.
    pub(crate) async fn hand_over(&self, cached: usize) -> Result<(), Parting> {
        self.fabric.change_room(self.number, |room| room.computed = Some(cached));
        self.until(|room| match (room.taken, room.decode) {
            (true, _) => Some(Ok(())),
            (false, Side::Gone) => Some(Err(Parting::Left)),
            (false, _) => None,
        })
        .await
    }

    /// Decode: waits for the other side's work, as long as it is there, and gives its cached tokens.
    pub(crate) async fn receive(&self) -> Result<usize, Parting> {
        let cached = self
            .until(|room| match (room.computed, room.prefill) {
                (Some(cached), Side::Here(_)) => Some(Ok(cached)),
                (_, Side::Gone) => Some(Err(Parting::Left)),
                _ => None,
            })
            .await?;
        self.fabric.change_room(self.number, |room| room.taken = true);
        Ok(cached)
    }

    fn other(&self, room: &Room) -> Side {
        if self.role == Role::Prefill { room.decode } else { room.prefill }
    }

    async fn until<T>(&self, look: impl Fn(&Room) -> Option<Result<T, Parting>>) -> Result<T, Parting> {
        loop {
            let moved = self.fabric.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if let Some(seen) = self.look(&self.fabric.state.lock(), &look) {
                return seen;
            }
            moved.await;
        }
    }

    fn look<T>(
        &self,
        state: &State,
        look: &impl Fn(&Room) -> Option<Result<T, Parting>>,
    ) -> Option<Result<T, Parting>> {
        // A room that was forgotten is one that the other side will not find.
        state.rooms.rooms.get(&self.number).map_or(Some(Err(Parting::Left)), look)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let role = self.role;
        self.fabric.change_room(self.number, |room| {
            let side = if role == Role::Prefill { &mut room.prefill } else { &mut room.decode };
            *side = Side::Gone;
        });
    }
}
