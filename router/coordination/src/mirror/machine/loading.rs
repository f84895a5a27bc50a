//! Loading owners as a whole.

use std::sync::Arc;
use std::time::Instant;

use kvasir_core::OwnerContent;

use super::owner::{Mirrored, Resync};
use super::{Action, LoadFault, Loaded, StreamMirror};

/// Owners and blocks of one resync. Small owners share the pass through the stream's deltas; of large ones little more
/// than one is in memory, and entering them holds the stream up for some tens of milliseconds.
const MOST_OWNERS_AT_ONCE: usize = 64;
const MOST_BLOCKS_AT_ONCE: u64 = 1 << 18;

impl StreamMirror {
    /// Starts the next resync, where one is due and none runs.
    pub(super) fn start_resync(&mut self, now: Instant) {
        if self.resyncing {
            return;
        }
        let is_due = |owner: &Mirrored| owner.resync_due().filter(|due| *due <= now);
        let mut due: Vec<_> =
            self.owners.values_mut().filter_map(|owner| Some((is_due(owner)?, owner))).collect();
        due.sort_unstable_by_key(|(due, _)| *due);
        let mut names = Vec::new();
        let mut blocks = 0u64;
        for (_, owner) in due {
            blocks = blocks.saturating_add(owner.head.as_ref().map_or(0, |head| head.blocks));
            if names.len() == MOST_OWNERS_AT_ONCE || (blocks > MOST_BLOCKS_AT_ONCE && !names.is_empty()) {
                break;
            }
            owner.resync = Resync::Running { stale: false };
            owner.waiting.clear();
            names.push(Arc::clone(&owner.name));
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
