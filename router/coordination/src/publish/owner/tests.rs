//! One test for each rule: time and answers in, requests out.

use std::sync::Arc;

use kvasir_core::{BlockChange, BlockHash, HeldOn, OwnerChanges, OwnerContent};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::connection::{Refusal, StoreError};
use crate::publish::request::{Beaten, Folded};

mod troubles;

/// A journal that says what a test put there.
struct Journal(Mutex<OwnerChanges>);

impl OwnerJournal for Journal {
    fn record(&self, _: OwnerSlot, _: usize) {}

    fn take_changes(&self, _: OwnerSlot) -> Option<OwnerChanges> {
        let mut next = self.0.lock();
        let empty = OwnerChanges { overflowed: false, changes: Vec::new(), ..next.clone() };
        Some(std::mem::replace(&mut *next, empty))
    }

    fn content(&self, slot: OwnerSlot) -> Option<OwnerContent> {
        let taken = self.take_changes(slot)?;
        let gpu = taken.changes.iter().filter(|change| change.held).map(|change| change.block).collect();
        Some(OwnerContent {
            life: taken.life,
            block_size: taken.block_size,
            completeness: taken.completeness,
            gpu,
            other_tiers: Vec::new(),
        })
    }
}

/// A publisher with its time, and what it asked last.
struct Rig {
    machine: OwnerPublisher,
    journal: Arc<Journal>,
    random: StdRng,
    now: Instant,
    asked: Vec<Request>,
    entries: u64,
}

const LEASE: Duration = Duration::from_secs(10);

impl Rig {
    fn new() -> Self {
        let now = Instant::now();
        let changes = OwnerChanges {
            life: 1,
            block_size: BlockSize::new(16),
            completeness: Completeness::Exact,
            overflowed: false,
            changes: Vec::new(),
        };
        let id = EndpointId::new("ns", "a", 1, 0);
        Self {
            machine: OwnerPublisher::new(id, OwnerSlot(0), PublisherOptions::default(), now),
            journal: Arc::new(Journal(Mutex::new(changes))),
            random: StdRng::seed_from_u64(1),
            now,
            asked: Vec::new(),
            entries: 0,
        }
    }

    /// A publisher that published an empty owner.
    fn following() -> Self {
        let mut rig = Self::new();
        rig.poll(&["acquire"]);
        rig.good();
        rig.poll(&["chunk 0"]);
        rig.good();
        rig.poll(&["commit snapshot 0"]);
        rig.good();
        rig
    }

    fn change(&self, blocks: impl IntoIterator<Item = u64>, held: bool) {
        let change = |block: u64| BlockChange {
            block: BlockHash(block.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            on: HeldOn::Gpu,
            held,
        };
        self.journal.0.lock().changes.extend(blocks.into_iter().map(change));
    }

    fn words(&mut self) -> Vec<String> {
        let mut room = 1 << 20;
        let mut turn =
            Turn { now: self.now, journal: &*self.journal, random: &mut self.random, room: &mut room };
        self.asked = self.machine.poll(&mut turn);
        let word = |request: &Request| match request {
            Request::Acquire => "acquire".to_owned(),
            Request::Chunk { index, .. } => format!("chunk {index}"),
            Request::Commit(commit) => format!("commit {} {}", commit.reason.as_str(), commit.blocks),
            Request::Delta { seq, .. } => format!("delta {seq}"),
            Request::Fold(Folded { floor, chunks, .. }) => format!("fold {floor} of {chunks}"),
            Request::Heartbeat { seq, .. } => format!("heartbeat {seq}"),
            Request::KeepChunk { index, .. } => format!("keep {index}"),
            Request::DropChunk { index, .. } => format!("drop {index}"),
            Request::Release { .. } => "release".to_owned(),
            other => format!("{other:?}"),
        };
        self.asked.iter().map(word).collect()
    }

    #[track_caller]
    fn poll(&mut self, words: &[&str]) {
        assert_eq!(self.words(), words);
    }

    fn answer(&mut self, answers: &[Answer]) {
        let asked = std::mem::take(&mut self.asked);
        self.machine.answered(self.now, &mut self.random, &asked, answers);
    }

    /// Everything went well.
    fn good(&mut self) {
        let mut answers = Vec::new();
        for request in &self.asked {
            self.entries += 1;
            answers.push(match request {
                Request::Acquire => Answer::Acquired(None),
                Request::Commit(_) | Request::Delta { .. } => {
                    Answer::Done(Some(StreamId { ms: self.entries, seq: 0 }))
                }
                Request::Heartbeat { .. } => {
                    Answer::Beaten(Beaten { first: None, last: None, length: 1, now: 1 })
                }
                _ => Answer::Done(None),
            });
        }
        self.answer(&answers);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    #[track_caller]
    fn is(&self, state: PublisherState) {
        assert_eq!(self.machine.status(self.now).state, state);
    }
}

#[test]
fn changes_follow_the_content_in_order() {
    let mut rig = Rig::following();
    rig.poll(&[]);
    rig.change(0..3, true);
    rig.poll(&["delta 1"]);
    rig.good();
    rig.change(0..1200, true);
    rig.poll(&["delta 2", "delta 3", "delta 4"]);
    rig.good();
    assert_eq!(rig.machine.status(rig.now).seq, 4);
    assert_eq!(rig.machine.status(rig.now).blocks, 1200);
}

#[test]
fn what_was_not_confirmed_is_sent_again() {
    let mut rig = Rig::following();
    rig.change(0..1200, true);
    rig.poll(&["delta 1", "delta 2", "delta 3"]);
    let failed = Answer::Failed(StoreError::TimedOut);
    rig.answer(&[Answer::Done(Some(StreamId { ms: 9, seq: 0 })), failed, failed]);
    // Not before the back-off, and no heartbeat that would say that all is well.
    rig.poll(&[]);
    rig.wait(LEASE);
    rig.change(5000..5001, true);
    rig.poll(&["delta 2", "delta 3", "heartbeat 3"]);
    rig.answer(&[failed; 3]);
    rig.wait(LEASE);
    rig.poll(&["delta 2", "delta 3", "heartbeat 3"]);
    rig.good();
    // The first ones are old by now, so their chunk is written as well.
    rig.poll(&["delta 4", "chunk 0"]);
    assert_eq!(rig.machine.status(rig.now).failures, 2);
}

#[test]
fn back_off_grows_to_its_limit_and_ends_with_success() {
    let mut rig = Rig::new();
    let mut waits = Vec::new();
    for _ in 0..12 {
        rig.poll(&["acquire"]);
        rig.answer(&[Answer::Failed(StoreError::Unreachable)]);
        let due = rig.machine.due().saturating_duration_since(rig.now);
        waits.push(due);
        rig.wait(due);
    }
    assert!(waits[0] <= FIRST_BACK_OFF && waits[0] >= FIRST_BACK_OFF / 2);
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(2)) && waits[11] >= Duration::from_secs(1));
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.answer(&[Answer::Failed(StoreError::Unreachable)]);
    assert!(rig.machine.due() <= rig.now + FIRST_BACK_OFF);
}

