//! What is known of one published owner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Completeness, EndpointId, OwnerSlot};

use super::{Action, LONGEST_LEASE_MS, LoadFault, Whose};
use crate::delta::{Delta, StreamId};
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
    /// Whether the lease lasted when Redis was reached before the last pause.
    pub(super) lasted: bool,
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
    /// A number that the head had at a refresh, and that was not here then.
    pub(super) behind: Option<Behind>,
    /// Since when the content here is known to be another than the owner's: of another epoch, or with a gap.
    pub(super) stale_since: Option<Instant>,
    pub(super) lag_ms: u64,
    pub(super) loads: u64,
    pub(super) gaps: u64,
    last_fault: Option<String>,
}

/// A head was ahead of what is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Behind {
    pub(super) epoch: Epoch,
    pub(super) seq: u64,
    /// The stream's newest entry then: who has read that far and has not the number will not get it any more.
    pub(super) last: StreamId,
    pub(super) since: Instant,
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
            lasted: false,
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
            self.lease_until = lease_end;
        }
        // Each time, for the clock may be set back while nobody renews the lease any more.
        self.lease_until = self.lease_until.min(now_ms + LONGEST_LEASE_MS);
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
            }
            self.lack(now);
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
        self.behind = None;
        self.stale_since = None;
        self.last_fault = None;
    }

    /// What is here lacks something that the owner has.
    pub(super) fn lack(&mut self, now: Instant) {
        self.stale_since.get_or_insert(now);
        self.want(now);
    }

    /// It lapses if what is here has been known to be wrong for longer than this.
    pub(super) fn lapse_after(&mut self, now: Instant, stale: Duration, out: &mut Vec<Action>) {
        let is_stale = |since: Instant| now.saturating_duration_since(since) > stale;
        if self.loaded.is_some() && self.stale_since.is_some_and(is_stale) {
            self.lapse(out);
        }
    }

    /// What was entered is still there at a refresh: the next failure is the first one.
    pub(super) fn stay(&mut self) {
        if self.resync == Resync::No {
            self.attempts = 0;
        }
    }

    /// The index did not take what was to be entered.
    pub(super) fn reject(&mut self, now: Instant) {
        if self.loaded.take().is_none() {
            return;
        }
        self.last_fault = Some("the index did not take it".to_owned());
        (self.behind, self.stale_since) = (None, None);
        if !matches!(self.resync, Resync::Running { .. }) {
            self.try_later(now);
        }
    }

    /// Its content could not be had.
    pub(super) fn miss(&mut self, now: Instant, fault: &LoadFault) {
        self.last_fault = Some(fault.to_string());
        self.try_later(now);
    }

    fn try_later(&mut self, now: Instant) {
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
