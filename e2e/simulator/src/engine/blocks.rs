//! KV blocks of one engine: which are in use, which are cached, and which is given up next.
//!
//! As in vLLM: a full block is known by the hash of everything up to it; blocks that no running sequence uses stay
//! cached until their memory is needed, the longest unused first, and of one sequence its end first. The same content
//! may be there twice when two sequences computed it at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use kvasir_core::BlockHash;
use smallvec::SmallVec;

/// "No block" in the chain of free ones.
const NONE: u32 = u32::MAX;

/// Block hashes are as good as random already.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A map from block hashes.
pub(crate) type HashTable<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// One block of memory.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Content; `None` while it is not full.
    hash: Option<BlockHash>,
    /// Running sequences that use it.
    users: u32,
    /// Neighbours in the chain of blocks without users.
    before: u32,
    after: u32,
}

/// The blocks of one engine. Memory is taken as it is first needed, so a large engine that is little used is small here.
#[derive(Clone, Debug)]
pub struct BlockPool {
    capacity: u32,
    blocks: Vec<Block>,
    cached: HashTable<SmallVec<[u32; 1]>>,
    /// Without users, the longest unused first.
    oldest: u32,
    newest: u32,
    used: u32,
}

impl BlockPool {
    /// Room for `capacity` blocks.
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            blocks: Vec::new(),
            cached: HashTable::default(),
            oldest: NONE,
            newest: NONE,
            used: 0,
        }
    }

    /// Blocks that could be taken now, cached ones without users included.
    pub fn free(&self) -> u32 {
        self.capacity - self.used
    }

    /// Blocks that running sequences use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// All there are.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Contents that are cached, each counted once.
    pub fn contents(&self) -> usize {
        self.cached.len()
    }

    /// Leading blocks of `chain` that are cached.
    pub fn cached_blocks(&self, chain: &[BlockHash]) -> usize {
        chain.iter().take_while(|hash| self.cached.contains_key(&hash.0)).count()
    }

    /// How many of the leading `count` cached blocks of `chain` have no user: using them takes free memory.
    pub fn idle_among(&self, chain: &[BlockHash], count: usize) -> u32 {
        let idle = |hash: &&BlockHash| {
            self.first(**hash).is_some_and(|block| self.blocks[block as usize].users == 0)
        };
        chain.iter().take(count).filter(idle).count() as u32
    }

    /// Uses the cached block with this content; `None` when there is none.
    pub fn share(&mut self, hash: BlockHash) -> Option<u32> {
        let block = self.first(hash)?;
        if self.blocks[block as usize].users == 0 {
            self.unchain(block);
            self.used += 1;
        }
        self.blocks[block as usize].users += 1;
        Some(block)
    }

    /// A block to write into, with the content that had to leave for it. `None` when all are in use.
    pub fn take(&mut self) -> Option<(u32, Option<BlockHash>)> {
        if (self.blocks.len() as u32) < self.capacity {
            let block = self.blocks.len() as u32;
            self.blocks.push(Block { hash: None, users: 1, before: NONE, after: NONE });
            self.used += 1;
            return Some((block, None));
        }
        if self.oldest == NONE {
            return None;
        }
        let block = self.oldest;
        self.unchain(block);
        self.used += 1;
        let slot = &mut self.blocks[block as usize];
        slot.users = 1;
        let evicted = slot.hash.take();
        if let Some(hash) = evicted
            && let Some(copies) = self.cached.get_mut(&hash.0)
        {
            copies.retain(|copy| *copy != block);
            if copies.is_empty() {
                self.cached.remove(&hash.0);
            }
        }
        Some((block, evicted))
    }

    /// Block `block` is full: others may use it from now on.
    pub fn fill(&mut self, block: u32, hash: BlockHash) {
        self.blocks[block as usize].hash = Some(hash);
        self.cached.entry(hash.0).or_default().push(block);
    }

    /// A sequence gives its blocks back, listed from its first to its last.
    pub fn release(&mut self, blocks: &[u32]) {
        for block in blocks.iter().rev() {
            let slot = &mut self.blocks[*block as usize];
            slot.users -= 1;
            if slot.users == 0 {
                self.used -= 1;
                self.chain(*block);
            }
        }
    }

    fn first(&self, hash: BlockHash) -> Option<u32> {
        self.cached.get(&hash.0).and_then(|copies| copies.first().copied())
    }

    fn chain(&mut self, block: u32) {
        let newest = self.newest;
        let slot = &mut self.blocks[block as usize];
        (slot.before, slot.after) = (newest, NONE);
        match newest {
            NONE => self.oldest = block,
            _ => self.blocks[newest as usize].after = block,
        }
        self.newest = block;
    }

    fn unchain(&mut self, block: u32) {
        let Block { before, after, .. } = self.blocks[block as usize];
        match before {
            NONE => self.oldest = after,
            _ => self.blocks[before as usize].after = after,
        }
        match after {
            NONE => self.newest = before,
            _ => self.blocks[after as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests;