#[test]
fn another_writer_is_stood_by() {
    let mut rig = Rig::new();
    rig.poll(&["acquire"]);
    rig.answer(&[Answer::Held(Duration::from_secs(9))]);
    rig.is(PublisherState::StandingBy);
    rig.poll(&[]);
    rig.wait(LEASE / 3);
    rig.poll(&["acquire"]);
    rig.answer(&[Answer::Held(Duration::from_millis(500))]);
    rig.wait(Duration::from_millis(520));
    rig.poll(&["acquire"]);
    rig.good();
    rig.is(PublisherState::Publishing);
}

#[test]
fn who_was_fenced_stands_by_and_publishes_all_anew_later() {
    let mut rig = Rig::following();
    rig.change(0..600, true);
    rig.poll(&["delta 1", "delta 2"]);
    rig.answer(&[Answer::Fenced, Answer::Fenced]);
    rig.is(PublisherState::StandingBy);
    assert_eq!(rig.machine.status(rig.now).fenced, 1);
    rig.change(600..601, true);
    rig.wait(LEASE);
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit snapshot 601"]);
}

#[test]
fn an_emptied_store_is_filled_after_a_moment_and_a_failover_at_once() {
    let mut rig = Rig::following();
    rig.change(0..5, true);
    rig.poll(&["delta 1"]);
    rig.answer(&[Answer::Lost { emptied: false }]);
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.answer(&[Answer::Lost { emptied: true }]);
    let wait = rig.machine.due().saturating_duration_since(rig.now);
    assert!(wait > Duration::ZERO && wait <= Duration::from_secs(2), "{wait:?}");
    rig.wait(wait);
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit snapshot 5"]);
    assert_eq!(rig.machine.status(rig.now).losses, 2);
}

#[test]
fn a_new_life_is_a_reset_until_redis_was_told() {
    let mut rig = Rig::following();
    rig.change(0..5, true);
    rig.poll(&["delta 1"]);
    rig.good();
    rig.journal.0.lock().life = 2;
    rig.change(7..8, true);
    rig.poll(&["chunk 0"]);
    rig.answer(&[Answer::Lost { emptied: false }]);
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit reset 1"]);
    rig.good();
    // The chunks of the life before are let go.
    rig.poll(&["drop 0"]);
}

#[test]
fn an_overflow_and_another_block_size_are_published_as_a_whole() {
    let mut rig = Rig::following();
    rig.journal.0.lock().overflowed = true;
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit snapshot 0"]);
    rig.good();
    assert_eq!(rig.machine.status(rig.now).overflows, 1);
    rig.journal.0.lock().block_size = BlockSize::new(32);
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit snapshot 0"]);
}

