//! Blocks on tiers beside the GPU: tracked apart, so that an eviction from the GPU leaves them, and told apart in a
//! hit. An engine may load them in larger units than blocks and needs time for it; what a hit there is worth is for
//! whoever scores.

use std::sync::Arc;

use kvasir_core::Stored;

use super::{EngineKey, Ledger, MOST_TIERS, Place, Removed, Tier};
use crate::hash;

impl Ledger {
    /// Offload events often name hashes only, of blocks that are or were on the GPU; those with tokens are hashed
    /// like any block. What can be placed neither way is not tracked.
    pub(super) fn store_on_tier(&mut self, name: &Arc<str>, stored: &Stored) {
        if !self.groups.concerns(stored.group) {
            self.noticed.other_groups += 1;
            return;
        }
        let Some(number) = self.tier(name) else { return };
        let page = stored.block_size as usize;
        let plain = self.paging.is_some_and(|paging| paging.is_plain() && paging.page == stored.block_size);
        let whole = page > 0 && stored.token_ids.len() == stored.hashes.len().saturating_mul(page);
        let mut place = match &stored.parent {
            _ if !plain || !whole => None,
            None => Some(Place::at(self.root(stored.adapter.as_deref()))),
            Some(parent) => self.place_after(EngineKey::from(parent)),
        };
        for (at, engine_hash) in stored.hashes.iter().enumerate() {
            let key = EngineKey::from(engine_hash);
            let block = match &mut place {
                Some(place) => {
                    if let Some(extra) = stored.extra_keys.get(at).and_then(Option::as_deref) {
                        let blocks = super::Blocks {
                            tokens: &[],
                            extra_keys: &[],
                            adapter: stored.adapter.as_deref(),
                        };
                        place.chain = hash::mix(place.chain, blocks.without_adapter(extra));
                    }
                    let ids = stored.token_ids.get(at * page..(at + 1) * page).unwrap_or_default();
                    place.chain = self.chainer.next(place.chain, ids);
                    Some(place.chain.0)
                }
                None => {
                    self.place_after(key).filter(|place| place.tail.is_empty()).map(|place| place.chain.0)
                }
            };
            if let Some(block) = block {
                self.hold_on_tier(number, key, block);
            }
        }
    }

    pub(super) fn remove_from_tier(&mut self, name: &Arc<str>, key: EngineKey) {
        let tier = self.other_tiers.iter_mut().find(|(known, _)| known == name);
        match tier.map_or(Removed::Unknown, |(_, tier)| tier.remove(key)) {
            Removed::Gone(block) => self.release_from_tiers(block),
            Removed::CopyLeft => {}
            Removed::Unknown => self.noticed.unknown_removals += 1,
        }
    }

    pub(super) fn tier(&mut self, name: &Arc<str>) -> Option<usize> {
        let known = self.other_tiers.iter().position(|(known, _)| known == name);
        if known.is_none() && self.other_tiers.len() < MOST_TIERS {
            self.other_tiers.push((Arc::clone(name), Tier::default()));
            return Some(self.other_tiers.len() - 1);
        }
        known
    }
}
