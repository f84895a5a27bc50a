//! What must not be believed: chunks of failed rounds, folds that were lost, engines that are not heard.

use super::*;
use crate::publish::request::Folds;

const FAILED: Answer = Answer::Failed(StoreError::TimedOut);

impl Rig {
    /// A publisher of sixteen chunks, with a delta that they do not have.
    fn large() -> Self {
        let mut rig = Self::new();
        rig.change(0..60_000, true);
        rig.poll(&["acquire"]);
        rig.good();
        while !rig.machine.is_following() {
            rig.words();
            rig.good();
        }
        assert_eq!(rig.machine.status(rig.now).chunks, 16);
        rig.poll(&[]);
        rig.change(60_000..60_001, true);
        rig.poll(&["delta 1"]);
        rig.good();
        rig
    }

    /// The generations of the chunks that are written.
    fn generations(&self) -> Vec<u64> {
        let generation = |request: &Request| match request {
            Request::Chunk { generation, .. } => Some(*generation),
            _ => None,
        };
        let mut generations: Vec<u64> = self.asked.iter().filter_map(generation).collect();
        generations.dedup();
        generations
    }

    fn folds(&self) -> Option<Folds> {
        self.asked.iter().find_map(|request| match request {
            Request::Heartbeat { folds, .. } | Request::Fold(Folded { folds, .. }) => Some(*folds),
            _ => None,
        })
    }

    /// Goes on until nothing is to be done; all words.
    fn finish(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let words = self.words();
            if words.is_empty() {
                return all;
            }
            all.extend(words);
            self.good();
        }
    }
}

fn count(words: &[String], start: &str) -> usize {
    words.iter().filter(|word| word.starts_with(start)).count()
}

#[test]
fn a_chunk_that_may_still_be_on_its_way_is_never_written_again() {
    let mut rig = Rig::large();
    let before = rig.machine.generation;
    rig.wait(Duration::from_secs(15));
    let words = rig.words();
    assert_eq!((count(&words, "chunk"), rig.generations()), (1, vec![before]));
    let answers: Vec<Answer> = words.iter().map(|_| FAILED).collect();
    rig.answer(&answers);
    rig.wait(Duration::from_secs(1));
    let words = rig.words();
    let after = rig.generations();
    assert!(after.len() == 1 && after != [before], "{words:?}");
    rig.good();
    // It is another fold than the one that was given up.
    let words = rig.finish();
    assert_eq!((count(&words, "fold 1 of 16"), count(&words, "drop")), (1, 16), "{words:?}");
    assert_eq!(rig.machine.standing.folds, Folds { confirmed: 2, asked: 2 });
}

#[test]
fn a_fold_begins_anew_when_any_round_fails_while_it_runs() {
    let mut rig = Rig::large();
    rig.wait(Duration::from_secs(15));
    rig.words();
    rig.good();
    // The chunk is confirmed; then the server is another one, perhaps without it.
    let words = rig.words();
    assert_eq!((words.len(), count(&words, "fold 1")), (1, 1));
    assert_eq!(rig.folds(), Some(Folds { confirmed: 0, asked: 1 }));
    rig.answer(&[FAILED]);
    rig.wait(Duration::from_secs(3));
    let words = rig.words();
    // The fold may have been carried out.
    assert_eq!(rig.folds(), Some(Folds { confirmed: 0, asked: 2 }), "{words:?}");
    assert_eq!(count(&words, "chunk"), 16);
    let given_up = rig.machine.generation;
    rig.answer(&words.iter().map(|_| FAILED).collect::<Vec<_>>());
    rig.wait(Duration::from_secs(1));
    let words = rig.finish();
    // What was published, and both that were begun, are let go; the last one stays.
    assert_eq!((count(&words, "fold 1"), count(&words, "drop")), (1, 32), "{words:?}");
    assert_ne!(rig.machine.generation, given_up);
}

#[test]
fn the_first_fold_after_a_failed_publication_is_of_another_generation() {
    let mut rig = Rig::new();
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.answer(&[FAILED]);
    rig.wait(Duration::from_secs(1));
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit snapshot 0"]);
    rig.good();
    let published = rig.machine.generation;
    for (seq, same) in [(1, false), (2, true)] {
        rig.change(seq..seq + 1, true);
        rig.words();
        rig.good();
        rig.wait(Duration::from_secs(15));
        let before = rig.machine.generation;
        let words = rig.finish();
        assert_eq!(count(&words, &format!("fold {seq}")), 1, "{words:?}");
        assert_eq!(rig.machine.generation == before, same);
    }
    assert_ne!(rig.machine.generation, published);
}

