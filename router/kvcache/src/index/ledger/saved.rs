//! A ledger leaves its content behind, or takes one in.

use std::sync::Arc;

use super::{EngineKey, Ledger, Paging};
use crate::index::saved::SavedLedger;
use crate::index::saved::bytes::LONGEST_NAME;

impl Ledger {
    pub(in crate::index) fn save(&self) -> SavedLedger {
        // An overlong name is nobody's; its blocks earn no credit and are left out.
        let others = self.other_tiers.iter().filter(|(name, _)| name.len() <= LONGEST_NAME);
        let others = others.map(|(name, tier)| (Arc::clone(name), tier.save()));
        SavedLedger {
            page: self.paging.map_or(0, |paging| paging.page),
            groups: self.groups,
            gpu: self.gpu.save(),
            other_tiers: others.collect(),
            pages: self.pages.save(),
        }
    }

    /// Enters a saved content into an empty ledger.
    pub(in crate::index) fn restore(&mut self, saved: &SavedLedger) {
        if let Some(paging) = Paging::of(saved.page) {
            self.learn_size(paging.page);
        }
        self.groups = saved.groups;
        for (key, block) in &saved.gpu.blocks {
            self.hold(EngineKey(*key), *block);
            self.bound();
        }
        self.gpu.restore_copies(&saved.gpu);
        for (name, tier) in &saved.other_tiers {
            let Some(number) = self.tier(name) else { continue };
            for (key, block) in &tier.blocks {
                self.hold_on_tier(number, EngineKey(*key), *block);
            }
            if let Some((_, known)) = self.other_tiers.get_mut(number) {
                known.restore_copies(tier);
            }
        }
        for page in &saved.pages {
            self.pages.insert(page.key, page.previous, page.chain, &page.tokens);
        }
    }
}
