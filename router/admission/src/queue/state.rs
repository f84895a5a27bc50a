//! What a queue's lock guards: the line, the gate, who waits and who runs.

use std::time::Instant;

use kvasir_core::PodCount;

use crate::claim::Claim;
use crate::gate::Gate;
use crate::kept::KeptPlaces;
use crate::line::Line;
use crate::permit::Ask;
use crate::waiters::Waiters;

pub(super) struct State {
    pub(super) line: Line,
    pub(super) gate: Gate,
    pub(super) waiters: Waiters,
    /// Those of the waiters that are still in line.
    pub(super) waiting: usize,
    /// Permits that are out, and waiters that have one waiting for them.
    pub(super) running: usize,
    pub(super) kept: KeptPlaces,
    pub(super) arrivals: u64,
    /// Whether a task looks after what opens by itself.
    pub(super) paced: bool,
    pub(super) closed: bool,
    /// Whether nobody will ask for this queue again.
    pub(super) forgotten: bool,
}

impl State {
    pub(super) fn new(line: Line, gate: Gate) -> Self {
        Self {
            line,
            gate,
            waiters: Waiters::new(),
            waiting: 0,
            running: 0,
            kept: KeptPlaces::default(),
            arrivals: 0,
            paced: false,
            closed: false,
            forgotten: false,
        }
    }

    pub(super) fn has_room(&mut self, pods: PodCount, now: Instant) -> bool {
        self.gate.is_open(self.running + self.kept.number(now), pods, now)
    }

    /// Whether the request is the next turn of a conversation whose place is kept, and takes it.
    pub(super) fn goes_on(&mut self, ask: &Ask<'_>, pods: PodCount, now: Instant) -> bool {
        let kept = self.kept.number(now);
        // The pods may have become fewer or busy meanwhile.
        if kept == 0
            || !self.gate.is_open(self.running + kept - 1, pods, now)
            || self.line.is_late(&self.waiters, now)
        {
            return false;
        }
        self.line.session_of(ask).is_some_and(|session| self.kept.take(session))
    }

    pub(super) fn begin(&mut self, claim: &mut Claim, now: Instant) {
        self.line.begin(claim);
        self.gate.passed(now);
        self.running += 1;
    }

    pub(super) fn leave_line(&mut self, number: u32) {
        self.line.leave(&mut self.waiters, number);
        self.waiting = self.waiting.saturating_sub(1);
    }
}
