//! Owners come, tell their capacity, and go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvasir_core::{BlockSize, ModelName, OwnerSlot};

use super::agreement::Life;
use super::holders::MAX_SLOT;
use super::owner::Owner;
use super::stats::{IndexSize, OwnerStats};
use super::{Index, pages::Paging};
use crate::follow::FollowerStatus;

/// Why an owner is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// The number is too large for the packed sets of owners.
    #[error("owner {0:?} is beyond the {MAX_SLOT} owners an index can tell apart")]
    TooMany(OwnerSlot),
}

impl Index {
    /// Takes an owner in, with nothing known: approximate until a follower or a snapshot says otherwise.
    /// `source` says in words where its events come from. An owner that is there already is forgotten first.
    ///
    /// # Errors
    /// The number is beyond what the index can tell apart (262,143).
    pub fn register(
        &self,
        slot: OwnerSlot,
        model: &ModelName,
        source: impl Into<String>,
    ) -> Result<(), RegisterError> {
        if slot.0 > MAX_SLOT {
            return Err(RegisterError::TooMany(slot));
        }
        self.forget(slot);
        let _changing = self.changing.lock();
        let mut directory = (**self.directory.load()).clone();
        let model = directory.model(model);
        let life = Life(self.lives.fetch_add(1, Ordering::Relaxed));
        let owner = Arc::new(Owner::new(slot, Arc::clone(&model), source.into(), life));
        let at = slot.0 as usize;
        if directory.owners.len() <= at {
            directory.owners.resize(at + 1, None);
        }
        directory.owners[at] = Some(owner);
        directory.count_sizes(&model);
        self.directory.store(Arc::new(directory));
        Ok(())
    }

    /// Forgets an owner and everything it holds. Safe to repeat.
    pub fn forget(&self, slot: OwnerSlot) {
        let owner = {
            let _changing = self.changing.lock();
            let mut directory = (**self.directory.load()).clone();
            let Some(owner) = directory.owners.get_mut(slot.0 as usize).and_then(Option::take) else {
                return;
            };
            while directory.owners.last().is_some_and(Option::is_none) {
                directory.owners.pop();
            }
            directory.count_sizes(&owner.model);
            self.directory.store(Arc::new(directory));
            owner
        };
        // Whoever found the owner before the swap may come for its locks after us.
        {
            let mut state = owner.state.lock();
            state.gone = true;
            state.ledger.reset();
        }
        owner.predictions.lock().gone = true;
        owner.drop_predictions();
        let directory = self.directory.load();
        let lives: std::collections::HashSet<Life> = directory.live().map(|owner| owner.life()).collect();
        for other in directory.of(&owner.model) {
            other.state.lock().ledger.forget_peers(|life| lives.contains(&life));
        }
    }

    /// Tells an owner's KV capacity: `num_gpu_blocks` and `block_size` of the engine. Bounds what is kept for it,
    /// and is the size its blocks are looked up with until its events show one.
    pub fn set_capacity(&self, slot: OwnerSlot, blocks: usize, block_size: BlockSize) {
        let directory = self.directory.load();
        let Some(owner) = directory.owner(slot) else { return };
        // Small pages are gathered into larger units, here as in the events.
        let unit = Paging::of(u32::from(block_size)).map_or(block_size, |paging| paging.unit);
        let tokens = blocks.saturating_mul(block_size.tokens());
        owner.set_capacity_tokens(tokens);
        let mut state = owner.state.lock();
        state.told = Some((blocks, unit));
        state.ledger.set_capacity(tokens / unit.tokens());
        let size = state.ledger.unit().unwrap_or(unit);
        drop(state);
        if owner.known_size() != Some(size) {
            self.size_changed(owner, Some(size));
        }
    }

