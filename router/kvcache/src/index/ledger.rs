//! One owner's events, applied: engine hashes become chained hashes in the model's map.

use std::sync::Arc;

use kvasir_core::{BlockHash, BlockSize, KvEvent, Medium, Stored};

use super::agreement::{Agreements, Life};
use super::groups::{Groups, Verdict};
use super::holders::{BlockMap, Hold};
use super::journal::Journal;
use super::orphans::{Orphans, Run};
use super::pages::{Pages, Paging, Place};
use super::tier::{EngineKey, Removed, Stored as TierStored, Tier};
use crate::hash::{self, Chainer};
use holding::Aliases;

/// Blocks kept for an owner that has not told its capacity. At about 50 bytes a block this is 50 MiB.
const DEFAULT_LIMIT: usize = 1 << 20;

/// Tiers beside the GPU that are told apart; engines name at most three.
pub(super) const MOST_TIERS: usize = 4;

/// What other owners know, for anchoring orphans. Called with this owner's ledger locked, so an implementation
/// must not wait for another one.
pub(crate) trait Peers {
    /// The block that `key` means to the owner `slot`, if it follows the same group with the same pages.
    /// `None` when it cannot be asked now.
    fn ask(&self, slot: u32, paging: Paging, group: u32, key: EngineKey) -> Option<(Life, Option<u64>)>;

    /// The owners of the same model.
    fn slots(&self) -> Vec<u32>;
}

/// What was noticed, since the owner was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// Events that cannot be right: tokens and hashes do not fit, or a block size of 0.
    pub(crate) malformed: u64,
    /// Removals of blocks that were not known.
    pub(crate) unknown_removals: u64,
    /// Stores and removals of KV-cache groups that are not followed.
    pub(crate) other_groups: u64,
    /// Stores with another block size than the owner's.
    pub(crate) size_mismatches: u64,
    /// Blocks dropped because the owner reached its bound.
    pub(crate) over_limit: u64,
    /// Parents found through another owner's hashes.
    pub(crate) anchored: u64,
}

/// What one owner holds, in the engine's terms, and how it is entered into the map.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) slot: u32,
    map: Arc<BlockMap>,
    paging: Option<Paging>,
    chainer: Chainer,
    groups: Groups,
    gpu: Tier,
    other_tiers: Vec<(Arc<str>, Tier)>,
    aliases: Aliases,
    tier_aliases: Aliases,
    pages: Pages,
    pub(super) orphans: Orphans,
    agreements: Agreements,
    limit: usize,
    /// Records what comes and goes, when somebody asked for it.
    pub(super) journal: Option<Journal>,
    /// Set while the content is another process's, which has no engine hashes; each block is its own key then.
    mirrored: Option<Mirrored>,
    /// Whether earlier events are missing, so that peers are worth comparing with.
    pub(super) is_partial: bool,
    /// Whether the content stopped being what the events say (a deposed group).
    pub(super) lost_track: bool,
    pub(super) noticed: Noticed,
}

impl Ledger {
    pub(super) fn new(slot: u32, map: Arc<BlockMap>) -> Self {
        Self {
            slot,
            map,
            paging: None,
            chainer: Chainer::new(BlockSize::DEFAULT),
            groups: Groups::default(),
            gpu: Tier::default(),
            other_tiers: Vec::new(),
            aliases: Aliases::default(),
            tier_aliases: Aliases::default(),
            pages: Pages::default(),
            orphans: Orphans::default(),
            agreements: Agreements::default(),
            limit: DEFAULT_LIMIT,
            journal: None,
            mirrored: None,
            is_partial: true,
            lost_track: false,
            noticed: Noticed::default(),
        }
    }

    /// The unit size learned from events.
    pub(super) fn unit(&self) -> Option<BlockSize> {
        self.paging.map(|paging| paging.unit)
    }

    pub(super) fn blocks(&self) -> usize {
        self.gpu.len()
    }

