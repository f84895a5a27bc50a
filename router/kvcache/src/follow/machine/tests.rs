//! One test for each rule: inputs in, actions out.

mod laws;
mod resume;

use bytes::Bytes;

use super::*;

/// Batch `seq` of life `life` of an engine.
fn batch(life: u32, seq: u64) -> Received {
    Received::new(seq, Bytes::from(format!("{life}/{seq}")))
}

/// A follower with its time and what it did, in short words.
struct Rig {
    follower: Follower,
    now: Instant,
    applied: Vec<(u32, u64)>,
    /// What the saved state holds.
    saved: Vec<(u32, u64)>,
    log: Vec<String>,
}

impl Rig {
    fn new(has_replay: bool) -> Self {
        let now = Instant::now();
        let follower = Follower::new(Options { has_replay, ..Options::default() }, now);
        Self { follower, now, applied: Vec::new(), saved: Vec::new(), log: Vec::new() }
    }

    /// Connected, with the whole history 0..=last of life 1 read.
    fn exact(has_replay: bool, last: u64) -> Self {
        let mut rig = Self::new(has_replay);
        rig.step(Input::Connected);
        if has_replay {
            rig.step(Input::ReplayEnded { complete: true });
        }
        rig.live(1, 0..=last);
        rig.log.clear();
        rig
    }

    fn step(&mut self, input: Input) {
        for action in self.follower.step(self.now, input) {
            let word = match action {
                Action::RequestReplay { from } => format!("replay {from}"),
                Action::CancelReplay => "cancel".into(),
                Action::Apply(batch) => {
                    let text = std::str::from_utf8(&batch.payload).unwrap();
                    let life = text.split('/').next().unwrap().parse().unwrap();
                    self.applied.push((life, batch.seq));
                    format!("apply {text}")
                }
                Action::Clear { .. } => {
                    self.applied.clear();
                    "clear".into()
                }
                Action::Restore => {
                    self.applied = self.saved.clone();
                    "restore".into()
                }
                Action::DropSaved => "drop saved".into(),
                Action::SetCompleteness(completeness) => completeness.as_str().into(),
                Action::CountGap => "gap".into(),
                Action::CountRepair => "repair".into(),
                Action::Reconnect => "reconnect".into(),
            };
            self.log.push(word);
        }
    }

    fn live(&mut self, life: u32, seqs: impl IntoIterator<Item = u64>) {
        seqs.into_iter().for_each(|seq| self.step(Input::Live(batch(life, seq))));
    }

    /// The replay answers with these and its end marker.
    fn replay(&mut self, life: u32, seqs: impl IntoIterator<Item = u64>) {
        seqs.into_iter().for_each(|seq| self.step(Input::Replayed(batch(life, seq))));
        self.step(Input::ReplayEnded { complete: true });
    }

    fn fail(&mut self) {
        self.step(Input::ReplayEnded { complete: false });
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.step(Input::Tick);
    }

    #[track_caller]
    fn did(&mut self, words: &[&str]) {
        assert_eq!(std::mem::take(&mut self.log), words);
    }
}

#[test]
fn a_late_start_replays_from_the_beginning() {
    // KVE-06
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.did(&["partial", "replay 0"]);
    rig.live(1, [3, 4]);
    rig.did(&[]);
    rig.replay(1, 0..=3);
    rig.did(&["apply 1/0", "apply 1/1", "apply 1/2", "apply 1/3", "exact", "apply 1/4"]);
    rig.live(1, [5]);
    rig.did(&["apply 1/5"]);
}

#[test]
fn a_beginning_out_of_reach_makes_it_partial_for_good() {
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.replay(1, 50..=52);
    rig.did(&["partial", "replay 0", "apply 1/50", "apply 1/51", "apply 1/52", "partial"]);
    rig.wait(Duration::from_secs(8));
    rig.did(&[]);
}

#[test]
fn an_engine_that_never_published_is_exact() {
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.replay(1, []);
    rig.did(&["partial", "replay 0", "exact"]);
    rig.live(1, [0]);
    rig.did(&["exact", "apply 1/0"]);
}

#[test]
fn a_batch_missed_while_the_subscription_was_on_its_way_is_fetched() {
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.replay(1, []);
    rig.live(1, [2]);
    rig.did(&["partial", "replay 0", "exact", "replay 0"]);
    rig.replay(1, 0..=2);
    rig.did(&["apply 1/0", "apply 1/1", "apply 1/2", "exact"]);
}

