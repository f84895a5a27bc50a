//! The physical blocks: which are in use, which content each holds, and in which order the free ones are reused.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::hash::Hash;

/// A physical block's number.
pub(crate) type BlockId = u32;

/// All blocks of one engine.
///
/// As in vLLM, a free block keeps its content until it is reused. Free blocks stand in one line: the front is
/// reused first, freed blocks join at the back. Two blocks may hold the same content. A block that was freed
/// without content (the unfilled last one of a sequence) joins at the back in vLLM 0.18 and at the front in 0.32.
#[derive(Debug)]
pub(crate) struct Blocks {
    slots: Vec<Slot>,
    free: usize,
    by_hash: HashMap<Hash, SmallVec<[BlockId; 1]>>,
    empty_first: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    content: Option<Hash>,
    users: u32,
    previous: BlockId,
    next: BlockId,
}

impl Blocks {
    /// `count` empty blocks, all free, in ascending order. With `empty_first`, blocks freed without content are
    /// reused before all others.
    pub(crate) fn new(count: usize, empty_first: bool) -> Self {
        // The last slot is the two ends of the line of free blocks; it is never handed out.
        let end = count as BlockId;
        let slots = (0..=end)
            .map(|id| Slot {
                content: None,
                users: 0,
                previous: if id == 0 { end } else { id - 1 },
                next: if id == end { 0 } else { id + 1 },
            })
            .collect();
        Self { slots, free: count, by_hash: HashMap::new(), empty_first }
    }

    /// Blocks in all.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - 1
    }

    /// Blocks that nobody uses.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Whether some block holds `hash`.
    pub(crate) fn holds(&self, hash: Hash) -> bool {
        self.by_hash.contains_key(&hash)
    }

    /// The block that has held `hash` for the longest time, and whether it is free.
    pub(crate) fn find(&self, hash: Hash) -> Option<(BlockId, bool)> {
        let id = *self.by_hash.get(&hash)?.first()?;
        Some((id, self.slots[id as usize].users == 0))
    }

    /// One more user of `id`.
    pub(crate) fn pin(&mut self, id: BlockId) {
        if self.slots[id as usize].users == 0 {
            self.unlink(id);
        }
        self.slots[id as usize].users += 1;
    }

    /// The free block whose turn it is, now in use, and the content it lost.
    pub(crate) fn take(&mut self) -> Option<(BlockId, Option<Hash>)> {
        let id = self.slots[self.count()].next;
        if id as usize == self.count() {
            return None;
        }
        let lost = self.slots[id as usize].content.take();
        if let Some(hash) = lost {
            self.forget(hash, id);
        }
        self.pin(id);
        Some((id, lost))
    }

    /// `id` now holds `hash`.
    pub(crate) fn fill(&mut self, id: BlockId, hash: Hash) {
        if let Some(old) = self.slots[id as usize].content.replace(hash) {
            self.forget(old, id);
        }
        self.by_hash.entry(hash).or_default().push(id);
    }

    /// One user less; the last one sends the block into the line.
    pub(crate) fn release(&mut self, id: BlockId) {
        let slot = &mut self.slots[id as usize];
        slot.users = slot.users.saturating_sub(1);
        if slot.users > 0 {
            return;
        }
        let to_front = self.empty_first && slot.content.is_none();
        let end = self.count() as BlockId;
        let (previous, next) = if to_front {
            (end, self.slots[end as usize].next)
        } else {
            (self.slots[end as usize].previous, end)
        };
        self.slots[id as usize].previous = previous;
        self.slots[id as usize].next = next;
        self.slots[previous as usize].next = id;
        self.slots[next as usize].previous = id;
        self.free += 1;
    }

    /// Empties every block; refused (false) while one is in use.
    pub(crate) fn clear(&mut self) -> bool {
        if self.free < self.count() {
            return false;
        }
        self.by_hash.clear();
        self.slots.iter_mut().for_each(|slot| slot.content = None);
        true
    }

    /// Distinct contents held.
    pub(crate) fn contents(&self) -> usize {
        self.by_hash.len()
    }

    fn unlink(&mut self, id: BlockId) {
        let Slot { previous, next, .. } = self.slots[id as usize];
        self.slots[previous as usize].next = next;
        self.slots[next as usize].previous = previous;
        self.free -= 1;
    }

    fn forget(&mut self, hash: Hash, id: BlockId) {
        if let Some(holders) = self.by_hash.get_mut(&hash) {
            holders.retain(|holder| *holder != id);
            if holders.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_are_reused_in_the_order_in_which_they_were_freed() {
        let mut blocks = Blocks::new(3, true);
        let taken: Vec<BlockId> = (0..3).map(|_| blocks.take().expect("free").0).collect();
        assert_eq!(taken, [0, 1, 2]);
        assert_eq!(blocks.take(), None);
        for (id, hash) in [(2, 20), (0, 10), (1, 11)] {
            blocks.fill(id, hash);
            blocks.release(id);
        }
        assert_eq!(blocks.take(), Some((2, Some(20))));
        assert!(!blocks.holds(20));
        assert_eq!(blocks.take(), Some((0, Some(10))));
    }

    #[test]
    fn a_hit_moves_a_block_to_the_back_of_the_line() {
        let mut blocks = Blocks::new(2, true);
        for hash in [10, 11] {
            let (id, _) = blocks.take().expect("free");
            blocks.fill(id, hash);
        }
        blocks.release(0);
        blocks.release(1);
        let (hit, was_free) = blocks.find(10).expect("held");
        assert!(was_free);
        blocks.pin(hit);
        blocks.pin(hit);
        blocks.release(hit);
        assert_eq!(blocks.free(), 1, "two users, one left");
        blocks.release(hit);
        assert_eq!(blocks.take(), Some((1, Some(11))));
    }

    #[test]
    fn equal_content_in_two_blocks_is_held_until_both_are_gone() {
        let mut blocks = Blocks::new(2, true);
        for _ in 0..2 {
            let (id, _) = blocks.take().expect("free");
            blocks.fill(id, 5);
        }
        blocks.release(0);
        blocks.release(1);
        assert_eq!(blocks.contents(), 1);
        assert_eq!(blocks.take(), Some((0, Some(5))));
        assert!(blocks.holds(5));
        assert_eq!(blocks.take(), Some((1, Some(5))));
        assert!(!blocks.holds(5));
    }

    #[test]
    fn a_block_freed_without_content_is_reused_first_or_last() {
        for (empty_first, next) in [(true, 1), (false, 2)] {
            let mut blocks = Blocks::new(3, empty_first);
            blocks.take();
            blocks.take();
            blocks.fill(0, 10);
            blocks.release(1);
            blocks.release(0);
            assert_eq!(blocks.take(), Some((next, None)));
        }
    }

    #[test]
    fn a_block_in_use_forbids_the_clear() {
        let mut blocks = Blocks::new(2, true);
        let (id, _) = blocks.take().expect("free");
        blocks.fill(id, 1);
        assert!(!blocks.clear());
        assert!(blocks.holds(1));
        blocks.release(id);
        assert!(blocks.clear());
        assert_eq!((blocks.contents(), blocks.free()), (0, 2));
    }
}
