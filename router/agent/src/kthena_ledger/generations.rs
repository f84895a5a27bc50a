//! A table by rank, group and engine hash that can let its older half go at once.

use std::collections::HashMap;

use kvasir_core::EngineHash;

/// One KV-cache group of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) group: u32,
}

type Table<V> = HashMap<EngineHash, V>;

/// Entries in two generations. An engine that tells what it evicts never fills the older one to its end; one whose
/// removals get lost would fill memory without it.
#[derive(Debug)]
pub(super) struct Generations<V> {
    young: HashMap<Place, Table<V>>,
    old: HashMap<Place, Table<V>>,
    young_len: usize,
    old_len: usize,
}

impl<V> Default for Generations<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_len: 0, old_len: 0 }
    }
}

impl<V> Generations<V> {
    pub(super) fn len(&self) -> usize {
        self.young_len + self.old_len
    }

    pub(super) fn get(&self, place: Place, name: &EngineHash) -> Option<&V> {
        let of =
            |tables: &'_ HashMap<Place, Table<V>>| tables.get(&place).map(|table| table.contains_key(name));
        let tables = if of(&self.young) == Some(true) { &self.young } else { &self.old };
        tables.get(&place)?.get(name)
    }

    pub(super) fn get_mut(&mut self, place: Place, name: &EngineHash) -> Option<&mut V> {
        let young = self.young.get(&place).is_some_and(|table| table.contains_key(name));
        let tables = if young { &mut self.young } else { &mut self.old };
        tables.get_mut(&place)?.get_mut(name)
    }

    /// Enters a value and gives the one before it.
    pub(super) fn insert(&mut self, place: Place, name: EngineHash, value: V) -> Option<V> {
        let before = self.remove(place, &name);
        self.young.entry(place).or_default().insert(name, value);
        self.young_len += 1;
        before
    }

    pub(super) fn remove(&mut self, place: Place, name: &EngineHash) -> Option<V> {
        if let Some(value) = self.young.get_mut(&place).and_then(|table| table.remove(name)) {
            self.young_len -= 1;
            return Some(value);
        }
        let value = self.old.get_mut(&place)?.remove(name)?;
        self.old_len -= 1;
        Some(value)
    }

    /// Takes all entries of some places out.
    pub(super) fn take_where(&mut self, gone: impl Fn(Place) -> bool) -> Vec<(EngineHash, V)> {
        let mut taken = Vec::new();
        for (tables, len) in [(&mut self.young, &mut self.young_len), (&mut self.old, &mut self.old_len)] {
            tables.retain(|place, table| {
                let leaves = gone(*place);
                if leaves {
                    *len -= table.len();
                    taken.extend(table.drain());
                }
                !leaves
            });
        }
        taken
    }

    /// With more than half of `limit` entries in the young generation: the old one goes, and the young one ages.
    pub(super) fn age(&mut self, limit: usize) -> Option<Vec<(EngineHash, V)>> {
        if self.young_len * 2 <= limit {
            return None;
        }
        let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        self.old_len = std::mem::take(&mut self.young_len);
        Some(gone.into_values().flatten().collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &EngineHash, &V)> {
        let all = self.young.iter().chain(&self.old);
        all.flat_map(|(place, table)| table.iter().map(|(name, value)| (*place, name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place = Place { rank: 0, group: 0 };

    fn name(bits: u64) -> EngineHash {
        EngineHash::Int { bits, negative: false }
    }

    #[test]
    fn the_older_half_goes_when_the_limit_is_reached() {
        let mut table = Generations::default();
        for bits in 0..3 {
            assert_eq!(table.insert(HERE, name(bits), bits), None);
        }
        assert_eq!(table.age(4).map(|gone| gone.len()), Some(0), "nothing was old yet");
        assert_eq!((table.len(), table.get(HERE, &name(1))), (3, Some(&1)));
        assert_eq!(table.insert(HERE, name(1), 11), Some(1), "a value stored anew is young again");
        table.insert(HERE, name(4), 4);
        table.insert(HERE, name(5), 5);
        let gone = table.age(4).unwrap_or_default();
        assert_eq!(gone.len(), 2, "0 and 2 were never touched again");
        assert_eq!((table.len(), table.get(HERE, &name(1)), table.get(HERE, &name(0))), (3, Some(&11), None));
    }

    #[test]
    fn places_are_told_apart() {
        let mut table = Generations::default();
        let there = Place { rank: 1, group: 0 };
        table.insert(HERE, name(1), 1);
        table.insert(there, name(1), 2);
        assert_eq!(table.take_where(|place| place.rank == 0), [(name(1), 1)]);
        assert_eq!(
            (table.len(), table.remove(HERE, &name(1)), table.remove(there, &name(1))),
            (1, None, Some(2))
        );
        assert_eq!(table.len(), 0);
    }
}