#[test]
fn a_gap_is_filled_in_order_and_once() {
    // KVE-04: 0, 1, 2, then 5, 6.
    let mut rig = Rig::exact(true, 2);
    rig.live(1, [5, 6]);
    rig.did(&["gap", "replay 2"]);
    rig.replay(1, 2..=6);
    rig.did(&["apply 1/3", "apply 1/4", "apply 1/5", "apply 1/6", "repair"]);
    assert_eq!(rig.follower.completeness(), Completeness::Exact);
    assert_eq!(rig.applied, (0..=6).map(|seq| (1, seq)).collect::<Vec<_>>());
}

#[test]
fn a_gap_without_a_replay_socket_forgets_all() {
    // KVE-04
    let mut rig = Rig::exact(false, 2);
    rig.live(1, [5, 6]);
    rig.did(&["gap", "clear", "partial", "apply 1/5", "apply 1/6"]);
}

#[test]
fn a_gap_beyond_the_replay_window_forgets_all() {
    let mut rig = Rig::exact(true, 2);
    rig.live(1, [9]);
    rig.replay(1, 7..=9);
    rig.did(&["gap", "replay 2", "clear", "partial", "apply 1/7", "apply 1/8", "apply 1/9", "partial"]);
    assert_eq!(rig.applied, [(1, 7), (1, 8), (1, 9)]);
}

#[test]
fn a_restart_that_passed_the_old_number_is_noticed_by_its_last_batch() {
    // Last seen 40, restart, next 61.
    let mut rig = Rig::exact(true, 40);
    rig.live(2, [61]);
    rig.did(&["gap", "replay 40"]);
    rig.step(Input::Replayed(batch(2, 40)));
    rig.did(&["clear", "partial", "cancel", "replay 0"]);
    rig.replay(2, 0..=61);
    assert_eq!(rig.applied, (0..=61).map(|seq| (2, seq)).collect::<Vec<_>>());
    assert_eq!(rig.follower.completeness(), Completeness::Exact);
}

#[test]
fn a_reconnect_compares_the_last_batch() {
    let mut rig = Rig::exact(true, 40);
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.did(&["replay 40"]);
    rig.replay(1, 40..=42);
    rig.did(&["apply 1/41", "apply 1/42"]);
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.step(Input::Replayed(batch(2, 42)));
    rig.did(&["replay 42", "clear", "partial", "cancel", "replay 0"]);
}

#[test]
fn a_restarted_engine_behind_our_number_is_noticed_at_the_reconnect() {
    let mut rig = Rig::exact(true, 40);
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.live(2, [3]);
    rig.replay(2, []);
    rig.did(&["replay 40", "clear", "partial", "replay 0"]);
    rig.replay(2, 0..=3);
    rig.did(&["apply 2/0", "apply 2/1", "apply 2/2", "apply 2/3", "exact"]);
}

#[test]
fn a_falling_number_is_a_restart() {
    // STL-03: 0..50, then 0 with a new store; without and with a replay socket.
    for has_replay in [false, true] {
        let mut rig = Rig::exact(has_replay, 50);
        rig.live(2, [0, 1]);
        rig.did(&["clear", "exact", "apply 2/0", "apply 2/1"]);
    }
    let mut rig = Rig::exact(true, 50);
    rig.live(2, [7]);
    rig.did(&["clear", "partial", "replay 0"]);
    let mut rig = Rig::exact(false, 50);
    rig.live(2, [7]);
    rig.did(&["clear", "partial", "apply 2/7"]);
}

#[test]
fn a_redelivered_batch_is_no_restart() {
    // KVE-12
    let mut rig = Rig::exact(false, 50);
    rig.live(1, [50, 50, 3, 0, 51]);
    rig.did(&["apply 1/51"]);
}

#[test]
fn a_reconnect_without_a_replay_socket_forgets_all() {
    let mut rig = Rig::exact(false, 40);
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.did(&["clear", "partial"]);
    rig.live(1, [41]);
    rig.did(&["partial", "apply 1/41"]);
}

