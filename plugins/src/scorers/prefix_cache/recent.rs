//! The hashes that one endpoint saw most recently, bounded.

use std::collections::HashMap;

/// Stands for "no entry" in the links.
const NONE: u32 = u32::MAX;

/// Least recently used entries leave first. Every operation takes constant time.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    places: HashMap<u64, u32>,
    entries: Vec<Entry>,
    newest: u32,
    oldest: u32,
}

/// One hash, linked to its neighbours in time.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    newer: u32,
    older: u32,
}

impl Recent {
    /// Room for `capacity` hashes; memory is taken as they come.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(NONE as usize - 1);
        Self { capacity, places: HashMap::new(), entries: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether `hash` is remembered; does not refresh it.
    pub fn contains(&self, hash: u64) -> bool {
        self.places.contains_key(&hash)
    }

    /// Makes `hash` the newest. True when another one had to leave for it.
    pub fn touch(&mut self, hash: u64) -> bool {
        if let Some(&place) = self.places.get(&hash) {
            self.unlink(place);
            self.link_newest(place);
            return false;
        }
        if self.capacity == 0 {
            return false;
        }
        let full = self.entries.len() >= self.capacity;
        let place = if full { self.reuse_oldest(hash) } else { self.append(hash) };
        self.places.insert(hash, place);
        self.link_newest(place);
        full
    }

    fn append(&mut self, hash: u64) -> u32 {
        self.entries.push(Entry { hash, newer: NONE, older: NONE });
        // `capacity` is below `u32::MAX`, and there are never more entries than that.
        (self.entries.len() - 1) as u32
    }

    fn reuse_oldest(&mut self, hash: u64) -> u32 {
        let place = self.oldest;
        self.unlink(place);
        if let Some(entry) = self.entries.get_mut(place as usize) {
            self.places.remove(&entry.hash);
            entry.hash = hash;
        }
        place
    }

    fn unlink(&mut self, place: u32) {
        let Some(&Entry { newer, older, .. }) = self.entries.get(place as usize) else { return };
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let before = self.newest;
        if let Some(entry) = self.entries.get_mut(place as usize) {
            entry.newer = NONE;
            entry.older = before;
        }
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn it_behaves_like_a_list_in_order_of_use(
            capacity in 0_usize..6,
            hashes in proptest::collection::vec(0_u64..10, 0..200),
        ) {
            let mut recent = Recent::new(capacity);
            let mut model: Vec<u64> = Vec::new();
            for hash in hashes {
                let known = model.iter().position(|other| *other == hash);
                if let Some(at) = known {
                    model.remove(at);
                }
                model.insert(0, hash);
                let evicted = recent.touch(hash);
                prop_assert_eq!(evicted, capacity > 0 && model.len() > capacity);
                model.truncate(capacity);
                prop_assert_eq!(recent.len(), model.len());
                prop_assert!((0..10).all(|hash| recent.contains(hash) == model.contains(&hash)));
            }
        }
    }
}
