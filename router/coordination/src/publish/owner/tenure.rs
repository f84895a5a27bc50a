//! Being the writer or not: how that ends, is given back, and is told.

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

use super::bulk::Fold;
use super::{OwnerPublisher, Phase, PublisherState, PublisherStatus};
use crate::connection::StoreError;

impl OwnerPublisher {
    /// Whether the agent hears what the engine does. While it does not, the lease is not renewed. When it does again, the
    /// next heartbeat or question tells whether we are still the writer.
    pub(in crate::publish) fn set_heard(&mut self, now: Instant, heard: bool) {
        if self.heard == heard {
            return;
        }
        self.heard = heard;
        if heard {
            self.next_heartbeat = now;
            if matches!(self.phase, Phase::Reading | Phase::Publishing { .. }) {
                self.next_ask = now;
            }
        }
    }

    /// Nothing of what was going on can be relied on: as at the start.
    pub(in crate::publish) fn start_over(&mut self, now: Instant) {
        let fresh = Self::new(self.id.clone(), self.slot, self.options, now);
        let before = std::mem::replace(self, fresh);
        self.heard = before.heard;
        self.counts = before.counts;
        self.resume = before.resume;
        self.resume.restart();
        if let Phase::Released = before.phase {
            self.phase = Phase::Released;
        }
    }

    pub(in crate::publish) fn status(&self, now: Instant) -> PublisherStatus {
        let millis = |duration: Duration| duration.as_millis() as u64;
        PublisherStatus {
            owner: self.id.clone(),
            state: match self.phase {
                Phase::Released => PublisherState::Released,
                _ if !self.heard => PublisherState::Unheard,
                Phase::Asking(state) => state,
                Phase::Reading | Phase::Publishing { .. } => PublisherState::Publishing,
                Phase::Following => PublisherState::Following,
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

    pub(super) fn stand_by(&mut self, now: Instant, wait: Duration, state: PublisherState) {
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
    pub(super) fn lose(&mut self, now: Instant, random: &mut dyn Rng, emptied: bool) {
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
    pub(super) fn abandon(&mut self) {
        self.unconfirmed.clear();
        self.fold = Fold::default();
        self.upkeep.clear();
    }

    pub(super) fn fail(&mut self, now: Instant, random: &mut dyn Rng, error: StoreError) {
        self.counts.failures += 1;
        self.counts.last_error = Some(error.to_string());
        self.not_before = now + self.back_off.mul_f64(random.random_range(0.5..=1.0));
        self.back_off = (self.back_off * 2).min(self.options.longest_back_off);
    }
}