    pub(super) fn other_tier_blocks(&self) -> usize {
        self.other_tiers.iter().map(|(_, tier)| tier.len()).sum()
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.gpu.bytes() + self.other_tiers.iter().map(|(_, tier)| tier.bytes()).sum::<usize>()
    }

    /// Bounds what is kept: twice the engine's capacity, since a right mirror never holds more than that once.
    pub(super) fn set_capacity(&mut self, blocks: usize) {
        self.limit = blocks.saturating_mul(2).clamp(1024, 1 << 24);
    }

    /// What `key` means here, for another owner's orphans.
    pub(super) fn meaning(&self, paging: Paging, group: u32, key: EngineKey) -> Option<u64> {
        if self.paging != Some(paging) || self.groups.followed() != Some(group) {
            return None;
        }
        self.gpu.get(key)
    }

    pub(super) fn forget_peers(&mut self, is_live: impl Fn(Life) -> bool) {
        self.agreements.retain(is_live);
    }

    pub(super) fn apply(&mut self, events: &[KvEvent], peers: &dyn Peers) {
        for event in events {
            match event {
                KvEvent::Stored(stored) => self.store(stored, peers),
                KvEvent::Removed { hashes, group, medium } => {
                    if !self.groups.concerns(*group) {
                        self.noticed.other_groups += 1;
                        continue;
                    }
                    for hash in hashes {
                        match medium {
                            Medium::Gpu => self.remove(EngineKey::from(hash)),
                            Medium::Other(name) => self.remove_from_tier(name, EngineKey::from(hash)),
                        }
                    }
                }
                KvEvent::AllCleared => self.clear(),
            }
        }
    }

    /// Forgets every block. What was learned about the engine (sizes, group) stays.
    pub(super) fn clear(&mut self) {
        self.clear_gpu();
        self.clear_tiers();
    }

    /// Forgets everything, as for an engine that started anew. A mirrored owner stays one: whoever tells its content does
    /// not know of this, and goes on with changes.
    pub(super) fn reset(&mut self) {
        // A new life is not told block by block.
        let journal = self.journal.take();
        self.clear();
        self.journal = journal;
        if let Some(journal) = &mut self.journal {
            journal.clear();
        }
        // The hashes that are told of a mirrored owner are of this size until its content comes anew.
        if self.mirrored.is_none() {
            self.paging = None;
        }
        self.groups = Groups::default();
        self.agreements.clear();
        self.lost_track = false;
    }

    fn store(&mut self, stored: &Stored, peers: &dyn Peers) {
        if let Medium::Other(name) = &stored.medium {
            return self.store_on_tier(name, stored);
        }
        match self.groups.judge(stored) {
            Verdict::Follow => {}
            Verdict::Ignore => {
                self.noticed.other_groups += 1;
                return;
            }
            Verdict::Malformed => {
                self.noticed.malformed += 1;
                return;
            }
            Verdict::Deposed => {
                self.clear_gpu();
                self.lost_track = true;
                return;
            }
        }
        if !self.learn_size(stored.block_size) || stored.hashes.is_empty() {
            return;
        }
        let parent = stored.parent.as_ref().map(EngineKey::from);
        let place = match parent {
            None => Some(Place::at(self.root(stored.adapter.as_deref()))),
            Some(parent) => self.place_after(parent).or_else(|| self.anchor(parent, peers)),
        };
        let keys = stored.hashes.iter().map(|hash| Some(EngineKey::from(hash)));
        match (place, parent) {
            (Some(place), _) => {
                let blocks = Blocks {
                    tokens: &stored.token_ids,
                    extra_keys: &stored.extra_keys,
                    adapter: stored.adapter.as_deref(),
                };
                let trusts_anew = self.attach(keys.clone(), &blocks, parent, place, peers);
                if !self.orphans.is_empty() {
                    self.adopt(keys.flatten().collect(), peers);
                    if trusts_anew {
                        self.anchor_waiting(peers);
                    }
                }
            }
            (None, Some(parent)) => self.orphans.keep(
                parent,
                Run {
                    keys: keys.collect(),
                    tokens: stored.token_ids.clone(),
                    extra_keys: stored.extra_keys.clone(),
                    adapter: stored.adapter.clone(),
                },
            ),
            (None, None) => {}
        }
        self.bound();
        if self.pages.len() > self.limit.saturating_mul(16) {
            self.noticed.over_limit += self.pages.len() as u64;
            self.pages.clear();
        }
    }