#[test]
fn completeness_alone_is_a_delta() {
    let mut rig = Rig::following();
    rig.journal.0.lock().completeness = Completeness::Partial;
    rig.poll(&["delta 1"]);
    let [Request::Delta { changes, .. }] = &rig.asked[..] else { panic!("no delta") };
    assert_eq!(changes[..], [1]);
}

#[test]
fn old_deltas_are_folded_and_the_floor_is_the_last_confirmed_one() {
    let mut rig = Rig::following();
    rig.change(0..5, true);
    rig.poll(&["delta 1"]);
    rig.good();
    rig.wait(Duration::from_secs(2));
    rig.change(5..6, true);
    rig.poll(&["delta 2"]);
    rig.answer(&[Answer::Failed(StoreError::TimedOut)]);
    rig.wait(Duration::from_secs(14));
    // With a delta on its way nothing is folded.
    rig.poll(&["delta 2", "heartbeat 2"]);
    rig.good();
    rig.change(6..7, true);
    rig.poll(&["delta 3", "chunk 0"]);
    rig.good();
    rig.poll(&["fold 2 of 1"]);
    rig.answer(&[Answer::Failed(StoreError::Refused(Refusal::OutOfMemory))]);
    rig.wait(Duration::from_secs(1));
    rig.poll(&["fold 2 of 1"]);
    rig.good();
    rig.poll(&[]);
    // Delta 3 is above the floor, so it is folded in its turn; its chunk has it already.
    rig.wait(Duration::from_secs(14));
    rig.poll(&["heartbeat 3", "fold 3 of 1"]);
}

#[test]
fn a_crowded_owner_is_spread_over_more_chunks() {
    let mut rig = Rig::following();
    rig.change(0..33_000, true);
    let deltas: Vec<String> = (1..=32).map(|seq| format!("delta {seq}")).collect();
    assert_eq!(rig.words(), deltas);
    rig.good();
    while rig.machine.status(rig.now).unconfirmed > 0 {
        rig.words();
        rig.good();
    }
    let mut chunks = 0;
    loop {
        let words = rig.words();
        chunks += words.iter().filter(|word| word.starts_with("chunk")).count();
        let folded = words.iter().any(|word| word == "fold 65 of 16");
        rig.good();
        if folded {
            break;
        }
    }
    assert_eq!(chunks, 16);
    rig.poll(&["drop 0"]);
    rig.good();
    assert_eq!(rig.machine.status(rig.now).chunks, 16);
}

#[test]
fn deltas_in_the_older_half_of_a_full_stream_are_folded_early() {
    let mut rig = Rig::following();
    rig.change(0..5, true);
    rig.poll(&["delta 1"]);
    rig.good();
    rig.wait(Duration::from_secs(3));
    rig.poll(&["heartbeat 1"]);
    let beaten = |kept_ms: u64| {
        Answer::Beaten(Beaten {
            first: Some(StreamId { ms: 100_000, seq: 0 }),
            last: Some(StreamId { ms: 100_000 + kept_ms, seq: 0 }),
            length: 8000,
            now: 100_000 + kept_ms,
        })
    };
    rig.answer(&[beaten(10_000)]);
    rig.poll(&[]);
    rig.wait(Duration::from_secs(3));
    rig.poll(&["heartbeat 1"]);
    rig.answer(&[beaten(10_000)]);
    rig.poll(&["chunk 0"]);
}

#[test]
fn everything_is_kept_alive_and_what_is_missing_is_written_again() {
    let mut rig = Rig::following();
    rig.wait(Duration::from_secs(60));
    rig.poll(&["heartbeat 0", "keep 0"]);
    rig.answer(&[Answer::Beaten(Beaten { first: None, last: None, length: 0, now: 1 }), Answer::Missing]);
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["fold 0 of 1"]);
}

#[test]
fn a_lease_is_renewed_while_a_large_owner_is_written() {
    let mut rig = Rig::new();
    rig.change(0..300_000, true);
    rig.poll(&["acquire"]);
    rig.good();
    // A mebibyte in a round.
    let first = rig.words().len();
    assert!((30..100).contains(&first), "{first}");
    rig.good();
    rig.wait(LEASE / 3);
    let second = rig.words();
    assert_eq!(second[..2], ["acquire".to_owned(), format!("chunk {first}")]);
}

#[test]
fn only_a_writer_releases() {
    let mut rig = Rig::new();
    assert!(rig.machine.release().is_empty());
    let mut rig = Rig::following();
    assert_eq!(rig.machine.release(), [Request::Release { left: LEASE / 2 }]);
    rig.is(PublisherState::Released);
    rig.wait(LEASE);
    rig.poll(&[]);
}
