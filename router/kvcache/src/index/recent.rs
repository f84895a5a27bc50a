//! What we placed at one owner ourselves: by last use within a capacity, or until a deadline.

use std::collections::VecDeque;

use super::table::Table;

/// Blocks with a stamp each, in the order of their stamps. A stamp is a use counter or a deadline, and never
/// falls from one entry to the next.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    stamps: Table,
    /// Block and the stamp it got; out of date when the block has another stamp by now.
    order: VecDeque<(u64, u64)>,
}

impl Recent {
    pub(crate) fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Enters or refreshes a block.
    pub(crate) fn touch(&mut self, block: u64, stamp: u64) {
        self.stamps.insert(block, stamp);
        self.order.push_back((block, stamp));
        if self.order.len() > 64 && self.order.len() > self.stamps.len() * 2 {
            let stamps = &self.stamps;
            self.order.retain(|(block, stamp)| stamps.get(*block) == Some(*stamp));
        }
    }

    /// Takes a block out if it still has the stamp.
    pub(crate) fn remove(&mut self, block: u64, stamp: u64) -> bool {
        let same = self.stamps.get(block) == Some(stamp);
        if same {
            self.stamps.remove(block);
        }
        same
    }

    /// Takes a block out whatever its stamp.
    pub(crate) fn forget(&mut self, block: u64) -> bool {
        self.stamps.remove(block).is_some()
    }

    /// The lowest stamp in use.
    pub(crate) fn first_stamp(&mut self) -> Option<u64> {
        while let Some((block, stamp)) = self.order.front().copied() {
            if self.stamps.get(block) == Some(stamp) {
                return Some(stamp);
            }
            self.order.pop_front();
        }
        None
    }

    /// Takes the block with the lowest stamp out.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        while let Some((block, stamp)) = self.order.pop_front() {
            if self.remove(block, stamp) {
                return Some(block);
            }
        }
        None
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<u64> {
        self.order = VecDeque::new();
        std::mem::take(&mut self.stamps).iter().map(|(block, _)| block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_leaves_first() {
        let mut recent = Recent::default();
        for (stamp, block) in [1, 2, 3, 1].into_iter().enumerate() {
            recent.touch(block, stamp as u64);
        }
        assert_eq!(recent.first_stamp(), Some(1));
        assert!(!recent.remove(1, 0) && recent.stamps.get(1).is_some());
        assert_eq!(
            [recent.pop(), recent.pop(), recent.pop(), recent.pop()],
            [Some(2), Some(3), Some(1), None]
        );
    }

    #[test]
    fn refreshing_does_not_grow_it() {
        let mut recent = Recent::default();
        for stamp in 0..100_000 {
            recent.touch(stamp % 3 + 1, stamp);
        }
        assert_eq!(recent.len(), 3);
        assert!(recent.order.len() <= 65);
    }
}
