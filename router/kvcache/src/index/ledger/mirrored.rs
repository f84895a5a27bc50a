//! Another process's view of an owner: sets of blocks, without the engine's hashes.

use std::sync::Arc;

use kvasir_core::{BlockChange, BlockHash, HeldOn, OwnerContent};

use super::{EngineKey, Ledger, Paging};
use crate::index::table::Table;

/// The tier under which all slower ones are entered: a mirror does not tell them apart.
const OTHER_TIER: &str = "other";

/// Whose content it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::index) struct Mirrored {
    /// The life of the owner in the process that told.
    pub(in crate::index) life: u64,
}

impl Ledger {
    pub(in crate::index) fn mirrored(&self) -> Option<Mirrored> {
        self.mirrored
    }

    /// Nobody tells its content any more: it holds nothing, and changes have nothing to say.
    pub(in crate::index) fn lapse(&mut self) {
        self.mirrored = None;
        self.reset();
    }

    /// Becomes `content`. What is in both stays, and what left goes before anything comes, so that at no moment more
    /// is held than the old and the new content agree on or the new one has.
    pub(in crate::index) fn load(&mut self, content: &OwnerContent) {
        self.mirrored = Some(Mirrored { life: content.life });
        self.paging = content.block_size.map(|unit| Paging { page: u32::from(unit), unit });
        let gpu = self.bounded(&content.gpu);
        let others = self.bounded(&content.other_tiers);
        let gone: Vec<u64> = self.gpu.blocks().filter(|block| gpu.get(*block).is_none()).collect();
        gone.into_iter().for_each(|block| self.leave(block, HeldOn::Gpu));
        let tiers = self.other_tiers.iter().flat_map(|(_, tier)| tier.blocks());
        let gone: Vec<u64> = tiers.filter(|block| others.get(*block).is_none()).collect();
        gone.into_iter().for_each(|block| self.leave(block, HeldOn::OtherTier));
        for (block, _) in gpu.iter() {
            self.enter(block, HeldOn::Gpu);
        }
        for (block, _) in others.iter() {
            self.enter(block, HeldOn::OtherTier);
        }
    }

    pub(in crate::index) fn change(&mut self, changes: &[BlockChange]) {
        for change in changes.iter().filter(|change| change.block.0 != 0) {
            if change.held {
                self.enter(change.block.0, change.on);
            } else {
                self.leave(change.block.0, change.on);
            }
        }
    }

    /// The blocks as a set, as many as are kept. No block is 0, which the tables could not hold.
    fn bounded(&mut self, blocks: &[BlockHash]) -> Table {
        let mut set = Table::default();
        for block in blocks.iter().filter(|block| block.0 != 0).take(self.limit) {
            set.insert(block.0, 0);
        }
        self.noticed.over_limit += blocks.len().saturating_sub(self.limit) as u64;
        set
    }

    /// Enters a block; one that is there is not entered as a second copy.
    fn enter(&mut self, block: u64, on: HeldOn) {
        let key = EngineKey(block);
        match on {
            HeldOn::Gpu if self.gpu.get(key).is_none() => {
                self.hold(key, block);
                self.bound();
            }
            HeldOn::OtherTier if !self.is_on_tier(key) => {
                if let Some(number) = self.tier(&Arc::from(OTHER_TIER)) {
                    self.hold_on_tier(number, key, block);
                }
            }
            HeldOn::Gpu | HeldOn::OtherTier => {}
        }
    }

    /// Takes a block away; of one that is not there nothing is to be said, since changes may be told twice.
    fn leave(&mut self, block: u64, on: HeldOn) {
        let key = EngineKey(block);
        match on {
            HeldOn::Gpu if self.gpu.get(key).is_some() => self.remove(key),
            HeldOn::OtherTier if self.is_on_tier(key) => self.remove_from_tier(&Arc::from(OTHER_TIER), key),
            HeldOn::Gpu | HeldOn::OtherTier => {}
        }
    }

    fn is_on_tier(&self, key: EngineKey) -> bool {
        self.other_tiers.first().is_some_and(|(_, tier)| tier.get(key).is_some())
    }
}
