//! Loading owners as a whole.

use std::sync::Arc;
use std::time::Instant;

use kvasir_core::OwnerContent;

use super::owner::{Mirrored, Resync};
use super::{Action, LoadFault, Loaded, StreamMirror};

impl StreamMirror {
    /// Starts the next resync, where one is due and none runs.
    pub(super) fn start_resync(&mut self, now: Instant) {
        if self.resyncing {
            return;
        }
        let mut names = Vec::new();
        for owner in self.owners.values_mut() {
            if owner.resync_due().is_some_and(|due| due <= now) {
                owner.resync = Resync::Running { stale: false };
                owner.waiting.clear();
                names.push(Arc::clone(&owner.name));
            }
        }
        if !names.is_empty() {
            self.resyncing = true;
            self.out.push(Action::Resync(names));
        }
    }

    pub(super) fn loaded(&mut self, now: Instant, results: Vec<(Arc<str>, Result<Loaded, LoadFault>)>) {
        self.resyncing = false;
        for (name, result) in results {
            let Some(owner) = self.owners.get_mut(&name) else { continue };
            let Resync::Running { stale } = owner.resync else { continue };
            match result {
                Err(fault) => owner.miss(now, &fault),
                // Published anew while the older epoch was read.
                Ok(loaded) if stale && owner.target != Some(loaded.head.epoch) => {
                    owner.resync = Resync::Due(now)
                }
                Ok(loaded) => {
                    self.epochs.insert(loaded.head.epoch, name);
                    enter(now, owner, loaded, &mut self.out);
                }
            }
        }
    }
}

/// Replaces what is known of an owner.
fn enter(now: Instant, owner: &mut Mirrored, loaded: Loaded, out: &mut Vec<Action>) {
    let Loaded { head, blocks, deltas } = loaded;
    let seq = deltas.last().map_or(head.floor, |delta| delta.seq);
    let completeness = deltas.last().map_or(head.completeness, |delta| delta.completeness);
    owner.loads += 1;
    let content = OwnerContent {
        life: owner.loads,
        block_size: head.block_size,
        completeness,
        gpu: blocks.gpu,
        other_tiers: blocks.other_tiers,
    };
    let changes: Vec<_> = deltas.into_iter().flat_map(|delta| delta.changes).collect();
    owner.arrive(head.epoch, seq, completeness);
    owner.head = Some(head);
    let Some(whose) = owner.whose() else { return };
    out.push(Action::Load(whose.clone(), content));
    if !changes.is_empty() {
        out.push(Action::Change(whose, changes));
    }
    for delta in std::mem::take(&mut owner.waiting) {
        owner.take(now, delta, out);
    }
}
