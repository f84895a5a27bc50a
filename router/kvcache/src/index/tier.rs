//! What one owner holds on one tier, by the engine's own hashes.

use std::collections::HashMap;

use kvasir_core::EngineHash;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::table::Table;

/// An engine hash in 64 bits, never 0. Non-negative integers stand for themselves; negative ones and byte
/// strings are digested, each in its own space, so that two kinds do not meet but by chance (2^-64 a pair).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct EngineKey(pub(crate) u64);

impl From<&EngineHash> for EngineKey {
    fn from(hash: &EngineHash) -> Self {
        let bits = match hash {
            EngineHash::Int { bits, negative: false } => *bits,
            EngineHash::Int { bits, negative: true } => xxh3_64_with_seed(&bits.to_le_bytes(), 1),
            EngineHash::Bytes(bytes) => xxh3_64_with_seed(bytes, 2),
        };
        // Engines may well send 0 as a hash, and 0 marks a free place in the tables.
        Self(if bits == 0 { 0x5bd1_e995_9d1b_54a5 } else { bits })
    }
}

/// What a store did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    /// The key is new here.
    New,
    /// A second copy of a block that is held.
    Again,
    /// The key stood for another block, which it no longer does.
    Replaced(u64),
}

/// What a removal did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Removed {
    /// The last copy is gone; the block it stood for.
    Gone(u64),
    /// Another copy is left.
    CopyLeft,
    /// Nothing was known under the key.
    Unknown,
}

/// What a tier leaves behind: engine keys with their blocks, and copies beyond the first.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct SavedTier {
    pub(crate) blocks: Vec<(u64, u64)>,
    pub(crate) copies: Vec<(u64, u32)>,
}

/// Engine hash to block hash, with copies counted, in two generations so that the oldest can go at once when a
/// limit is reached. A well-behaved engine never reaches it: it removes what it evicts.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    young: Table,
    old: Table,
    /// Copies beyond the first. vLLM stores an equal block twice when two requests compute it at once, and
    /// removes it twice.
    copies: HashMap<EngineKey, u32>,
}

impl Tier {
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.young.bytes() + self.old.bytes() + self.copies.capacity() * 17
    }

    pub(crate) fn get(&self, key: EngineKey) -> Option<u64> {
        self.young.get(key.0).or_else(|| if self.old.is_empty() { None } else { self.old.get(key.0) })
    }

    pub(crate) fn store(&mut self, key: EngineKey, hash: u64) -> Stored {
        if !self.old.is_empty()
            && let Some(known) = self.old.get_mut(key.0)
        {
            let before = std::mem::replace(known, hash);
            return self.stored_before(key, before, hash);
        }
        match self.young.insert(key.0, hash) {
            None => Stored::New,
            Some(before) => self.stored_before(key, before, hash),
        }
    }

    fn stored_before(&mut self, key: EngineKey, before: u64, hash: u64) -> Stored {
        if before == hash {
            let copies = self.copies.entry(key).or_default();
            *copies = copies.saturating_add(1);
            Stored::Again
        } else {
            self.copies.remove(&key);
            Stored::Replaced(before)
        }
    }

    pub(crate) fn remove(&mut self, key: EngineKey) -> Removed {
        if !self.copies.is_empty()
            && let Some(copies) = self.copies.get_mut(&key)
        {
            *copies -= 1;
            if *copies == 0 {
                self.copies.remove(&key);
            }
            return Removed::CopyLeft;
        }
        match self.young.remove(key.0).or_else(|| self.old.remove(key.0)) {
            Some(hash) => Removed::Gone(hash),
            None => Removed::Unknown,
        }
    }

    /// With more than half of `limit` blocks in the young generation: the old one goes, and the young one ages.
    /// Gives the blocks that went.
    pub(crate) fn age(&mut self, limit: usize) -> Option<Vec<u64>> {
        if self.young.len() * 2 <= limit {
            return None;
        }
        let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        for (key, _) in gone.iter() {
            self.copies.remove(&EngineKey(key));
        }
        Some(gone.iter().map(|(_, hash)| hash).collect())
    }

    /// Keys and blocks, those of the old generation first.
    pub(crate) fn save(&self) -> SavedTier {
        SavedTier {
            blocks: self.old.iter().chain(self.young.iter()).collect(),
            copies: self.copies.iter().map(|(key, copies)| (key.0, *copies)).collect(),
        }
    }

    /// Takes over the copies of keys that are held.
    pub(crate) fn restore_copies(&mut self, saved: &SavedTier) {
        for (key, copies) in &saved.copies {
            let key = EngineKey(*key);
            if *copies > 0 && self.get(key).is_some() {
                self.copies.insert(key, *copies);
            }
        }
    }

    /// Every block held, one entry for each key.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.young.iter().chain(self.old.iter()).map(|(_, hash)| hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(bits: u64, negative: bool) -> EngineKey {
        EngineKey::from(&EngineHash::Int { bits, negative })
    }

    #[test]
    fn kinds_of_hashes_do_not_meet() {
        // KVE-02: unsigned above 2^63, negative, raw bytes, and the awkward 0.
        let keys = [
            int(0, false),
            int(1, false),
            int(u64::MAX, false),
            int(u64::MAX, true),
            int((-5i64).cast_unsigned(), true),
            int((-5i64).cast_unsigned(), false),
            EngineKey::from(&EngineHash::Bytes(vec![7; 32].into())),
            EngineKey::from(&EngineHash::Bytes(vec![8; 32].into())),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert_ne!(key.0, 0);
            assert!(!keys[at + 1..].contains(key), "{at}");
        }
    }

    #[test]
    fn copies_are_counted() {
        let mut tier = Tier::default();
        let key = int(9, false);
        assert_eq!(tier.store(key, 5), Stored::New);
        assert_eq!(tier.store(key, 5), Stored::Again);
        assert_eq!(tier.remove(key), Removed::CopyLeft);
        assert_eq!(tier.remove(key), Removed::Gone(5));
        assert_eq!(tier.remove(key), Removed::Unknown);
    }

    #[test]
    fn the_oldest_go_first() {
        let mut tier = Tier::default();
        for key in 1..=30u64 {
            tier.store(int(key, false), key);
            if let Some(gone) = tier.age(20) {
                assert!(gone.iter().all(|block| *block + 11 <= key), "{key}: {gone:?}");
            }
            assert!(tier.len() <= 22);
            assert_eq!(tier.get(int(key, false)), Some(key));
        }
    }
}
