//! What a pod holds in kthena's terms: content hashes of single blocks, counted over ranks, groups and copies.
//!
//! kthena's layout knows pods, not ranks or KV-cache groups, and names a block by its tokens alone. One pod may hold
//! the same tokens many times over: on several ranks, after several prefixes, as two copies of one block. So each
//! block of the engine is kept here under the engine's own name, and the pod owns a content hash as long as one of
//! them has that content.
//!
//! Three kinds of blocks are known and never owned, because their tokens do not say who may reuse them: blocks behind
//! a cache salt or a multimodal item, blocks of groups that hold no whole prefix (sliding windows, state spaces), and
//! blocks outside GPU memory. A block of a LoRA adapter is owned under the adapter's name, which is what requests for
//! the adapter are looked up by.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kvasir_core::{EngineHash, KvEvent, Medium, Stored};
use kvasir_kvcache::{Batch, kthena_block_hash};

use generations::{Generations, Place};

mod delta;
mod generations;
mod saved;

pub use delta::{KthenaBlock, KthenaDelta, KthenaNoticed};
pub use saved::{DamagedLedger, SavedLedger};

#[cfg(test)]
mod tests;

/// Blocks kept for a pod that has not told its capacity. A block takes about 120 bytes.
const DEFAULT_LIMIT: usize = 1 << 20;

/// Adapter names told apart for one pod. Blocks of further adapters are not owned.
const MOST_ADAPTERS: usize = 4096;

/// Pairs of rank and group told apart for one pod.
const MOST_PLACES: usize = 16_384;

/// Number of an adapter name; 0 is the model itself.
type Adapter = u16;

/// A block as the ledger counts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct BlockId {
    adapter: Adapter,
    hash: u64,
}

/// One block of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    /// `None` for a block whose tokens do not say who may reuse it.
    block: Option<BlockId>,
    copies: u32,
}

/// What one pod holds. Pure: batches in, differences out.
#[derive(Debug)]
pub struct KthenaLedger {
    entries: Generations<Entry>,
    /// Entries by what they hold.
    owned: HashMap<BlockId, u32>,
    adapters: Vec<Arc<str>>,
    /// Groups that hold no whole prefixes.
    partial: BTreeSet<Place>,
    /// Every rank and group seen.
    places: BTreeSet<Place>,
    last_seq: HashMap<u32, u64>,
    limit: usize,
    /// Blocks that changed, with whether they were owned when last asked.
    touched: HashMap<BlockId, bool>,
    /// Names that changed, with what they stood for when last asked.
    renamed: HashMap<EngineHash, Option<u64>>,
    noticed: KthenaNoticed,
}

