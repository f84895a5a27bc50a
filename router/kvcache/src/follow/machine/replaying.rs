//! The course of one replay.

use std::time::Instant;

use kvasir_core::Completeness;

use super::history::Known;
use super::{Action, Follower, MOST_ATTEMPTS, Reason, Replaying};
use crate::event::Received;

impl Follower {
    pub(super) fn start(&mut self, reason: Reason) {
        self.stop_replay();
        self.attempts += 1;
        self.replaying = Some(Replaying { reason, begun: false, whole: false });
        let from = match reason {
            Reason::Full => 0,
            Reason::Resume => self.resume.map_or(0, |point| point.seq),
            Reason::Gap | Reason::Reconnect | Reason::Probe => self.history.last().unwrap_or(0),
        };
        self.out.push(Action::RequestReplay { from });
    }

    /// Asks for `reason` if anything was applied; else for what there is to begin with.
    pub(super) fn ask(&mut self, reason: Reason) {
        self.start(match (self.history.last(), self.resume) {
            (Some(_), _) => reason,
            (None, Some(_)) => Reason::Resume,
            (None, None) => Reason::Full,
        });
    }

    pub(super) fn stop_replay(&mut self) {
        if self.replaying.take().is_some() {
            self.out.push(Action::CancelReplay);
        }
    }

    pub(super) fn take_replayed(&mut self, batch: Received) {
        let Some(replaying) = self.replaying else { return };
        if replaying.begun {
            self.continue_replay(batch);
            return;
        }
        self.replaying = Some(Replaying { begun: true, ..replaying });
        if replaying.reason == Reason::Resume {
            self.prove(batch);
            return;
        }
        if replaying.reason == Reason::Full {
            // What an incomplete history left is replaced now, and not before something came to replace it.
            if self.history.last().is_some() {
                self.clear();
            }
            self.begin_at(batch);
            return;
        }
        match self.history.compare(&batch) {
            Known::Same => {}
            // The engine no longer has our last batch.
            Known::Next | Known::Ahead => {
                self.clear();
                self.set(Completeness::Partial);
                self.begin_at(batch);
            }
            Known::Other | Known::Forgotten => self.restart(),
        }
    }

    /// First batch of a history that is read anew.
    pub(super) fn begin_at(&mut self, batch: Received) {
        let whole = batch.seq == 0;
        self.out_of_reach = !whole;
        if let Some(replaying) = &mut self.replaying {
            replaying.reason = Reason::Full;
            replaying.whole = whole;
        }
        self.apply(batch);
    }

    fn continue_replay(&mut self, batch: Received) {
        match self.history.compare(&batch) {
            Known::Next => self.apply(batch),
            Known::Same => {}
            // A hole inside a replay: what came before it is worth nothing.
            Known::Ahead => {
                self.out.push(Action::CountGap);
                self.clear();
                self.set(Completeness::Partial);
                self.begin_at(batch);
            }
            Known::Other | Known::Forgotten => self.restart(),
        }
    }

    /// The engine is another one than we followed.
    pub(super) fn restart(&mut self) {
        self.clear();
        self.set(Completeness::Partial);
        self.start(Reason::Full);
    }

    pub(super) fn end_replay(&mut self, now: Instant, complete: bool) {
        let Some(replaying) = self.replaying.take() else { return };
        if complete {
            self.failed_probes = 0;
            match (replaying.reason, replaying.begun) {
                // Nothing was ever published.
                (Reason::Full, false) => {
                    self.failed_replays = 0;
                    if self.history.last().is_some() {
                        self.clear();
                    }
                    self.set(Completeness::Exact);
                }
                (Reason::Full, true) => {
                    self.failed_replays = 0;
                    self.set(if replaying.whole { Completeness::Exact } else { Completeness::Partial });
                }
                // Our last batch is beyond the engine's newest.
                (_, false) => {
                    self.drop_saved();
                    return self.restart();
                }
                (Reason::Gap, true) => self.out.push(Action::CountRepair),
                (Reason::Resume, true) => self.failed_replays = 0,
                (Reason::Reconnect | Reason::Probe, true) => {}
            }
        } else {
            self.fail_replay(now, replaying);
        }
        self.take_waiting();
    }

    fn fail_replay(&mut self, now: Instant, replaying: Replaying) {
        if replaying.reason == Reason::Probe && !replaying.begun {
            self.failed_probes += 1;
            if self.failed_probes >= self.options.most_failed_probes {
                self.failed_probes = 0;
                self.out.push(Action::Reconnect);
            }
            return;
        }
        self.failed_replays += 1;
        // Nobody can be asked now: live batches are taken as they come.
        self.attempts = MOST_ATTEMPTS;
        let doublings = self.failed_replays.saturating_sub(1).min(4);
        self.next_retry = now + self.options.retry_after * (1 << doublings);
        match replaying.reason {
            // What came of it counts; its end is missing, and a gap before the live batches will show.
            Reason::Full => self.set(Completeness::Partial),
            Reason::Resume if !replaying.begun => {
                if self.failed_replays >= MOST_ATTEMPTS {
                    self.drop_saved();
                }
            }
            Reason::Gap | Reason::Reconnect if !replaying.begun => {
                self.clear();
                self.set(Completeness::Partial);
            }
            // The last batch was the same, so it is the same engine; what is missing shows as a gap.
            Reason::Gap | Reason::Reconnect | Reason::Probe | Reason::Resume => {}
        }
    }

    /// Live batches that came meanwhile. Those that the replay brought too are known; a gap or a restart among
    /// them starts the next replay, for which the rest waits.
    fn take_waiting(&mut self) {
        for batch in self.drop_waiting() {
            if self.replaying.is_none() && self.history.compare(&batch) == Known::Forgotten {
                // Older than the memory reaches after a long replay; its number was replayed.
                continue;
            }
            self.take_live(batch);
        }
    }
}
