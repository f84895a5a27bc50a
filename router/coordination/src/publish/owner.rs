//! The decisions of publishing one owner, without I/O: time and answers go in, requests come out.
//!
//! - Ask for the lease. While another agent has it, ask again until its lease ends on the server's clock.
//! - With the lease: read the whole content, write its chunks under a new generation, commit them as a new epoch.
//! - Then send what changes as numbered deltas. The shelf takes changes in when they are taken from the journal, not when
//!   Redis confirms them: chunks may be ahead of the deltas, never behind, and deltas may be applied twice.
//! - When many deltas are not in the chunks, or old ones, write the chunks that changed and raise the floor.
//! - Each script says when Redis has not what we left there, or another agent took over. Nothing is assumed after a
//!   failure: what was not confirmed is sent again, and the next answer tells.

mod bulk;
mod following;
mod server_time;
mod tenure;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::{BlockSize, Completeness, EndpointId, OwnerJournal, OwnerSlot};
use rand::Rng;

use super::PublisherOptions;
use super::request::{Answer, Commit, Folds, Request};
use super::resume::ResumeWriter;
use super::shelf::Shelf;
use super::status::{PublisherState, PublisherStatus};
use crate::delta::{Reason, StreamId};
use crate::snapshot::Epoch;
use bulk::{Fold, Standing, Upkeep};
use following::Noticed;
use server_time::ServerTime;

/// The first wait after a failure; each further one is twice as long.
const FIRST_BACK_OFF: Duration = Duration::from_millis(20);

/// What one turn may use.
pub(super) struct Turn<'a> {
    pub(super) now: Instant,
    pub(super) journal: &'a dyn OwnerJournal,
    pub(super) random: &'a mut dyn Rng,
    /// Bytes of chunks that may still go with this turn's requests.
    pub(super) room: &'a mut usize,
}

/// The publisher of one owner.
#[derive(Debug)]
pub(super) struct OwnerPublisher {
    id: EndpointId,
    slot: OwnerSlot,
    options: PublisherOptions,
    phase: Phase,
    /// Whether the agent hears what the engine does.
    heard: bool,
    shelf: Shelf,
    life: Option<u64>,
    /// Whether the engine began a new life that Redis was not told of.
    reset: bool,
    block_size: Option<BlockSize>,
    completeness: Completeness,
    epoch: Epoch,
    generation: u64,
    /// The last number given to a delta, and the last one that Redis confirmed.
    seq: u64,
    confirmed: u64,
    last_id: StreamId,
    unconfirmed: VecDeque<Pending>,
    fold: Fold,
    standing: Standing,
    server: ServerTime,
    upkeep: Upkeep,
    resume: ResumeWriter,
    /// Chunks of the generation that was there when we got the lease.
    found: Option<(u64, u32)>,
    next_ask: Instant,
    next_heartbeat: Instant,
    not_before: Instant,
    back_off: Duration,
    lease_until: Option<Instant>,
    counts: Counts,
}

/// What a publisher is about.
#[derive(Debug)]
enum Phase {
    /// Wants the lease; the word for it in the status.
    Asking(PublisherState),
    /// Has the lease and must say what the owner holds.
    Reading,
    /// Writes chunks; the next one.
    Publishing {
        next: u32,
    },
    Following,
    Released,
}

/// A delta that Redis has not confirmed.
#[derive(Clone, Debug)]
struct Pending {
    seq: u64,
    changes: Bytes,
    blocks: u64,
    completeness: Completeness,
    since: Instant,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    snapshots: u64,
    folds: u64,
    losses: u64,
    fenced: u64,
    overflows: u64,
    failures: u64,
    last_error: Option<String>,
}

impl OwnerPublisher {
    pub(super) fn new(id: EndpointId, slot: OwnerSlot, options: PublisherOptions, now: Instant) -> Self {
        Self {
            id,
            slot,
            options,
            phase: Phase::Asking(PublisherState::Asking),
            heard: true,
            shelf: Shelf::new(),
            life: None,
            reset: false,
            block_size: None,
            completeness: Completeness::Partial,
            epoch: Epoch(0),
            generation: 0,
            seq: 0,
            confirmed: 0,
            last_id: StreamId::START,
            unconfirmed: VecDeque::new(),
            fold: Fold::default(),
            standing: Standing::default(),
            server: ServerTime::default(),
            upkeep: Upkeep::new(now),
            resume: ResumeWriter::default(),
            found: None,
            next_ask: now,
            next_heartbeat: now,
            not_before: now,
            back_off: FIRST_BACK_OFF,
            lease_until: None,
            counts: Counts::default(),
        }
    }

    /// What to ask now. Called again only after the answers were given to [`answered`](Self::answered).
    pub(super) fn poll(&mut self, turn: &mut Turn<'_>) -> Vec<Request> {
        // Who does not hear the engine leaves the owner to another agent, or to nobody.
        if turn.now < self.not_before || !(self.heard || self.is_following()) {
            return Vec::new();
        }
        match self.phase {
            Phase::Asking(_) if turn.now >= self.next_ask => vec![Request::Acquire],
            Phase::Asking(_) | Phase::Released => Vec::new(),
            Phase::Reading => self.read(turn),
            Phase::Publishing { .. } => self.publish(turn),
            Phase::Following => self.follow(turn),
        }
    }

