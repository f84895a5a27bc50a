//! Which owners hold a block: one 64-bit word for up to three of them, a sorted list for more.

use parking_lot::RwLock;

use super::table::Table;

/// Highest slot number that fits a packed word (18 bits).
pub(crate) const MAX_SLOT: u32 = (1 << 18) - 1;

/// Shards of one model's map: enough that 64 engines seldom meet, few enough that an empty model is small.
const SHARDS: usize = 64;

/// How an owner holds a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hold(u32);

impl Hold {
    /// In GPU memory, by its own events.
    pub(crate) const GPU: Self = Self(1);
    /// By our own placements, not confirmed.
    pub(crate) const PREDICTED: Self = Self(2);
    /// On another tier, by its own events: to be loaded, not at hand.
    pub(crate) const OTHER_TIER: Self = Self(4);

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Bits of one owner in a packed word or a list: slot and hold.
const ENTRY_BITS: u32 = 21;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;
const INLINE: usize = 3;

fn entry(slot: u32, hold: Hold) -> u32 {
    slot << 3 | hold.0
}

fn slot_of(entry: u32) -> u32 {
    entry >> 3
}

/// The owners of one block, borrowed from the map.
#[derive(Debug)]
pub(crate) enum Holders<'a> {
    /// Packed: bit 0 set, then three entries of 21 bits, an entry without hold being free.
    Packed(u64),
    /// Sorted by slot.
    List(&'a [u32]),
}

impl Holders<'_> {
    /// Calls `visit` for each owner.
    pub(crate) fn visit(&self, mut visit: impl FnMut(u32, Hold)) {
        match self {
            Self::Packed(word) => {
                for packed in unpack(*word).into_iter().filter(|packed| *packed != 0) {
                    visit(slot_of(packed), Hold(packed & 7));
                }
            }
            Self::List(list) => list.iter().for_each(|packed| visit(slot_of(*packed), Hold(*packed & 7))),
        }
    }
}

fn unpack(word: u64) -> [u32; INLINE] {
    [1, 1 + ENTRY_BITS, 1 + 2 * ENTRY_BITS].map(|shift| (word >> shift & ENTRY_MASK) as u32)
}

fn pack(entries: [u32; INLINE]) -> u64 {
    let [a, b, c] = entries.map(u64::from);
    1 | a << 1 | b << (1 + ENTRY_BITS) | c << (1 + 2 * ENTRY_BITS)
}

#[derive(Debug, Default)]
struct Shard {
    /// Block hash to a packed word (odd) or twice the number of a list (even).
    table: Table,
    lists: Vec<Vec<u32>>,
    free: Vec<usize>,
}