#[test]
fn without_a_replay_socket_batch_zero_makes_it_exact() {
    let mut rig = Rig::new(false);
    rig.step(Input::Connected);
    rig.live(1, [0]);
    rig.did(&["partial", "exact", "apply 1/0"]);
    let mut rig = Rig::new(false);
    rig.step(Input::Connected);
    rig.live(1, [4]);
    rig.did(&["partial", "partial", "apply 1/4"]);
}

#[test]
fn silence_is_probed_and_a_silent_restart_is_found() {
    let mut rig = Rig::exact(true, 5);
    rig.wait(Duration::from_secs(9));
    rig.did(&[]);
    rig.wait(Duration::from_secs(2));
    rig.did(&["replay 5"]);
    rig.replay(1, [5]);
    rig.did(&[]);
    rig.wait(Duration::from_secs(10));
    rig.replay(2, []);
    rig.did(&["replay 5", "clear", "partial", "replay 0"]);
    rig.replay(2, []);
    rig.did(&["exact"]);
    assert!(rig.applied.is_empty());
}

#[test]
fn probes_that_fail_make_a_new_connection() {
    let mut rig = Rig::exact(true, 5);
    for _ in 0..2 {
        rig.wait(Duration::from_secs(10));
        rig.fail();
        rig.did(&["replay 5"]);
    }
    rig.wait(Duration::from_secs(10));
    rig.fail();
    rig.did(&["replay 5", "reconnect"]);
    rig.step(Input::Disconnected);
    rig.step(Input::Connected);
    rig.fail();
    rig.did(&["replay 5", "clear", "partial"]);
}

#[test]
fn a_failed_first_replay_is_tried_again() {
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.live(1, [8]);
    rig.fail();
    rig.did(&["partial", "replay 0", "partial", "partial", "apply 1/8"]);
    rig.live(1, [9]);
    rig.wait(Duration::from_secs(5));
    rig.did(&["apply 1/9", "replay 0"]);
    rig.fail();
    rig.wait(Duration::from_secs(5));
    // The pause doubles; meanwhile the silence is probed.
    rig.did(&["partial", "replay 9"]);
    rig.replay(1, [9]);
    rig.wait(Duration::from_secs(5));
    rig.did(&["replay 0"]);
    rig.replay(1, 0..=9);
    assert_eq!(rig.follower.completeness(), Completeness::Exact);
    assert_eq!(rig.applied, (0..=9).map(|seq| (1, seq)).collect::<Vec<_>>());
}

#[test]
fn an_unanswered_gap_forgets_all_and_goes_on() {
    let mut rig = Rig::exact(true, 2);
    rig.live(1, [5]);
    rig.fail();
    rig.did(&["gap", "replay 2", "clear", "partial", "partial", "apply 1/5"]);
}

#[test]
fn a_restart_during_a_replay_starts_over() {
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.live(1, [9]);
    rig.live(2, [0, 1]);
    rig.replay(1, 0..=9);
    assert_eq!(rig.applied, [(2, 0), (2, 1)]);
    assert_eq!(rig.follower.completeness(), Completeness::Exact);
}

#[test]
fn a_hole_inside_a_replay_is_not_hidden() {
    let mut rig = Rig::new(true);
    rig.step(Input::Connected);
    rig.replay(1, [0, 1, 4]);
    assert_eq!((rig.applied.clone(), rig.follower.completeness()), (vec![(1, 4)], Completeness::Partial));
}

#[test]
fn what_waits_is_bounded_and_comes_again_by_replay() {
    let mut rig = Rig::new(true);
    rig.follower.options.most_waiting = 3;
    rig.step(Input::Connected);
    rig.live(1, 5..15);
    rig.replay(1, 0..=7);
    assert_eq!(rig.log.last().map(String::as_str), Some("replay 7"));
    rig.replay(1, 7..=14);
    assert_eq!(rig.applied, (0..=14).map(|seq| (1, seq)).collect::<Vec<_>>());
    assert_eq!(rig.follower.completeness(), Completeness::Exact);
}

#[test]
fn an_engine_that_never_gives_the_missing_batch_does_not_loop() {
    let mut rig = Rig::exact(true, 2);
    rig.live(1, [5]);
    for _ in 0..10 {
        if rig.follower.is_replaying() {
            rig.replay(1, [2]);
        }
    }
    assert!(!rig.follower.is_replaying());
    assert_eq!((rig.applied.clone(), rig.follower.completeness()), (vec![(1, 5)], Completeness::Partial));
}
