//! Keeping the chunks near the deltas, and everything alive in Redis.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{OwnerPublisher, Request, StreamId, Turn};
use crate::connection::{Refusal, StoreError};
use crate::publish::request::{Folded, Folds};
use crate::snapshot::ChunkLabel;

/// Changes above which the chunks are brought up to date, whatever the owner's size.
const MOST_UNFOLDED: u64 = 32_768;
/// How often the expiry of everything is put off; it is kept for ten minutes.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// Generations of given up folds that are remembered; more expire by themselves.
const MOST_STRAYS: usize = 8;
/// Short commands of one turn.
const MOST_UPKEEP: usize = 64;

/// The state of bringing chunks up to date.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// Changes that are not below the floor, and since when there are any.
    changes: u64,
    since: Option<Instant>,
    hurried: bool,
    running: Option<Running>,
}

/// Chunks are being written.
#[derive(Debug)]
struct Running {
    floor: u64,
    floor_id: StreamId,
    number: u64,
    generation: u64,
    todo: VecDeque<u32>,
    unwritten: usize,
}

/// Which chunks are an owner's, beyond those of the fold that is running.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// How often the chunks of this epoch were brought up to date.
    pub(super) folds: Folds,
    /// The generation that the head names, and how many chunks it has.
    pub(super) published: Option<(u64, u32)>,
    /// Generations that were begun and given up. The head may name one of them until the next fold is confirmed.
    strays: Vec<(u64, u32)>,
    /// A chunk was sent and not confirmed. The server may carry that out at any later time, so the generation is not to
    /// be written to any more.
    pub(super) distrusted: bool,
}

/// Short commands that can wait.
#[derive(Debug)]
pub(super) struct Upkeep {
    queue: VecDeque<Request>,
    next_keep: Instant,
}

impl Fold {
    pub(super) fn changed(&mut self, now: Instant, changes: usize, any: bool) {
        self.changes += changes as u64;
        if any {
            self.since.get_or_insert(now);
        }
    }

    /// Since when there are deltas that the chunks do not cover.
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The chunks must be brought up to date soon.
    pub(super) fn hurry(&mut self) {
        self.hurried = true;
    }

    /// One chunk is written.
    pub(super) fn written(&mut self) {
        if let Some(running) = &mut self.running {
            running.unwritten = running.unwritten.saturating_sub(1);
        }
    }

    /// A chunk must be written again.
    pub(super) fn again(&mut self, index: u32) {
        if let Some(running) = &mut self.running
            && !running.todo.contains(&index)
        {
            running.todo.push_back(index);
        }
    }

    /// What is on its way is counted anew, after a failure.
    pub(super) fn reclaimed(&mut self) {
        if let Some(running) = &mut self.running {
            running.unwritten = running.todo.len();
        }
    }
}

impl Upkeep {
    pub(super) fn new(now: Instant) -> Self {
        Self { queue: VecDeque::new(), next_keep: now + KEEP_EVERY }
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Everything was just written.
    pub(super) fn rest(&mut self, now: Instant) {
        self.next_keep = now + KEEP_EVERY;
    }

    /// Lets the chunks of a generation go that nobody refers to any more.
    pub(super) fn drop_generation(&mut self, generation: u64, chunks: u32) {
        self.queue.extend((0..chunks).map(|index| Request::DropChunk { generation, index }));
    }

    /// Lets a resume state go.
    pub(super) fn drop_resume(&mut self, old: Option<(u64, u32)>) {
        if let Some((id, parts)) = old {
            self.queue.extend((0..parts).map(|index| Request::DropResume { id, index }));
        }
    }

    pub(super) fn again(&mut self, request: Request) {
        self.queue.push_back(request);
    }
}

impl OwnerPublisher {
    /// The request that writes a chunk as it is now.
    pub(super) fn write_chunk(&mut self, generation: u64, index: u32, room: &mut usize) -> Request {
        let bytes = self.shelf.encode(ChunkLabel { epoch: self.epoch, generation, index });
        *room = room.saturating_sub(bytes.len());
        Request::Chunk { generation, index, bytes: Bytes::from(bytes) }
    }

