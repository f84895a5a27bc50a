//! What the stream's entries change.

use std::sync::Arc;
use std::time::Instant;

use super::owner::Resync;
use super::{Action, Entry, Epoch, StreamId, StreamMirror};
use crate::delta::Reason;

impl StreamMirror {
    pub(super) fn entries(&mut self, now: Instant, entries: Vec<(StreamId, Entry)>) {
        let server_now = self.server_now(now);
        for (id, entry) in entries {
            self.tailed = Some(id);
            match entry {
                Entry::Delta(delta) => {
                    // Epochs that nobody knows are of owners that nobody wants, or the next refresh tells.
                    let Some(name) = self.epochs.get(&delta.epoch) else { continue };
                    let Some(owner) = self.owners.get_mut(name) else { continue };
                    owner.lag_ms = server_now.saturating_sub(id.ms);
                    owner.take(now, delta, &mut self.out);
                }
                Entry::Published { owner, epoch, reason } => self.published(now, &owner, epoch, reason),
            }
        }
    }

    fn published(&mut self, now: Instant, name: &Arc<str>, epoch: Epoch, reason: Reason) {
        let Some(owner) = self.owners.get_mut(name).filter(|owner| owner.alive) else {
            // A new owner, or one that is back.
            self.out.push(Action::Refresh);
            return;
        };
        if owner.slot.is_none() || owner.loaded.is_some_and(|(loaded, _)| loaded == epoch) {
            return;
        }
        owner.target = Some(epoch);
        self.epochs.insert(epoch, Arc::clone(name));
        let running = matches!(owner.resync, Resync::Running { .. });
        if reason == Reason::Reset {
            owner.lapse(&mut self.out);
        }
        owner.waiting.clear();
        owner.resync = if running { Resync::Running { stale: true } } else { Resync::Due(now) };
    }
}
