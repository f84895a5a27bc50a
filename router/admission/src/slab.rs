//! Entries that are found by a small number, which is given out again once an entry is gone.

/// A number that stands for no entry.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(place) = self.entries.get_mut(number as usize)
        {
            *place = Some(entry);
            return number;
        }
        self.entries.push(Some(entry));
        // Bounded by the most that wait and the most users, far below 32 bits.
        (self.entries.len() - 1) as u32
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let entry = self.entries.get_mut(number as usize)?.take()?;
        self.free.push(number);
        // A crowd is gone, and so is the room that it needed.
        if self.free.len() == self.entries.len() && self.entries.len() > 1024 {
            (self.entries, self.free) = (Vec::new(), Vec::new());
        }
        Some(entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = self.entries.iter().enumerate();
        numbered.filter_map(|(number, entry)| Some((number as u32, entry.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_again() {
        let mut slab = Slab::new();
        assert_eq!((slab.insert('a'), slab.insert('b'), slab.len()), (0, 1, 2));
        assert_eq!(
            (slab.remove(0), slab.remove(0), slab.remove(NONE), slab.len()),
            (Some('a'), None, None, 1)
        );
        assert_eq!((slab.insert('c'), slab.get(0), slab.get(2)), (0, Some(&'c'), None));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'c'), (1, &'b')]);
    }

    #[test]
    fn the_room_of_a_crowd_is_given_back() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..5000).map(|entry| slab.insert(entry)).collect();
        for number in numbers {
            slab.remove(number);
        }
        assert_eq!((slab.entries.capacity(), slab.free.capacity(), slab.len()), (0, 0, 0));
    }
}