    /// Begins to bring the chunks up to date, where that is due. Only while Redis has every delta: the floor is the last
    /// one, so no delta is both above it and out of reach.
    pub(super) fn start_fold(&mut self, turn: &mut Turn<'_>) {
        let fold = &self.fold;
        let due = fold.hurried
            || fold.changes > MOST_UNFOLDED.max(self.shelf.blocks() as u64 / 2)
            || fold.since.is_some_and(|since| turn.now >= since + self.options.fold_after);
        if !due || fold.running.is_some() {
            return;
        }
        let mut generation = self.generation;
        if self.shelf.is_crowded() || self.standing.distrusted {
            self.shelf.spread_out();
            generation = turn.random.next_u64() | 1;
            self.standing.distrusted = false;
        }
        self.standing.folds.asked += 1;
        let todo: VecDeque<u32> = self.shelf.dirty().collect();
        self.fold = Fold {
            running: Some(Running {
                floor: self.confirmed,
                floor_id: self.last_id,
                number: self.standing.folds.asked,
                generation,
                unwritten: todo.len(),
                todo,
            }),
            ..Fold::default()
        };
    }

    /// The next chunks; after the last one, the new floor.
    pub(super) fn go_on_folding(&mut self, turn: &mut Turn<'_>, requests: &mut Vec<Request>) {
        let Some(mut running) = self.fold.running.take() else { return };
        if running.unwritten == 0 {
            requests.push(Request::Fold(Folded {
                epoch: self.epoch,
                folds: Folds { asked: running.number, ..self.standing.folds },
                floor: running.floor,
                floor_id: running.floor_id,
                generation: running.generation,
                chunks: self.shelf.chunks(),
            }));
        }
        while *turn.room > 0
            && let Some(index) = running.todo.pop_front()
        {
            requests.push(self.write_chunk(running.generation, index, turn.room));
        }
        self.fold.running = Some(running);
    }

    /// The floor is raised.
    pub(super) fn folded(&mut self, folded: &Folded) {
        if self.fold.running.take().is_none() {
            return;
        }
        self.counts.folds += 1;
        self.standing.folds.confirmed = folded.folds.asked;
        self.generation = folded.generation;
        self.settle(folded.generation, folded.chunks);
    }

    /// The head names these chunks: nobody needs others any more.
    pub(super) fn settle(&mut self, generation: u64, chunks: u32) {
        let before = self.standing.published.replace((generation, chunks));
        let strays = std::mem::take(&mut self.standing.strays);
        for (old, chunks) in before.into_iter().chain(strays).filter(|(old, _)| *old != generation) {
            self.upkeep.drop_generation(old, chunks);
        }
    }

    /// Chunks of another generation than the one that is written are in the way once that is published.
    pub(super) fn stray(&mut self, generation: u64, chunks: u32) {
        if self.standing.strays.len() < MOST_STRAYS {
            self.standing.strays.push((generation, chunks));
        }
    }

    /// A round failed. Chunks that were in it may be written at any later time, over newer ones; and a server that
    /// restarted or was replaced may have lost chunks that it confirmed while the fold ran. So the fold begins anew,
    /// with chunks of another generation: what is lost of those is missing, and not wrong.
    pub(super) fn distrust(&mut self, requests: &[Request], error: StoreError) {
        if error == StoreError::Refused(Refusal::OutOfMemory) {
            // It is the same server, and it did not carry them out.
            return;
        }
        if let Some(running) = self.fold.running.take() {
            self.standing.distrusted = true;
            self.fold.hurried = true;
            if running.generation != self.generation {
                self.stray(running.generation, self.shelf.chunks());
            }
        } else {
            self.standing.distrusted |=
                requests.iter().any(|request| matches!(request, Request::Chunk { .. }));
        }
    }

    /// Short commands, and the resume state.
    pub(super) fn keep_up(&mut self, turn: &mut Turn<'_>, requests: &mut Vec<Request>) {
        if turn.now >= self.upkeep.next_keep && self.fold.running.is_none() {
            self.upkeep.next_keep = turn.now + KEEP_EVERY;
            let generation = self.generation;
            let chunks = (0..self.shelf.chunks()).map(|index| Request::KeepChunk { generation, index });
            self.upkeep.queue.extend(chunks);
            if let Some((id, parts)) = self.resume.stored() {
                self.upkeep.queue.extend((0..parts).map(|index| Request::KeepResume { id, index }));
            }
        }
        let most = MOST_UPKEEP.min(self.upkeep.queue.len());
        requests.extend(self.upkeep.queue.drain(..most));
        self.resume.next(turn.random, turn.room, requests);
    }
}