    /// Follows the engine's own block size; one life of an engine has one.
    fn learn_size(&mut self, page: u32) -> bool {
        match self.paging {
            Some(paging) if paging.page == page => true,
            Some(_) => {
                self.noticed.size_mismatches += 1;
                false
            }
            None => {
                self.paging = Paging::of(page);
                if let Some(paging) = self.paging {
                    self.chainer = Chainer::new(paging.unit);
                }
                self.paging.is_some()
            }
        }
    }

    fn root(&self, adapter: Option<&str>) -> BlockHash {
        hash::root(self.chainer.block_size(), adapter)
    }

    fn place_after(&self, parent: EngineKey) -> Option<Place> {
        let known = self.gpu.get(parent);
        let known = known.or_else(|| self.other_tiers.iter().find_map(|(_, tier)| tier.get(parent)));
        known.map(|hash| Place::at(BlockHash(hash))).or_else(|| self.pages.place_after(parent))
    }

    /// Enters consecutive blocks after `place`. True when another owner has just become trusted.
    fn attach(
        &mut self,
        keys: impl Iterator<Item = Option<EngineKey>>,
        blocks: &Blocks<'_>,
        parent: Option<EngineKey>,
        mut place: Place,
        peers: &dyn Peers,
    ) -> bool {
        let Some(paging) = self.paging else { return false };
        let mut trusts_anew = false;
        let mut previous = if place.tail.is_empty() { None } else { parent };
        for (number, (key, ids)) in keys.zip(blocks.tokens.chunks_exact(paging.page as usize)).enumerate() {
            if let Some(extra) = blocks.extra_keys.get(number).and_then(Option::as_deref) {
                place.chain = hash::mix(place.chain, blocks.without_adapter(extra));
            }
            let unit = if paging.is_plain() {
                Some(self.chainer.next(place.chain, ids))
            } else {
                // Pages that were removed while they waited leave no way to those after them.
                let Some(key) = key else { break };
                place.tail.extend_from_slice(ids);
                if place.tail.len() < paging.unit.tokens() {
                    self.pages.insert(key, previous, place.chain, ids);
                    previous = Some(key);
                    None
                } else {
                    previous = None;
                    Some(self.chainer.next(place.chain, &place.tail))
                }
            };
            let Some(unit) = unit else { continue };
            place = Place::at(unit);
            if let Some(key) = key {
                self.hold(key, unit.0);
                trusts_anew |= self.is_partial && self.compare(paging, key, unit.0, peers);
            }
        }
        trusts_anew
    }
}

/// The content of consecutive blocks.
struct Blocks<'a> {
    tokens: &'a [u32],
    extra_keys: &'a [Option<Vec<Arc<str>>>],
    adapter: Option<&'a str>,
}

impl<'a> Blocks<'a> {
    /// The extra keys of a block without the adapter's name, which the root covers. Only its first place is the
    /// engine's; a salt may be spelled alike.
    fn without_adapter(&self, extra: &'a [Arc<str>]) -> impl Iterator<Item = &'a str> + use<'a> {
        let at = self.adapter.and_then(|name| extra.iter().position(|key| &**key == name));
        extra.iter().enumerate().filter(move |(number, _)| Some(*number) != at).map(|(_, key)| &**key)
    }
}

mod anchor;
mod holding;
mod mirrored;
mod saved;
mod tiers;

pub(super) use mirrored::Mirrored;
