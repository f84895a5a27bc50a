//! Sending what changes, once the content is there.

use std::time::Instant;

use bytes::Bytes;
use kvasir_core::{BlockChange, OwnerChanges, OwnerJournal};

use super::{OwnerPublisher, Pending, Phase, Request, Turn};
use crate::delta::{MOST_CHANGES, StreamId, encode_changes};
use crate::publish::request::Beaten;

/// Deltas of one owner in one round trip: 150 kB at most.
const MOST_DELTAS: usize = 32;

/// What the journal said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Noticed {
    /// It does not know the owner.
    Unknown,
    /// The shelf has these changes now; `true`: the owner's completeness is another.
    Changes(Vec<BlockChange>, bool),
    /// The shelf's content is not what it was with changes: it has to be published as a whole.
    Anew,
}

impl OwnerPublisher {
    /// Takes from the journal what it has, into the shelf.
    pub(super) fn take(&mut self, journal: &dyn OwnerJournal) -> Noticed {
        if self.life.is_none() {
            return self.take_whole(journal);
        }
        let Some(taken) = journal.take_changes(self.slot) else { return Noticed::Unknown };
        if taken.overflowed {
            self.counts.overflows += 1;
            return self.take_whole(journal);
        }
        self.take_changes(taken)
    }

    fn take_changes(&mut self, taken: OwnerChanges) -> Noticed {
        let mut anew = false;
        if self.life != Some(taken.life) {
            self.life = Some(taken.life);
            self.reset = true;
            self.shelf = super::Shelf::new();
            anew = true;
        }
        // All hashes are others with another block size.
        anew |= std::mem::replace(&mut self.block_size, taken.block_size) != taken.block_size;
        let other = std::mem::replace(&mut self.completeness, taken.completeness) != taken.completeness;
        for change in &taken.changes {
            self.shelf.apply(change);
        }
        if anew { Noticed::Anew } else { Noticed::Changes(taken.changes, other) }
    }

    fn take_whole(&mut self, journal: &dyn OwnerJournal) -> Noticed {
        let Some(content) = journal.content(self.slot) else { return Noticed::Unknown };
        self.reset |= self.life.is_some_and(|life| life != content.life);
        self.life = Some(content.life);
        self.block_size = content.block_size;
        self.completeness = content.completeness;
        self.shelf.replace(&content);
        Noticed::Anew
    }

    pub(super) fn follow(&mut self, turn: &mut Turn<'_>) -> Vec<Request> {
        if self.unconfirmed.is_empty() {
            self.start_fold(turn);
            match self.take(turn.journal) {
                Noticed::Unknown => {}
                Noticed::Anew => return self.begin(turn),
                Noticed::Changes(changes, other) => self.number(turn.now, &changes, other),
            }
        }
        let mut requests: Vec<Request> =
            self.unconfirmed.iter().take(MOST_DELTAS).map(|pending| self.delta(pending)).collect();
        let all_sent = requests.len() == self.unconfirmed.len();
        if self.heard && all_sent && turn.now >= self.next_heartbeat {
            requests.push(Request::Heartbeat {
                epoch: self.epoch,
                seq: self.seq,
                folds: self.standing.folds,
                tidy: self.server.tidy(turn.now),
            });
        }
        self.go_on_folding(turn, &mut requests);
        self.keep_up(turn, &mut requests);
        requests
    }

    /// Makes deltas of changes.
    fn number(&mut self, now: Instant, changes: &[BlockChange], other_completeness: bool) {
        let blocks = self.shelf.blocks() as u64;
        let mut push = |changes: &[BlockChange]| {
            self.seq += 1;
            self.unconfirmed.push_back(Pending {
                seq: self.seq,
                changes: Bytes::from(encode_changes(self.completeness, changes)),
                blocks,
                completeness: self.completeness,
                since: now,
            });
        };
        if changes.is_empty() && other_completeness {
            push(&[]);
        }
        changes.chunks(MOST_CHANGES).for_each(&mut push);
        self.fold.changed(now, changes.len(), !self.unconfirmed.is_empty());
    }

    fn delta(&self, pending: &Pending) -> Request {
        Request::Delta {
            epoch: self.epoch,
            seq: pending.seq,
            changes: pending.changes.clone(),
            blocks: pending.blocks,
            completeness: pending.completeness,
        }
    }

    /// A request was carried out.
    pub(super) fn done(&mut self, now: Instant, request: &Request, id: Option<StreamId>) {
        match request {
            Request::Delta { seq, .. } => {
                self.confirmed = *seq;
                self.last_id = id.unwrap_or(self.last_id);
                while self.unconfirmed.front().is_some_and(|pending| pending.seq <= *seq) {
                    self.unconfirmed.pop_front();
                }
            }
            Request::Chunk { index, .. } => match &mut self.phase {
                Phase::Publishing { next } if *next == *index => *next += 1,
                _ => self.fold.written(),
            },
            Request::Commit(_) => self.committed(now, id.unwrap_or(self.last_id)),
            Request::Fold(folded) => self.folded(folded),
            Request::ResumePart { .. } => self.resume.written(),
            Request::ResumeCommit { .. } => {
                let old = self.resume.committed();
                self.upkeep.drop_resume(old);
            }
            _ => {}
        }
    }

    /// The lease was renewed.
    pub(super) fn beaten(&mut self, now: Instant, beaten: Beaten) {
        self.lease_until = Some(now + self.options.lease);
        self.next_heartbeat = now + self.options.lease / 4;
        self.server.tell(now, &beaten);
        if let (Some(first), Some(last)) = (beaten.first, beaten.last) {
            self.look_at_stream(now, first, last, beaten.length);
        }
    }

    /// Deltas in the older half of a stream that is bounded by its length are folded before they are cut off.
    pub(super) fn look_at_stream(&mut self, now: Instant, first: StreamId, last: StreamId, length: u64) {
        let Some(since) = self.fold.since() else { return };
        if length >= u64::from(self.options.most_deltas) / 2 {
            let kept = u128::from(last.ms.saturating_sub(first.ms));
            if 2 * now.saturating_duration_since(since).as_millis() > kept {
                self.fold.hurry();
            }
        }
    }

    /// A key was not there.
    pub(super) fn missing(&mut self, request: &Request) {
        match request {
            Request::KeepChunk { generation, index } if *generation == self.generation => {
                // The server evicted it; the next fold writes it again.
                self.shelf.mark(*index);
                self.fold.hurry();
            }
            Request::KeepResume { id, .. } => self.resume.lost(*id),
            _ => {}
        }
    }

    /// After a failure: what was not confirmed is asked again.
    pub(super) fn reclaim(&mut self, requests: &[Request]) {
        for request in requests {
            match request {
                Request::Chunk { index, .. } if self.is_following() => {
                    self.shelf.mark(*index);
                    self.fold.again(*index);
                }
                Request::KeepChunk { .. }
                | Request::DropChunk { .. }
                | Request::KeepResume { .. }
                | Request::DropResume { .. } => self.upkeep.again(request.clone()),
                Request::ResumePart { .. } | Request::ResumeCommit { .. } => self.resume.again(),
                _ => {}
            }
        }
        self.fold.reclaimed();
    }
}
