//! What is known of one published owner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Completeness, EndpointId, OwnerSlot};

use super::{Action, LONGEST_LEASE_MS, LoadFault, Whose};
use crate::delta::Delta;
use crate::mirror::status::{MirroredOwner, OwnerState};
use crate::snapshot::{Epoch, Head, HeadFault};

/// The first wait before a resync is tried again; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest one.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Deltas that may wait for the end of a resync; with more of them the resync is in vain.
const MOST_WAITING: usize = 4096;
/// Failed resyncs that the first synchronization waits for.
const STARTING_ATTEMPTS: u32 = 2;

/// One owner of a stream.
#[derive(Debug)]
pub(super) struct Mirrored {
    pub(super) name: Arc<str>,
    pub(super) id: EndpointId,
    pub(super) slot: Option<OwnerSlot>,
    pub(super) head: Option<Head>,
    pub(super) fault: Option<HeadFault>,
    /// The lease's end as it is written, and as it is believed.
    lease_end: u64,
    pub(super) lease_until: u64,
    /// Until when an owner is believed that the list does not name any more.
    pub(super) missing_until: Option<u64>,
    /// Whether it was believed at the last refresh.
    pub(super) alive: bool,
    /// The epoch that should be here.
    pub(super) target: Option<Epoch>,
    /// The epoch and the number of the last delta that are here.
    pub(super) loaded: Option<(Epoch, u64)>,
    /// How far the index believes the content to be known.
    reported: Completeness,
    pub(super) resync: Resync,
    attempts: u32,
    pub(super) waiting: Vec<Delta>,
    /// A number that the head had at the last refresh, and that was not here then.
    pub(super) behind: Option<(Epoch, u64)>,
    /// Since when the content here is of another epoch than the head, server's milliseconds.
    pub(super) stale_since: Option<u64>,
    pub(super) lag_ms: u64,
    pub(super) loads: u64,
    pub(super) gaps: u64,
    last_fault: Option<String>,
}

/// Whether an owner is to be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resync {
    No,
    Due(Instant),
    /// It is being read. `stale`: it was published anew since that began.
    Running {
        stale: bool,
    },
}

impl Mirrored {
    pub(super) fn new(name: Arc<str>, id: EndpointId) -> Self {
        Self {
            name,
            id,
            slot: None,
            head: None,
            fault: None,
            lease_end: 0,
            lease_until: 0,
            missing_until: None,
            alive: false,
            target: None,
            loaded: None,
            reported: Completeness::Partial,
            resync: Resync::No,
            attempts: 0,
            waiting: Vec::new(),
            behind: None,
            stale_since: None,
            lag_ms: 0,
            loads: 0,
            gaps: 0,
            last_fault: None,
        }
    }

    /// Whether its writer still stands for it.
    pub(super) fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether the start waits for it.
    pub(super) fn is_starting(&self) -> bool {
        self.resync != Resync::No && self.attempts < STARTING_ATTEMPTS
    }

    pub(super) fn resync_due(&self) -> Option<Instant> {
        match self.resync {
            Resync::Due(at) => Some(at),
            _ => None,
        }
    }

    /// The lease as the list has it now.
    pub(super) fn lease(&mut self, lease_end: u64, now_ms: u64) {
        if self.lease_end != lease_end {
            self.lease_end = lease_end;
            self.lease_until = lease_end.min(now_ms + LONGEST_LEASE_MS);
        }
        self.missing_until = None;
    }

    /// Whose blocks these are, where that is known.
    pub(super) fn whose(&self) -> Option<Whose> {
        Some(Whose {
            name: Arc::clone(&self.name),
            id: self.id.clone(),
            model: self.head.as_ref()?.model.clone(),
            slot: self.slot?,
        })
    }

    /// It should be loaded, at once unless it is or waits already.
    pub(super) fn want(&mut self, now: Instant) {
        if self.resync == Resync::No {
            self.resync = Resync::Due(now);
        }
    }

    /// Nobody wants it, or not under the number it had: nothing of it is ours any more.
    pub(super) fn unwant(&mut self) {
        self.slot = None;
        self.forget();
    }

    /// It holds nothing.
    pub(super) fn lapse(&mut self, out: &mut Vec<Action>) {
        if self.loaded.is_some() {
            out.extend(self.whose().map(Action::Lapse));
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.loaded = None;
        self.resync = Resync::No;
        self.attempts = 0;
        self.waiting.clear();
        self.behind = None;
        self.stale_since = None;
    }

    /// How far its content is known from here on.
    pub(super) fn report(&mut self, completeness: Completeness, out: &mut Vec<Action>) {
        if self.loaded.is_some() && self.reported != completeness {
            self.reported = completeness;
            out.extend(self.whose().map(|whose| Action::SetCompleteness(whose, completeness)));
        }
    }

    /// A delta of its epoch came.
    pub(super) fn take(&mut self, now: Instant, delta: Delta, out: &mut Vec<Action>) {
        if let Resync::Running { .. } = self.resync
            && self.waiting.len() < MOST_WAITING
        {
            self.waiting.push(delta.clone());
        }
        let Some((epoch, seq)) = self.loaded else { return };
        if epoch != delta.epoch || delta.seq <= seq {
            return;
        }
        if delta.seq != seq + 1 {
            if self.resync == Resync::No {
                self.gaps += 1;
                self.resync = Resync::Due(now);
            }
            return;
        }
        self.loaded = Some((epoch, delta.seq));
        if !delta.changes.is_empty() {
            out.extend(self.whose().map(|whose| Action::Change(whose, delta.changes)));
        }
        self.report(delta.completeness, out);
    }

    /// Its content is here.
    pub(super) fn arrive(&mut self, epoch: Epoch, seq: u64, completeness: Completeness) {
        self.loaded = Some((epoch, seq));
        self.target = Some(epoch);
        self.reported = completeness;
        self.resync = Resync::No;
        self.attempts = 0;
        self.behind = None;
        self.stale_since = None;
        self.last_fault = None;
    }

    /// Its content could not be had.
    pub(super) fn miss(&mut self, now: Instant, fault: &LoadFault) {
        self.last_fault = Some(fault.to_string());
        self.resync = Resync::Due(now + (FIRST_WAIT * 2u32.pow(self.attempts.min(7))).min(LONGEST_WAIT));
        self.attempts += 1;
        self.waiting.clear();
    }

    pub(super) fn status(&self, server_now: u64) -> MirroredOwner {
        let head = self.head.as_ref();
        MirroredOwner {
            owner: self.id.clone(),
            state: self.state(),
            slot: self.slot,
            model: head.map(|head| head.model.clone()),
            adapters: head.map(|head| head.adapters.clone()).unwrap_or_default(),
            epoch: self.loaded.map(|(epoch, _)| epoch),
            seq: self.loaded.map_or(0, |(_, seq)| seq),
            blocks: head.map_or(0, |head| head.blocks),
            completeness: self.loaded.map(|_| self.reported),
            lease_left_ms: self.lease_until.saturating_sub(server_now),
            lag_ms: self.lag_ms,
            loads: self.loads,
            gaps: self.gaps,
            last_fault: self.last_fault.clone(),
        }
    }

    fn state(&self) -> OwnerState {
        match &self.fault {
            _ if !self.alive => OwnerState::Lapsed,
            Some(HeadFault::Schema(_)) => OwnerState::OtherSchema,
            Some(_) if self.loaded.is_none() => OwnerState::Unreadable,
            _ if self.slot.is_none() => OwnerState::Unwanted,
            _ if self.resync != Resync::No || self.loaded.is_none() => OwnerState::Resyncing,
            _ => OwnerState::Synced,
        }
    }
}
