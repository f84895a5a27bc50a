//! Who is in the index: a snapshot of owners and models, swapped whole when one comes or goes.

use std::collections::HashMap;
use std::sync::Arc;

use kvasir_core::{BlockSize, ModelName, OwnerSlot};
use parking_lot::RwLock;
use smallvec::{SmallVec, smallvec};

use super::agreement::Life;
use super::ledger::Peers;
use super::owner::{Model, Owner};
use super::pages::Paging;
use super::tier::EngineKey;

/// Distinct block sizes that a request is hashed for (decision D3).
const MOST_SIZES: usize = 4;

/// A snapshot. Owners are found by their slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) owners: Vec<Option<Arc<Owner>>>,
    pub(super) models: HashMap<ModelName, Arc<Model>>,
}

impl Directory {
    pub(super) fn owner(&self, slot: OwnerSlot) -> Option<&Arc<Owner>> {
        self.owners.get(slot.0 as usize)?.as_ref()
    }

    /// The owner, while it is the one of that life: neither has another taken its slot, nor has it lost what it held.
    pub(super) fn owner_in(&self, slot: OwnerSlot, life: Life) -> Option<&Arc<Owner>> {
        self.owner(slot).filter(|owner| owner.life() == life)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Arc<Owner>> {
        self.owners.iter().flatten()
    }

    pub(super) fn of<'a>(&'a self, model: &'a Arc<Model>) -> impl Iterator<Item = &'a Arc<Owner>> {
        self.live().filter(|owner| Arc::ptr_eq(&owner.model, model))
    }

    /// The model, made if it is new.
    pub(super) fn model(&mut self, name: &ModelName) -> Arc<Model> {
        let made = || {
            Arc::new(Model {
                name: name.clone(),
                map: Arc::default(),
                sizes: RwLock::new(smallvec![BlockSize::DEFAULT]),
            })
        };
        Arc::clone(self.models.entry(name.clone()).or_insert_with(made))
    }

    /// Counts the sizes of a model's owners anew.
    pub(super) fn count_sizes(&self, model: &Arc<Model>) {
        let mut counts: Vec<(BlockSize, usize)> = Vec::new();
        for owner in self.of(model) {
            let size = owner.size();
            match counts.iter_mut().find(|(known, _)| *known == size) {
                Some((_, count)) => *count += 1,
                None => counts.push((size, 1)),
            }
        }
        counts.sort_by_key(|(size, count)| (std::cmp::Reverse(*count), *size));
        let mut sizes: SmallVec<[BlockSize; 4]> =
            counts.into_iter().take(MOST_SIZES).map(|(size, _)| size).collect();
        if sizes.is_empty() {
            sizes.push(BlockSize::DEFAULT);
        }
        *model.sizes.write() = sizes;
    }
}

/// The owners of one model, asked by one of them. Never waits for another owner's lock: two owners that ask
/// each other would wait for ever.
#[derive(Debug)]
pub(super) struct ModelPeers<'a> {
    pub(super) directory: &'a Directory,
    pub(super) model: &'a Arc<Model>,
}

impl Peers for ModelPeers<'_> {
    fn ask(&self, slot: u32, paging: Paging, group: u32, key: EngineKey) -> Option<(Life, Option<u64>)> {
        let owner = self.directory.owner(OwnerSlot(slot))?;
        if !Arc::ptr_eq(&owner.model, self.model) {
            return None;
        }
        let state = owner.state.try_lock()?;
        // A mirrored owner's engine hashes are not known here.
        if state.ledger.mirrored().is_some() {
            return None;
        }
        Some((owner.life(), state.ledger.meaning(paging, group, key)))
    }

    fn slots(&self) -> Vec<u32> {
        self.directory.of(self.model).map(|owner| owner.slot.0).collect()
    }
}
