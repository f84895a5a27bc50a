//! The generation requests that a group's engines got: when each came, and how it ended.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::stream::unfold;
use kvasir_core::Role;

use super::Fabric;
use crate::http::Events;

/// Exchanges kept at most.
const KEPT: usize = 8192;

/// One request at one engine of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// The engine.
    pub engine: SocketAddr,
    /// The part it was asked to play: its own role, or for an engine of both what the request says.
    pub role: Role,
    /// A number for the prompt: equal prompts have equal numbers.
    pub prompt: Option<u64>,
    /// SGLang's room.
    pub room: Option<u64>,
    /// When its body was here.
    pub began: Instant,
    /// When it had ended.
    pub ended: Option<Instant>,
    /// How; `None` while it is under way.
    pub end: Option<End>,
}

impl Exchange {
    /// Whether both were under way at one time.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends_before = |one: &Self, two: &Self| one.ended.is_some_and(|ended| ended < two.began);
        !ends_before(self, other) && !ends_before(other, self)
    }

    /// Whether it was answered with a 2xx.
    pub fn succeeded(&self) -> bool {
        matches!(self.end, Some(End::Answered(200..300)))
    }
}

/// How an exchange ended at the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The answer was written whole, with this status.
    Answered(u16),
    /// It breaks the rules of the hand-over: 400 with this text.
    Refused(String),
    /// The engine broke the answer off.
    Broken,
    /// The other side went away first, or the engine cut the connection before it said anything.
    Left,
}

/// The latest exchanges.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Number of the oldest one kept.
    first: u64,
    kept: VecDeque<Exchange>,
}

impl Journal {
    pub(super) fn exchanges(&self) -> Vec<Exchange> {
        self.kept.iter().cloned().collect()
    }

    /// Keeps those under way, and those that came after the oldest of them.
    pub(super) fn clear(&mut self) {
        while self.kept.front().is_some_and(|oldest| oldest.ended.is_some()) {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    fn add(&mut self, exchange: Exchange) -> u64 {
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(exchange);
        self.first + self.kept.len() as u64 - 1
    }

    fn find(&mut self, number: u64) -> Option<&mut Exchange> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.kept.get_mut(index)
    }
}

/// A request under way. Dropping it means that the other side has left.
#[derive(Debug)]
pub(crate) struct Exchanging {
    fabric: Arc<Fabric>,
    number: u64,
    over: bool,
}

impl Exchanging {
    pub(super) fn new(fabric: Arc<Fabric>, engine: SocketAddr, role: Role) -> Self {
        let began = Instant::now();
        let exchange = Exchange { engine, role, prompt: None, room: None, began, ended: None, end: None };
        let number = fabric.journal.lock().add(exchange);
        Self { fabric, number, over: false }
    }

    /// What it is about.
    pub(crate) fn is_about(&self, role: Role, prompt: u64, room: Option<u64>) {
        if let Some(exchange) = self.fabric.journal.lock().find(self.number) {
            (exchange.role, exchange.prompt, exchange.room) = (role, Some(prompt), room);
        }
    }

    /// It is over.
    pub(crate) fn close(mut self, end: End) {
        self.end(end);
    }

    fn end(&mut self, end: End) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if let Some(exchange) = self.fabric.journal.lock().find(self.number) {
            exchange.ended = Some(Instant::now());
            exchange.end = Some(end);
        }
    }
}

impl Drop for Exchanging {
    fn drop(&mut self) {
        self.end(End::Left);
    }
}

/// A stream that closes its exchange where it ends.
pub(crate) fn watch(events: Events, exchange: Exchanging, status: u16) -> Events {
    let state = (events, Some(exchange));
    Box::pin(unfold(state, move |(mut events, mut exchange)| async move {
        let event = events.next().await;
        let end = match &event {
            Some(Ok(_)) => None,
            Some(Err(_)) => Some(End::Broken),
            None => Some(End::Answered(status)),
        };
        if let Some(end) = end
            && let Some(exchange) = exchange.take()
        {
            exchange.close(end);
        }
        event.map(|event| (event, (events, exchange)))
    }))
}