impl Default for KthenaLedger {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl KthenaLedger {
    /// An empty ledger that keeps at most `limit` blocks of the engine; above it the older half goes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            entries: Generations::default(),
            owned: HashMap::new(),
            adapters: Vec::new(),
            partial: BTreeSet::new(),
            places: BTreeSet::new(),
            last_seq: HashMap::new(),
            limit: limit.max(2),
            touched: HashMap::new(),
            renamed: HashMap::new(),
            noticed: KthenaNoticed::default(),
        }
    }

    /// Bounds what is kept: twice what the engine can hold over all its ranks, and no less than 1,024 blocks.
    pub fn set_capacity(&mut self, blocks: usize) {
        self.limit = blocks.saturating_mul(2).clamp(1024, 1 << 24);
    }

    /// Number of the last batch applied of a rank.
    pub fn last_seq(&self, rank: u32) -> Option<u64> {
        self.last_seq.get(&rank).copied()
    }

    /// Distinct blocks that the pod owns.
    pub fn owned(&self) -> usize {
        self.owned.len()
    }

    /// Blocks of the engine that are known, over all ranks and groups.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// What was noticed.
    pub fn noticed(&self) -> KthenaNoticed {
        self.noticed
    }

    /// Applies one batch of a rank. A batch whose number is not above the rank's last one changes nothing.
    pub fn apply(&mut self, rank: u32, batch: &Batch) {
        if self.last_seq.get(&rank).is_some_and(|last| batch.seq <= *last) {
            return;
        }
        self.last_seq.insert(rank, batch.seq);
        for event in &batch.events {
            match event {
                KvEvent::Stored(stored) => self.store(rank, stored),
                KvEvent::Removed { hashes, group, medium: Medium::Gpu } => {
                    self.remove(Place { rank, group: *group }, hashes);
                }
                KvEvent::Removed { .. } => {}
                KvEvent::AllCleared => self.drop_where(|place| place.rank == rank),
            }
        }
        if let Some(gone) = self.entries.age(self.limit) {
            self.noticed.over_limit += gone.len() as u64;
            self.release_all(gone);
        }
    }

    /// A rank holds nothing any more, and its numbers start anew: its engine restarted, or its history was lost.
    pub fn reset(&mut self, rank: u32) {
        self.drop_where(|place| place.rank == rank);
        self.partial.retain(|place| place.rank != rank);
        self.places.retain(|place| place.rank != rank);
        self.last_seq.remove(&rank);
    }

    /// A rank holds nothing any more, and its numbers go on: its engine sleeps.
    pub fn empty(&mut self, rank: u32) {
        self.drop_where(|place| place.rank == rank);
    }

    /// What changed since the last call.
    pub fn take_delta(&mut self) -> KthenaDelta {
        let mut delta = KthenaDelta::default();
        for (block, owned_before) in std::mem::take(&mut self.touched) {
            let to = if owned_before { &mut delta.lost } else { &mut delta.gained };
            to.push(named(&self.adapters, block));
        }
        for name in std::mem::take(&mut self.renamed).into_keys() {
            match self.meaning(&name) {
                Some(hash) => delta.named.push((name, hash)),
                None => delta.unnamed.push(name),
            }
        }
        delta
    }

    /// Every block that the pod owns, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = KthenaBlock> {
        self.owned.keys().map(|block| named(&self.adapters, *block))
    }

    /// Every name of an engine's block with the content hash that it stands for; a name may come more than once.
    pub fn names(&self) -> impl Iterator<Item = (&EngineHash, u64)> {
        self.entries.iter().filter_map(|(_, name, entry)| Some((name, entry.block?.hash)))
    }

    fn store(&mut self, rank: u32, stored: &Stored) {
        if stored.medium != Medium::Gpu {
            self.noticed.other_tiers += 1;
            return;
        }
        let place = Place { rank, group: stored.group };
        let Some(tokens) = self.tokens_in_block(place, stored) else { return };
        if !self.places.contains(&place) {
            if self.places.len() >= MOST_PLACES {
                self.noticed.over_limit += stored.hashes.len() as u64;
                return;
            }
            self.places.insert(place);
        }
        let adapter = self.adapter(stored.adapter.as_ref());
        // What a block's parent depends on, the block depends on.
        let mut by_tokens = adapter.is_some()
            && stored
                .parent
                .as_ref()
                .and_then(|parent| self.entries.get(place, parent))
                .is_none_or(|parent| parent.block.is_some());
        let blocks = stored.token_ids.chunks_exact(tokens);
        for (number, (name, ids)) in stored.hashes.iter().zip(blocks).enumerate() {
            by_tokens &= !has_other_keys(stored, number);
            let block = adapter
                .filter(|_| by_tokens)
                .map(|adapter| BlockId { adapter, hash: kthena_block_hash(ids) });
            self.noticed.not_by_tokens += u64::from(block.is_none());
            self.hold(place, name, block);
        }
    }

    /// Tokens in one block of a store; `None` where the store does not tell whole blocks of a prefix.
    fn tokens_in_block(&mut self, place: Place, stored: &Stored) -> Option<usize> {
        if self.partial.contains(&place) {
            self.noticed.other_groups += 1;
            return None;
        }
        let kind = stored.spec_kind.as_deref();
        let holds_prefixes = kind
            .is_none_or(|kind| matches!(kind, "full_attention" | "mla_attention" | "sink_full_attention"));
        if !holds_prefixes {
            self.depose(place);
            return None;
        }
        let (hashes, tokens, size) =
            (stored.hashes.len(), stored.token_ids.len(), stored.block_size as usize);
        if size > 0 && tokens == hashes.saturating_mul(size) {
            return (hashes > 0).then_some(size);
        }
        // Older engines do not name the kind of a group; fewer hashes than whole blocks of tokens give it away.
        let fewer = size > 0 && tokens.is_multiple_of(size) && hashes < tokens / size;
        if kind.is_none() && fewer {
            self.depose(place);
        } else {
            self.noticed.malformed += 1;
        }
        None
    }

    /// A group turned out to hold no whole prefixes: what it gave is forgotten.
    fn depose(&mut self, place: Place) {
        self.noticed.other_groups += 1;
        if self.partial.len() < MOST_PLACES {
            self.partial.insert(place);
        }
        if self.places.remove(&place) {
            self.drop_where(|other| other == place);
        }
    }

    /// The number of an adapter; `None` when there are too many.
    fn adapter(&mut self, name: Option<&Arc<str>>) -> Option<Adapter> {
        let Some(name) = name else { return Some(0) };
        let known = self.adapters.iter().position(|known| known == name);
        let at = match known {
            Some(at) => at,
            None if self.adapters.len() < MOST_ADAPTERS => {
                self.adapters.push(Arc::clone(name));
                self.adapters.len() - 1
            }
            None => return None,
        };
        Adapter::try_from(at + 1).ok()
    }

    fn hold(&mut self, place: Place, name: &EngineHash, block: Option<BlockId>) {
        if let Some(entry) = self.entries.get_mut(place, name)
            && entry.block == block
        {
            entry.copies = entry.copies.saturating_add(1);
            return;
        }
        let meant = self.meaning(name);
        let before = self.entries.insert(place, name.clone(), Entry { block, copies: 1 });
        if let Some(gone) = before.and_then(|entry| entry.block) {
            self.release(gone);
        }
        if let Some(block) = block {
            self.own(block);
        }
        self.note_name(name, meant);
    }

    fn remove(&mut self, place: Place, names: &[EngineHash]) {
        if self.partial.contains(&place) {
            self.noticed.other_groups += 1;
            return;
        }
        for name in names {
            let Some(entry) = self.entries.get_mut(place, name) else {
                self.noticed.unknown_removals += 1;
                continue;
            };
            if entry.copies > 1 {
                entry.copies -= 1;
                continue;
            }
            let meant = self.meaning(name);
            let gone = self.entries.remove(place, name);
            if let Some(block) = gone.and_then(|entry| entry.block) {
                self.release(block);
            }
            self.note_name(name, meant);
        }
    }

    fn drop_where(&mut self, gone: impl Fn(Place) -> bool) {
        let gone = self.entries.take_where(gone);
        self.release_all(gone);
    }

    /// Releases entries that are out of the table already.
    fn release_all(&mut self, gone: Vec<(EngineHash, Entry)>) {
        let mut before = HashMap::new();
        for (name, entry) in gone {
            let Some(block) = entry.block else { continue };
            self.release(block);
            // Several places may have had the name; what it stood for is asked once, since all of them are gone.
            before.entry(name).or_insert(block.hash);
        }
        for (name, hash) in before {
            self.note_name(&name, Some(hash));
        }
    }

    fn own(&mut self, block: BlockId) {
        let count = self.owned.entry(block).or_default();
        *count = count.saturating_add(1);
        if *count == 1 {
            flip(&mut self.touched, block, false);
        }
    }

    fn release(&mut self, block: BlockId) {
        let Some(count) = self.owned.get_mut(&block) else { return };
        *count -= 1;
        if *count == 0 {
            self.owned.remove(&block);
            flip(&mut self.touched, block, true);
        }
    }

    /// What a name stands for on any rank and in any group.
    fn meaning(&self, name: &EngineHash) -> Option<u64> {
        self.places
            .iter()
            .filter_map(|place| self.entries.get(*place, name))
            .find_map(|entry| entry.block)
            .map(|block| block.hash)
    }

    /// Notes that a name stood for `before` until now. A name that stands again for what it stood for when last asked
    /// is no change.
    fn note_name(&mut self, name: &EngineHash, before: Option<u64>) {
        let now = self.meaning(name);
        let asked = *self.renamed.get(name).unwrap_or(&before);
        if now == asked {
            self.renamed.remove(name);
        } else {
            self.renamed.insert(name.clone(), asked);
        }
    }
}

/// Notes that a block changed hands: `before` is whether it was owned until now. Back to what it was when last asked
/// is no change.
fn flip(touched: &mut HashMap<BlockId, bool>, block: BlockId, before: bool) {
    if touched.remove(&block).is_none() {
        touched.insert(block, before);
    }
}

fn named(adapters: &[Arc<str>], block: BlockId) -> KthenaBlock {
    let adapter = usize::from(block.adapter).checked_sub(1).and_then(|at| adapters.get(at)).cloned();
    KthenaBlock { adapter, hash: block.hash }
}

/// Whether something beside tokens and adapter is in a block's hash. Only the first place of the adapter's name is the
/// engine's; a salt may be spelled alike.
fn has_other_keys(stored: &Stored, number: usize) -> bool {
    let Some(keys) = stored.extra_keys.get(number).and_then(Option::as_deref) else { return false };
    let own = stored.adapter.as_deref().is_some_and(|name| keys.iter().any(|key| &**key == name));
    keys.len() > usize::from(own)
}
