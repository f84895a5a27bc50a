//! Orphans find their place: through their parent's arrival, or through owners that hash alike.

use smallvec::SmallVec;

use super::{Blocks, EngineKey, Ledger, Paging, Peers, Place};
use crate::index::holders::Hold;
use kvasir_core::BlockHash;

impl Ledger {
    /// Attaches the runs that waited for one of `keys`, then those that waited for theirs.
    pub(super) fn adopt(&mut self, mut keys: Vec<EngineKey>, peers: &dyn Peers) {
        while let Some(parent) = keys.pop() {
            for run in self.orphans.take_children(parent) {
                let Some(place) = self.place_after(parent) else { continue };
                let blocks = Blocks {
                    tokens: &run.tokens,
                    extra_keys: &run.extra_keys,
                    adapter: run.adapter.as_deref(),
                };
                self.attach(run.keys.iter().copied(), &blocks, Some(parent), place, peers);
                keys.extend(run.keys.into_iter().flatten());
            }
        }
    }

    /// Tries every waiting parent with the owners that are trusted by now.
    pub(super) fn anchor_waiting(&mut self, peers: &dyn Peers) {
        for parent in self.orphans.parents() {
            if self.anchor(parent, peers).is_some() {
                self.adopt(vec![parent], peers);
            }
        }
    }

    /// The place after an unknown parent, by the hashes of an owner that is trusted to hash alike. The parent
    /// itself is entered as held: the engine could not have stored its child without it.
    pub(super) fn anchor(&mut self, parent: EngineKey, peers: &dyn Peers) -> Option<Place> {
        let (paging, group) = (self.paging?, self.groups.followed()?);
        if !self.is_partial {
            return None;
        }
        let hash = peers.slots().into_iter().filter(|slot| *slot != self.slot).find_map(|slot| {
            let (life, hash) = peers.ask(slot, paging, group, parent)?;
            hash.filter(|_| self.agreements.trusts(life))
        })?;
        self.hold(parent, hash);
        self.noticed.anchored += 1;
        Some(Place::at(BlockHash(hash)))
    }

    /// Compares one block with another holder of it. True at the moment that owner becomes trusted.
    pub(super) fn compare(&mut self, paging: Paging, key: EngineKey, hash: u64, peers: &dyn Peers) -> bool {
        let Some(group) = self.groups.followed() else { return false };
        let mut others: SmallVec<[u32; 8]> = SmallVec::new();
        self.map.look(hash, |slot, hold| {
            if slot != self.slot && hold.has(Hold::GPU) && others.len() < 8 {
                others.push(slot);
            }
        });
        for slot in others {
            let Some((life, meaning)) = peers.ask(slot, paging, group, key) else { continue };
            if self.agreements.is_open(life) {
                return self.agreements.note(life, meaning == Some(hash));
            }
        }
        false
    }
}