#[test]
fn a_new_life_lets_all_chunks_of_the_one_before_go() {
    let mut rig = Rig::large();
    rig.journal.0.lock().life = 2;
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit reset 0"]);
    rig.good();
    let words = rig.finish();
    assert_eq!((words.len(), count(&words, "drop")), (16, 16));
}

#[test]
fn a_heartbeat_says_which_folds_the_server_must_have() {
    let mut rig = Rig::large();
    rig.wait(Duration::from_secs(3));
    rig.poll(&["heartbeat 1"]);
    assert_eq!(rig.folds(), Some(Folds::default()));
    rig.good();
    rig.wait(Duration::from_secs(13));
    rig.finish();
    rig.wait(Duration::from_secs(3));
    rig.poll(&["heartbeat 1"]);
    assert_eq!(rig.folds(), Some(Folds { confirmed: 1, asked: 1 }));
    rig.answer(&[Answer::Lost { emptied: false }]);
    rig.poll(&["acquire"]);
    rig.answer(&[Answer::Acquired(Some((7, 16)))]);
    rig.words();
    rig.good();
    let words = rig.finish();
    // Those that the head named, and those that it was to name.
    assert_eq!((count(&words, "commit"), count(&words, "drop")), (1, 32), "{words:?}");
    rig.wait(Duration::from_secs(3));
    rig.poll(&["heartbeat 0"]);
    assert_eq!(rig.folds(), Some(Folds::default()));
}

#[test]
fn who_does_not_hear_the_engine_lets_the_lease_run_out() {
    let mut rig = Rig::following();
    rig.machine.set_heard(rig.now, false);
    rig.is(PublisherState::Unheard);
    rig.wait(LEASE);
    rig.poll(&[]);
    assert_eq!(rig.machine.status(rig.now).lease_left_ms, 0);
    // What is still told is passed on, which renews nothing.
    rig.journal.0.lock().completeness = Completeness::Partial;
    rig.poll(&["delta 1"]);
    rig.good();
    // The heartbeat tells whether the owner is still ours.
    rig.machine.set_heard(rig.now, true);
    rig.poll(&["heartbeat 1"]);
    rig.answer(&[Answer::Fenced]);
    rig.is(PublisherState::StandingBy);
}

#[test]
fn who_does_not_hear_the_engine_does_not_become_its_writer() {
    let mut rig = Rig::new();
    rig.machine.set_heard(rig.now, false);
    rig.wait(LEASE);
    rig.poll(&[]);
    rig.machine.set_heard(rig.now, true);
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.machine.set_heard(rig.now, false);
    rig.poll(&[]);
    rig.machine.set_heard(rig.now, true);
    // First of all it asks again.
    rig.poll(&["acquire", "commit snapshot 0"]);
}

#[test]
fn a_busy_stream_is_noticed_with_each_delta() {
    let mut rig = Rig::following();
    let added = |rig: &mut Rig, seq: u64, kept_ms: u64| {
        rig.change(seq..seq + 1, true);
        let words = rig.words();
        let (first, id) = (StreamId { ms: 100_000, seq: 0 }, StreamId { ms: 100_000 + kept_ms, seq: 0 });
        rig.answer(&[Answer::Added { id, first, length: 8000 }]);
        words
    };
    assert_eq!(added(&mut rig, 1, 1000), ["delta 1"]);
    rig.wait(Duration::from_millis(400));
    assert_eq!(added(&mut rig, 2, 1000), ["delta 2"]);
    rig.poll(&[]);
    rig.wait(Duration::from_millis(101));
    assert_eq!(added(&mut rig, 3, 1000), ["delta 3"]);
    rig.poll(&["chunk 0"]);
}

#[test]
fn after_starting_over_all_is_read_and_published_anew() {
    let mut rig = Rig::following();
    rig.change(0..5, true);
    rig.poll(&["delta 1"]);
    rig.machine.start_over(rig.now);
    rig.asked.clear();
    rig.change(0..5, true);
    rig.poll(&["acquire"]);
    rig.good();
    rig.poll(&["chunk 0"]);
    rig.good();
    rig.poll(&["commit snapshot 5"]);
    rig.good();
    assert_eq!(rig.machine.status(rig.now).snapshots, 2);
    rig.machine.release();
    rig.machine.start_over(rig.now);
    rig.is(PublisherState::Released);
}