impl Shard {
    fn holders(&self, word: u64) -> Holders<'_> {
        if word & 1 == 1 {
            Holders::Packed(word)
        } else {
            Holders::List(self.lists.get((word >> 1) as usize).map_or(&[], Vec::as_slice))
        }
    }

    /// Adds `hold`; gives what the owner had before.
    fn add(&mut self, hash: u64, slot: u32, hold: Hold) -> Hold {
        let Some(word) = self.table.get_mut(hash) else {
            self.table.insert(hash, pack([entry(slot, hold), 0, 0]));
            return Hold::default();
        };
        if *word & 1 == 0 {
            let Some(list) = self.lists.get_mut((*word >> 1) as usize) else { return Hold::default() };
            return match list.binary_search_by_key(&slot, |packed| slot_of(*packed)) {
                Ok(at) => {
                    let before = Hold(list[at] & 7);
                    list[at] |= hold.0;
                    before
                }
                Err(at) => {
                    list.insert(at, entry(slot, hold));
                    Hold::default()
                }
            };
        }
        let mut entries = unpack(*word);
        if let Some(found) = entries.iter_mut().find(|packed| **packed != 0 && slot_of(**packed) == slot) {
            let before = Hold(*found & 7);
            *found |= hold.0;
            *word = pack(entries);
            return before;
        }
        if let Some(free) = entries.iter_mut().find(|packed| **packed == 0) {
            *free = entry(slot, hold);
            *word = pack(entries);
            return Hold::default();
        }
        let mut list = Vec::with_capacity(INLINE + 1);
        list.extend(entries);
        list.push(entry(slot, hold));
        list.sort_unstable();
        let number = match self.free.pop() {
            Some(number) => {
                self.lists[number] = list;
                number
            }
            None => {
                self.lists.push(list);
                self.lists.len() - 1
            }
        };
        *word = (number as u64) << 1;
        Hold::default()
    }

    /// Takes `hold` away; gives what the owner had before.
    fn take(&mut self, hash: u64, slot: u32, hold: Hold) -> Hold {
        let Some(word) = self.table.get_mut(hash) else { return Hold::default() };
        if *word & 1 == 1 {
            let mut entries = unpack(*word);
            let Some(found) = entries.iter_mut().find(|packed| **packed != 0 && slot_of(**packed) == slot)
            else {
                return Hold::default();
            };
            let before = Hold(*found & 7);
            *found &= !hold.0;
            if *found & 7 == 0 {
                *found = 0;
            }
            if entries == [0; INLINE] {
                self.table.remove(hash);
            } else {
                *word = pack(entries);
            }
            return before;
        }
        let number = (*word >> 1) as usize;
        let Some(list) = self.lists.get_mut(number) else { return Hold::default() };
        let Ok(at) = list.binary_search_by_key(&slot, |packed| slot_of(*packed)) else {
            return Hold::default();
        };
        let before = Hold(list[at] & 7);
        list[at] &= !hold.0;
        if list[at] & 7 == 0 {
            list.remove(at);
        }
        if let [a, b] = list[..] {
            *word = pack([a, b, 0]);
            self.lists[number] = Vec::new();
            self.free.push(number);
        }
        before
    }
}

/// One model's blocks and their owners, in shards with a lock each. No lock is held from one block to the next.
#[derive(Debug)]
pub(crate) struct BlockMap {
    shards: Box<[RwLock<Shard>]>,
}

impl Default for BlockMap {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }
}

impl BlockMap {
    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    pub(crate) fn add(&self, hash: u64, slot: u32, hold: Hold) -> Hold {
        self.shard(hash).write().add(hash, slot, hold)
    }

    pub(crate) fn take(&self, hash: u64, slot: u32, hold: Hold) -> Hold {
        self.shard(hash).write().take(hash, slot, hold)
    }

    /// Looks at a block's owners; false when it has none.
    pub(crate) fn look(&self, hash: u64, visit: impl FnMut(u32, Hold)) -> bool {
        let shard = self.shard(hash).read();
        let Some(word) = shard.table.get(hash) else { return false };
        shard.holders(word).visit(visit);
        true
    }

    /// Distinct blocks held by anyone.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().table.len()).sum()
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let list = |list: &Vec<u32>| list.capacity() * 4 + size_of::<Vec<u32>>();
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.read();
                shard.table.bytes() + shard.lists.iter().map(list).sum::<usize>() + shard.free.capacity() * 8
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_behave_as_sets(ops in proptest::collection::vec((any::<bool>(), 0u32..7, 0u32..3), 0..300)) {
            let map = BlockMap::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (add, slot, bit) in ops {
                let hold = Hold(1 << bit);
                let slot = slot * 30_000;
                let before = model.get(&slot).copied().unwrap_or(0);
                if add {
                    prop_assert_eq!(map.add(42, slot, hold), Hold(before));
                    model.insert(slot, before | hold.0);
                } else {
                    prop_assert_eq!(map.take(42, slot, hold), Hold(before));
                    model.insert(slot, before & !hold.0);
                }
                model.retain(|_, bits| *bits != 0);
                let mut seen = BTreeMap::new();
                let found = map.look(42, |slot, hold| { seen.insert(slot, hold.0); });
                prop_assert_eq!(&seen, &model);
                prop_assert_eq!(found, !model.is_empty());
                prop_assert_eq!(map.len(), usize::from(found));
            }
        }
    }
}
