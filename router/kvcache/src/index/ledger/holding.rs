//! A block comes to be held, or is held no longer: the only places where the model's map learns of it.
//!
//! A block may stand under several engine hashes, on several tiers. It is held while one of them is left; the map and
//! the journal see the first and the last only.

use std::collections::{HashMap, HashSet};

use kvasir_core::{BlockHash, HeldOn};

use super::{EngineKey, Hold, Ledger, Removed, TierStored};

/// Further engine hashes of blocks that are held under one already, by block.
#[derive(Debug, Default)]
pub(super) struct Aliases(HashMap<u64, u32>);

impl Aliases {
    pub(super) fn add(&mut self, block: u64) {
        *self.0.entry(block).or_default() += 1;
    }

    /// Takes one away; false when the block has no further ones.
    pub(super) fn take(&mut self, block: u64) -> bool {
        let Some(further) = self.0.get_mut(&block) else { return false };
        *further -= 1;
        if *further == 0 {
            self.0.remove(&block);
        }
        true
    }

    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }

    /// Each of `blocks` once.
    fn once(&self, blocks: impl Iterator<Item = u64>) -> Vec<BlockHash> {
        let mut seen = HashSet::new();
        blocks.filter(|block| !self.0.contains_key(block) || seen.insert(*block)).map(BlockHash).collect()
    }
}

impl Ledger {
    /// Everything that is held: in GPU memory, and on other tiers. Each block once.
    pub(in crate::index) fn content(&self) -> (Vec<BlockHash>, Vec<BlockHash>) {
        let others = self.other_tiers.iter().flat_map(|(_, tier)| tier.blocks());
        (self.aliases.once(self.gpu.blocks()), self.tier_aliases.once(others))
    }

    pub(super) fn hold(&mut self, key: EngineKey, block: u64) {
        match self.gpu.store(key, block) {
            TierStored::Again => return,
            TierStored::Replaced(before) => self.release(before),
            TierStored::New => {}
        }
        if self.map.add(block, self.slot, Hold::GPU).has(Hold::GPU) {
            self.aliases.add(block);
        } else {
            self.note(block, HeldOn::Gpu, true);
        }
    }

    pub(super) fn remove(&mut self, key: EngineKey) {
        match self.gpu.remove(key) {
            Removed::Gone(block) => self.release(block),
            Removed::CopyLeft => {}
            Removed::Unknown => {
                if !self.pages.remove(key) && !self.orphans.remove(key) {
                    self.noticed.unknown_removals += 1;
                }
            }
        }
    }

    /// Lets the oldest go when there are too many.
    pub(super) fn bound(&mut self) {
        if let Some(gone) = self.gpu.age(self.limit) {
            self.noticed.over_limit += gone.len() as u64;
            gone.into_iter().for_each(|block| self.release(block));
        }
    }

    pub(super) fn clear_gpu(&mut self) {
        self.aliases.clear();
        for block in std::mem::take(&mut self.gpu).blocks() {
            self.take_from_gpu(block);
        }
        self.pages.clear();
        self.orphans.clear();
    }

    pub(super) fn hold_on_tier(&mut self, number: usize, key: EngineKey, block: u64) {
        let Some((_, tier)) = self.other_tiers.get_mut(number) else { return };
        let stored = tier.store(key, block);
        let aged = tier.age(self.limit);
        if let TierStored::Replaced(before) = stored {
            self.release_from_tiers(before);
        }
        if stored != TierStored::Again {
            if self.map.add(block, self.slot, Hold::OTHER_TIER).has(Hold::OTHER_TIER) {
                self.tier_aliases.add(block);
            } else {
                self.note(block, HeldOn::OtherTier, true);
            }
        }
        for block in aged.into_iter().flatten() {
            self.noticed.over_limit += 1;
            self.release_from_tiers(block);
        }
    }

    pub(super) fn release_from_tiers(&mut self, block: u64) {
        if !self.tier_aliases.take(block) {
            self.take_from_tiers(block);
        }
    }

    pub(super) fn clear_tiers(&mut self) {
        self.tier_aliases.clear();
        for (_, tier) in std::mem::take(&mut self.other_tiers) {
            for block in tier.blocks() {
                self.take_from_tiers(block);
            }
        }
    }

    fn release(&mut self, block: u64) {
        if !self.aliases.take(block) {
            self.take_from_gpu(block);
        }
    }

    /// An eviction ends a prediction too.
    fn take_from_gpu(&mut self, block: u64) {
        if self.map.take(block, self.slot, Hold::GPU.with(Hold::PREDICTED)).has(Hold::GPU) {
            self.note(block, HeldOn::Gpu, false);
        }
    }

    fn take_from_tiers(&mut self, block: u64) {
        if self.map.take(block, self.slot, Hold::OTHER_TIER).has(Hold::OTHER_TIER) {
            self.note(block, HeldOn::OtherTier, false);
        }
    }

    fn note(&mut self, block: u64, on: HeldOn, held: bool) {
        if let Some(journal) = &mut self.journal {
            journal.note(block, on, held);
        }
    }
}
