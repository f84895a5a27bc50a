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
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::{BlockSize, Completeness, EndpointId, OwnerJournal, OwnerSlot};
use rand::{Rng, RngExt};

use super::PublisherOptions;
use super::request::{Answer, Commit, Request};
use super::resume::ResumeWriter;
use super::shelf::Shelf;
use super::status::{PublisherState, PublisherStatus};
use crate::connection::StoreError;
use crate::delta::{Reason, StreamId};
use crate::snapshot::Epoch;
use bulk::{Fold, Upkeep};
use following::Noticed;

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
        if turn.now < self.not_before {
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

    pub(super) fn status(&self, now: Instant) -> PublisherStatus {
        let millis = |duration: Duration| duration.as_millis() as u64;
        PublisherStatus {
            owner: self.id.clone(),
            state: match self.phase {
                Phase::Asking(state) => state,
                Phase::Reading | Phase::Publishing { .. } => PublisherState::Publishing,
                Phase::Following => PublisherState::Following,
                Phase::Released => PublisherState::Released,
            },
            epoch: self.epoch,
            seq: self.confirmed,
            blocks: self.shelf.blocks(),
            chunks: self.shelf.chunks(),
            lease_left_ms: self.lease_until.map_or(0, |until| millis(until.saturating_duration_since(now))),
            unconfirmed: self.unconfirmed.len(),
            lag_ms: self
                .unconfirmed
                .front()
                .map_or(0, |oldest| millis(now.saturating_duration_since(oldest.since))),
            snapshots: self.counts.snapshots,
            folds: self.counts.folds,
            losses: self.counts.losses,
            fenced: self.counts.fenced,
            overflows: self.counts.overflows,
            failures: self.counts.failures,
            last_error: self.counts.last_error.clone(),
        }
    }

    fn acquired(&mut self, now: Instant, found: Option<(u64, u32)>) {
        self.next_ask = now + self.options.lease / 3;
        if let Phase::Asking(_) = self.phase {
            self.found = found;
            self.phase = Phase::Reading;
        }
    }

    fn stand_by(&mut self, now: Instant, wait: Duration, state: PublisherState) {
        if !matches!(self.phase, Phase::Asking(known) if known == state) {
            tracing::warn!(owner = %self.id, state = state.as_str(), "not the writer of this owner");
        }
        self.phase = Phase::Asking(state);
        self.next_ask = now + wait;
        self.lease_until = None;
        self.abandon();
        self.resume.restart();
    }

    /// Redis has not what we left there.
    fn lose(&mut self, now: Instant, random: &mut dyn Rng, emptied: bool) {
        self.counts.losses += 1;
        tracing::warn!(owner = %self.id, emptied, "Redis lost what was published; publishing it anew");
        self.phase = Phase::Asking(PublisherState::Asking);
        // Every agent notices an emptied store at the same time.
        let wait = if emptied {
            self.options.spread.mul_f64(random.random_range(0.0..=1.0))
        } else {
            Duration::ZERO
        };
        self.next_ask = now + wait;
        self.lease_until = None;
        self.abandon();
        self.resume.restart();
    }

    /// What was on its way belongs to an epoch that is over.
    fn abandon(&mut self) {
        self.unconfirmed.clear();
        self.fold = Fold::default();
        self.upkeep.clear();
    }

    fn fail(&mut self, now: Instant, random: &mut dyn Rng, error: StoreError) {
        self.counts.failures += 1;
        self.counts.last_error = Some(error.to_string());
        self.not_before = now + self.back_off.mul_f64(random.random_range(0.5..=1.0));
        self.back_off = (self.back_off * 2).min(self.options.longest_back_off);
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
        if self.found.is_none() && self.generation != 0 {
            self.found = Some((self.generation, self.shelf.chunks()));
        }
        self.shelf.spread_out();
        self.epoch = Epoch(turn.random.next_u64());
        self.generation = turn.random.next_u64() | 1;
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
        self.lease_until = Some(now + self.options.lease);
        self.next_heartbeat = now + self.options.lease / 4;
        if let Some((generation, chunks)) = self.found.take()
            && generation != self.generation
        {
            self.upkeep.drop_generation(generation, chunks);
        }
        self.upkeep.rest(now);
    }
}