    /// Whether an owner holds anything by its events, on any tier.
    pub fn holds(&self, slot: OwnerSlot) -> bool {
        let directory = self.directory.load();
        directory.owner(slot).is_some_and(|owner| {
            let state = owner.state.lock();
            state.ledger.blocks() + state.ledger.other_tier_blocks() + state.ledger.pages() > 0
        })
    }

    /// Every owner in numbers, by slot.
    pub fn stats(&self) -> Vec<OwnerStats> {
        let now = self.clock.now();
        self.directory
            .load()
            .live()
            .map(|owner| {
                let predicted_blocks = owner.predictions.lock().recent.len();
                let state = owner.state.lock();
                let ledger = &state.ledger;
                let noticed = ledger.noticed;
                OwnerStats {
                    slot: owner.slot,
                    model: owner.model.name.clone(),
                    completeness: owner.completeness(),
                    blocks: ledger.blocks(),
                    other_tier_blocks: ledger.other_tier_blocks(),
                    pages: ledger.pages(),
                    predicted_blocks,
                    orphans: ledger.orphans.len(),
                    orphans_dropped: ledger.orphans.dropped,
                    orphans_anchored: noticed.anchored,
                    gaps: state.gaps,
                    repairs: state.repairs,
                    resets: state.resets,
                    decode_failures: state.decode_failures,
                    unknown_events: state.unknown_events,
                    malformed_events: noticed.malformed,
                    repeated_batches: state.repeated_batches,
                    unknown_removals: noticed.unknown_removals,
                    other_group_events: noticed.other_groups,
                    rank_mismatches: state.rank_mismatches,
                    block_size_mismatches: noticed.size_mismatches,
                    block_size_conflict: state.told.and_then(|(_, told)| {
                        ledger.unit().filter(|seen| *seen != told).map(|seen| (told, seen))
                    }),
                    over_limit: noticed.over_limit,
                    last_seq: state.last_batch.map(|last| last.seq),
                    last_event_age: state.last_event.map(|at| now.saturating_duration_since(at)),
                    block_size: owner.known_size(),
                    capacity_blocks: owner.capacity(),
                    bytes: ledger.bytes(),
                    source: owner.source.clone(),
                    mirrored: ledger.mirrored().is_some(),
                    follower: owner.follower.lock().clone(),
                }
            })
            .collect()
    }

    /// The whole index in numbers.
    pub fn size(&self) -> IndexSize {
        let directory = self.directory.load();
        let maps = directory.models.values().map(|model| (model.map.len(), model.map.bytes()));
        let (blocks, bytes) =
            maps.fold((0, 0), |(blocks, bytes), (more, heap)| (blocks + more, bytes + heap));
        let owners = directory.live().map(|owner| owner.state.lock().ledger.bytes()).sum::<usize>();
        IndexSize {
            models: directory.models.len(),
            owners: directory.live().count(),
            blocks,
            bytes: bytes + owners,
        }
    }

    /// What an owner's follower is doing; `None` for an unknown owner.
    pub fn follower_status(&self, slot: OwnerSlot) -> Option<FollowerStatus> {
        self.directory.load().owner(slot).map(|owner| owner.follower.lock().clone())
    }

    pub(crate) fn update_follower(&self, slot: OwnerSlot, update: impl FnOnce(&mut FollowerStatus)) {
        if let Some(owner) = self.directory.load().owner(slot) {
            update(&mut owner.follower.lock());
        }
    }

    pub(crate) fn count_gap(&self, slot: OwnerSlot) {
        if let Some(owner) = self.directory.load().owner(slot) {
            owner.state.lock().gaps += 1;
        }
    }

    pub(crate) fn count_repair(&self, slot: OwnerSlot) {
        if let Some(owner) = self.directory.load().owner(slot) {
            owner.state.lock().repairs += 1;
        }
    }

    pub(crate) fn count_rank_mismatch(&self, slot: OwnerSlot) {
        if let Some(owner) = self.directory.load().owner(slot) {
            owner.state.lock().rank_mismatches += 1;
        }
    }
}