    /// When something is due even if nothing changes.
    pub(super) fn due(&self) -> Instant {
        let due = match self.phase {
            Phase::Asking(_) => self.next_ask,
            Phase::Reading | Phase::Publishing { .. } => self.not_before,
            Phase::Following => self.next_heartbeat,
            Phase::Released => self.not_before + Duration::from_secs(3600),
        };
        due.max(self.not_before)
    }

    /// Whether changes have to be looked for.
    pub(super) fn is_following(&self) -> bool {
        matches!(self.phase, Phase::Following)
    }

    /// Whether Redis has all that was taken from the journal.
    pub(super) fn is_flushed(&self) -> bool {
        matches!(self.phase, Phase::Following) && self.unconfirmed.is_empty()
    }

    /// What became of the requests of the last [`poll`](Self::poll), in their order.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        random: &mut dyn Rng,
        requests: &[Request],
        answers: &[Answer],
    ) {
        for (request, answer) in requests.iter().zip(answers) {
            match *answer {
                Answer::Failed(error) => {
                    self.fail(now, random, error);
                    self.distrust(requests, error);
                    self.reclaim(requests);
                    return;
                }
                Answer::Fenced => {
                    self.counts.fenced += 1;
                    return self.stand_by(now, self.options.lease / 3, PublisherState::StandingBy);
                }
                Answer::Lost { emptied } => return self.lose(now, random, emptied),
                Answer::Held(left) => {
                    // A moment later than it ends, so that the next question is the last.
                    let wait = (left + Duration::from_millis(20)).min(self.options.lease / 3);
                    return self.stand_by(now, wait, PublisherState::StandingBy);
                }
                Answer::OtherSchema => {
                    return self.stand_by(now, self.options.lease, PublisherState::OtherSchema);
                }
                Answer::Acquired(found) => self.acquired(now, found),
                Answer::Beaten(beaten) => self.beaten(now, beaten),
                Answer::Done(id) => self.done(now, request, id),
                Answer::Added { id, first, length } => {
                    self.done(now, request, Some(id));
                    self.look_at_stream(now, first, id, length);
                }
                Answer::Missing => self.missing(request),
            }
        }
        self.back_off = FIRST_BACK_OFF;
    }

    /// Gives the lease up; the requests to do so.
    pub(super) fn release(&mut self) -> Vec<Request> {
        let writes = matches!(self.phase, Phase::Following | Phase::Publishing { .. } | Phase::Reading);
        self.phase = Phase::Released;
        if writes { vec![Request::Release { left: self.options.lease / 2 }] } else { Vec::new() }
    }

    /// Takes a resume state to be stored in place of the one before.
    pub(super) fn set_resume_state(&mut self, state: Bytes) {
        self.resume.set(state);
    }

    fn acquired(&mut self, now: Instant, found: Option<(u64, u32)>) {
        self.next_ask = now + self.options.lease / 3;
        if let Phase::Asking(_) = self.phase {
            self.found = found;
            self.phase = Phase::Reading;
        }
    }

    /// Reads what the owner holds, and begins to publish it.
    fn read(&mut self, turn: &mut Turn<'_>) -> Vec<Request> {
        turn.journal.record(self.slot, self.options.most_changes);
        if matches!(self.take(turn.journal), Noticed::Unknown) {
            // The index does not know the owner yet.
            self.not_before = turn.now + Duration::from_millis(100);
            return Vec::new();
        }
        self.begin(turn)
    }

    /// A new epoch begins with what the shelf holds.
    fn begin(&mut self, turn: &mut Turn<'_>) -> Vec<Request> {
        self.abandon();
        self.shelf.spread_out();
        self.epoch = Epoch(turn.random.next_u64());
        self.generation = turn.random.next_u64() | 1;
        self.standing.distrusted = false;
        self.phase = Phase::Publishing { next: 0 };
        self.publish(turn)
    }

    fn publish(&mut self, turn: &mut Turn<'_>) -> Vec<Request> {
        let Phase::Publishing { next } = self.phase else { return Vec::new() };
        let mut requests = Vec::new();
        if turn.now >= self.next_ask {
            requests.push(Request::Acquire);
        }
        for index in next..self.shelf.chunks() {
            if *turn.room == 0 {
                return requests;
            }
            requests.push(self.write_chunk(self.generation, index, turn.room));
        }
        if next == self.shelf.chunks() {
            requests.push(Request::Commit(Commit {
                epoch: self.epoch,
                reason: if self.reset { Reason::Reset } else { Reason::Snapshot },
                generation: self.generation,
                chunks: self.shelf.chunks(),
                blocks: self.shelf.blocks() as u64,
                block_size: self.block_size,
                completeness: self.completeness,
            }));
        }
        requests
    }

    fn committed(&mut self, now: Instant, id: StreamId) {
        self.phase = Phase::Following;
        (self.seq, self.confirmed, self.last_id) = (0, 0, id);
        self.reset = false;
        self.counts.snapshots += 1;
        self.standing.folds = Folds::default();
        self.lease_until = Some(now + self.options.lease);
        self.next_heartbeat = now + self.options.lease / 4;
        if let Some((generation, chunks)) = self.found.take() {
            self.stray(generation, chunks);
        }
        self.settle(self.generation, self.shelf.chunks());
        self.upkeep.rest(now);
    }
}
