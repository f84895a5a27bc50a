//! Remembers the ids of text segments, so that the earlier turns of a conversation are not encoded again.
//!
//! A segment is what stands between two boundaries at which cutting is exact (see `local::boundary`), so the key is
//! the segment's text alone; one memory belongs to one tokenizer. Bounded in bytes: two generations, of which the
//! older is dropped when the younger is full, and a hit moves an entry to the younger one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Independently locked parts, so that encoding threads do not wait for each other.
const SHARDS: usize = 16;

/// Bytes of bookkeeping for one entry: key, pointer, counts and the table's spare room.
const ENTRY_OVERHEAD: usize = 96;

/// A segment that costs more than this share of a shard's generation is not kept: it would evict everything else.
const LARGEST_SHARE: usize = 2;

/// The memory of one tokenizer.
#[derive(Debug)]
pub struct PrefixMemory {
    shards: Vec<Mutex<Shard>>,
    generation_budget: usize,
    /// Secret, so that no client can make two texts of its own choice collide.
    seed: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Identifies a segment's text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentKey(u128);

/// What the memory holds and how it was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Bytes held, bookkeeping included.
    pub bytes: usize,
    /// Segments held.
    pub segments: usize,
    /// Segments found since the start.
    pub hits: u64,
    /// Segments not found since the start.
    pub misses: u64,
}

type Entries = HashMap<SegmentKey, Arc<[u32]>, BuildHasherDefault<TakeLow>>;

#[derive(Debug, Default)]
struct Shard {
    young: Entries,
    young_bytes: usize,
    old: Entries,
    old_bytes: usize,
}

impl PrefixMemory {
    /// An empty memory of at most `bytes`; zero remembers nothing.
    pub fn new(bytes: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            generation_budget: bytes / SHARDS / 2,
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The key of a text.
    pub fn key(&self, text: &str) -> SegmentKey {
        SegmentKey(xxh3_128_with_seed(text.as_bytes(), self.seed))
    }

    /// Appends the ids of a segment to `ids` when they are known.
    pub fn recall(&self, key: SegmentKey, ids: &mut Vec<u32>) -> bool {
        let found = self.shard(key).and_then(|shard| shard.lock().find(key, self.generation_budget));
        match found {
            Some(known) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                ids.extend_from_slice(&known);
                true
            }
            None => {
                self.misses.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Remembers the ids of a segment.
    pub fn remember(&self, key: SegmentKey, ids: &[u32]) {
        if cost(ids) * LARGEST_SHARE > self.generation_budget {
            return;
        }
        if let Some(shard) = self.shard(key) {
            shard.lock().insert(key, ids.into(), self.generation_budget);
        }
    }

    /// What is held now.
    pub fn usage(&self) -> MemoryUse {
        let mut usage = MemoryUse {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            ..MemoryUse::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            usage.bytes += shard.young_bytes + shard.old_bytes;
            usage.segments += shard.young.len() + shard.old.len();
        }
        usage
    }

    fn shard(&self, key: SegmentKey) -> Option<&Mutex<Shard>> {
        self.shards.get((key.0 >> 64) as usize % SHARDS)
    }
}

impl Shard {
    fn find(&mut self, key: SegmentKey, budget: usize) -> Option<Arc<[u32]>> {
        if let Some(ids) = self.young.get(&key) {
            return Some(Arc::clone(ids));
        }
        let ids = self.old.remove(&key)?;
        self.old_bytes -= cost(&ids);
        self.insert(key, Arc::clone(&ids), budget);
        Some(ids)
    }

    fn insert(&mut self, key: SegmentKey, ids: Arc<[u32]>, budget: usize) {
        let cost = cost(&ids);
        if self.young.contains_key(&key) {
            return;
        }
        if self.young_bytes + cost > budget {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        } else if let Some(stale) = self.old.remove(&key) {
            self.old_bytes -= self::cost(&stale);
        }
        self.young_bytes += cost;
        self.young.insert(key, ids);
    }
}

fn cost(ids: &[u32]) -> usize {
    size_of_val(ids) + ENTRY_OVERHEAD
}

/// The keys are hashes already.
#[derive(Default)]
struct TakeLow(u64);

impl Hasher for TakeLow {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recall(memory: &PrefixMemory, text: &str) -> Option<Vec<u32>> {
        let mut ids = Vec::new();
        memory.recall(memory.key(text), &mut ids).then_some(ids)
    }

    #[test]
    fn what_was_remembered_is_recalled() {
        let memory = PrefixMemory::new(1 << 20);
        assert_eq!(recall(&memory, "a"), None);
        memory.remember(memory.key("a"), &[1, 2]);
        memory.remember(memory.key("a"), &[1, 2]);
        assert_eq!(recall(&memory, "a"), Some(vec![1, 2]));
        let usage = memory.usage();
        assert_eq!((usage.segments, usage.hits, usage.misses, usage.bytes), (1, 1, 1, 8 + ENTRY_OVERHEAD));
    }

    #[test]
    fn the_budget_holds_and_what_is_used_survives() {
        let budget = 64 << 10;
        let memory = PrefixMemory::new(budget);
        let favourite = memory.key("favourite");
        memory.remember(favourite, &[7]);
        for number in 0..20_000u32 {
            memory.remember(memory.key(&number.to_string()), &[number; 4]);
            assert!(memory.recall(favourite, &mut Vec::new()), "lost after {number}");
        }
        let usage = memory.usage();
        assert!(usage.bytes <= budget && usage.bytes > budget / 4, "{usage:?}");
        assert_eq!(recall(&memory, "0"), None);
    }

    #[test]
    fn a_giant_is_not_kept() {
        let memory = PrefixMemory::new(64 << 10);
        memory.remember(memory.key("giant"), &vec![1; 100_000]);
        assert_eq!(memory.usage().segments, 0);
        let none = PrefixMemory::new(0);
        none.remember(none.key("a"), &[1]);
        assert_eq!(none.usage().segments, 0);
    }
}
