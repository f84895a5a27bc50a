//! A compact map of 64-bit keys to 64-bit values: 16 bytes a place, at least half of the places in use.
//!
//! The standard map doubles, so that a place costs up to 39 bytes just after it grew; millions of blocks are
//! held here, and one and a half times the size is enough. Keys are hashes already, but an engine or a client
//! may choose them, so their places depend on a number drawn at the start of the process.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Fewest places of a table that is in use.
const SMALLEST: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// 0 for a free place.
    key: u64,
    value: u64,
}

/// Open addressing with linear probing and backward shift: no tombstones, so churn does not slow it down.
#[derive(Debug)]
pub(crate) struct Table {
    places: Vec<Place>,
    len: usize,
    secret: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self { places: Vec::new(), len: 0, secret: RandomState::new().build_hasher().finish() }
    }
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }

    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        self.find(key).map(|at| self.places[at].value)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut u64> {
        self.find(key).map(|at| &mut self.places[at].value)
    }

    /// Sets the value and gives the earlier one. The key must not be 0.
    pub(crate) fn insert(&mut self, key: u64, value: u64) -> Option<u64> {
        debug_assert_ne!(key, 0);
        if (self.len + 1) * 5 > self.places.len() * 4 {
            self.rebuild((self.places.len() + self.places.len() / 2).max(SMALLEST));
        }
        let mut at = self.home(key);
        loop {
            let place = &mut self.places[at];
            if place.key == key {
                return Some(std::mem::replace(&mut place.value, value));
            }
            if place.key == 0 {
                *place = Place { key, value };
                self.len += 1;
                return None;
            }
            at = self.after(at);
        }
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<u64> {
        let mut hole = self.find(key)?;
        let value = self.places[hole].value;
        let mut at = hole;
        loop {
            at = self.after(at);
            let place = self.places[at];
            if place.key == 0 {
                break;
            }
            // A key may move back into the hole unless its home lies after the hole.
            if self.distance(self.home(place.key), at) >= self.distance(hole, at) {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = Place::default();
        self.len -= 1;
        if self.places.len() > 64 * SMALLEST && self.len * 4 < self.places.len() {
            self.rebuild(self.len * 2);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.places.iter().filter(|place| place.key != 0).map(|place| (place.key, place.value))
    }

    fn find(&self, key: u64) -> Option<usize> {
        if self.len == 0 || key == 0 {
            return None;
        }
        let mut at = self.home(key);
        loop {
            let found = self.places[at].key;
            if found == key {
                return Some(at);
            }
            if found == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    fn home(&self, key: u64) -> usize {
        let product =
            u128::from(key ^ self.secret) * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ self.secret << 1 | 1);
        let mixed = (product >> 64) as u64 ^ product as u64;
        ((u128::from(mixed) * self.places.len() as u128) >> 64) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.places.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.places.len() - from }
    }

    fn rebuild(&mut self, places: usize) {
        let old = std::mem::replace(&mut self.places, vec![Place::default(); places]);
        for place in old.into_iter().filter(|place| place.key != 0) {
            let mut at = self.home(place.key);
            while self.places[at].key != 0 {
                at = self.after(at);
            }
            self.places[at] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_stays_cheap() {
        let mut table = Table::default();
        for key in 1..=100_000u64 {
            table.insert(key, key);
            assert!(table.len() < 64 || table.bytes() <= table.len() * 31, "{} keys", table.len());
        }
        for key in 1..=99_990u64 {
            assert_eq!(table.remove(key), Some(key));
        }
        assert!(table.bytes() < 64 * SMALLEST * 32);
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(ops in proptest::collection::vec((0u8..3, 1u64..40, any::<u64>()), 0..600)) {
            let mut table = Table::default();
            let mut model = HashMap::new();
            for (op, key, value) in ops {
                match op {
                    0 => prop_assert_eq!(table.insert(key, value), model.insert(key, value)),
                    1 => prop_assert_eq!(table.remove(key), model.remove(&key)),
                    _ => prop_assert_eq!(table.get(key), model.get(&key).copied()),
                }
                prop_assert_eq!(table.len(), model.len());
            }
            prop_assert_eq!(table.iter().collect::<HashMap<_, _>>(), model);
        }
    }
}
