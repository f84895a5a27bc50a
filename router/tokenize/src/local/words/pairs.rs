//! The list of merges: which two ids become which third, and in what order, in as little memory as it takes.
//!
//! Merging a word asks for a dozen pairs all over the list: what that takes is the time until memory answers, and less
//! memory answers sooner. A pair and its rank are one number here.

use std::fmt;

/// The rank of a pair that is not merged.
pub const NONE: u32 = u32::MAX;

/// Bits of an id in a slot.
const ID_BITS: u32 = 21;

/// Bits of a rank in a slot.
const RANK_BITS: u32 = u64::BITS - 2 * ID_BITS;

/// A slot without a pair. Its ids would be the two highest, which are not allowed.
const EMPTY: u64 = u64::MAX;

/// Spreads pairs over slots: the fractional part of the golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The merges of one vocabulary. No text can make lookups slow: what it holds was chosen by the vocabulary's maker.
pub struct Pairs {
    /// Left id, right id and rank. At most half of the slots are taken; a pair is in the first free one at or behind its
    /// place.
    slots: Box<[u64]>,
    /// What a pair becomes, by rank.
    merged: Box<[u32]>,
}

impl Pairs {
    /// Merges left, right and what they become, the first to be merged first; of equal pairs the last one counts. None of
    /// the vocabulary's ids is higher than `highest`. `None` where that or the number of merges is too high for a slot.
    pub fn of(merges: Vec<(u32, u32, u32)>, highest: u32) -> Option<Self> {
        if merges.len() >= 1 << RANK_BITS || highest >= (1 << ID_BITS) - 1 {
            return None;
        }
        let slots = (merges.len() * 2).max(2).next_power_of_two();
        let mut pairs = Self {
            slots: vec![EMPTY; slots].into_boxed_slice(),
            merged: merges.iter().map(|(_, _, merged)| *merged).collect(),
        };
        for ((left, right, _), rank) in merges.into_iter().zip(0_u64..) {
            let (pair, place) = (pair(left, right), pairs.place(pair(left, right)));
            let free = pairs.slots.iter().cycle().skip(place).position(|slot| is_end(*slot, pair))?;
            let mask = pairs.slots.len() - 1;
            *pairs.slots.get_mut((place + free) & mask)? = pair << RANK_BITS | rank;
        }
        Some(pairs)
    }

    /// The rank of a pair.
    #[inline]
    pub fn rank(&self, left: u32, right: u32) -> u32 {
        let pair = pair(left, right);
        let mut place = self.place(pair);
        loop {
            match self.slots.get(place) {
                Some(slot) if *slot == EMPTY => return NONE,
                Some(slot) if slot >> RANK_BITS == pair => return (slot & ((1 << RANK_BITS) - 1)) as u32,
                Some(_) => place = (place + 1) & (self.slots.len() - 1),
                None => return NONE,
            }
        }
    }

    /// What the pair of a rank becomes; nothing for [`NONE`].
    #[inline]
    pub fn merged(&self, rank: u32) -> Option<u32> {
        self.merged.get(usize::try_from(rank).ok()?).copied()
    }

    fn place(&self, pair: u64) -> usize {
        let mixed = pair.wrapping_mul(SPREAD);
        (mixed >> 32) as usize & (self.slots.len() - 1)
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pairs").field("merges", &self.merged.len()).finish_non_exhaustive()
    }
}

/// Whether a search for a pair ends here.
fn is_end(slot: u64, pair: u64) -> bool {
    slot == EMPTY || slot >> RANK_BITS == pair
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << ID_BITS | u64::from(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_its_rank_and_no_other_has_one() {
        let merges: Vec<(u32, u32, u32)> =
            (0..3_000).map(|n| (n % 50, (n * 7_919) % (1 << 20), 100_000 + n)).collect();
        let pairs = Pairs::of(merges.clone(), 1 << 20).unwrap();
        let mut found = 0;
        for ((left, right, merged), rank) in merges.iter().zip(0..) {
            assert_eq!(pairs.rank(*left, *right), rank);
            assert_eq!(pairs.merged(rank), Some(*merged));
            found += usize::from(pairs.rank(*right, *left) != NONE);
            assert_eq!(pairs.rank(51, *right), NONE);
        }
        assert!(found < 10, "{found}");
        assert_eq!(pairs.merged(NONE), None);
    }

    #[test]
    fn of_equal_pairs_the_last_one_counts() {
        let pairs = Pairs::of(vec![(1, 2, 3), (4, 5, 6), (1, 2, 7)], 7).unwrap();
        assert_eq!((pairs.rank(1, 2), pairs.merged(2)), (2, Some(7)));
        assert_eq!(Pairs::of(Vec::new(), 0).unwrap().rank(0, 0), NONE);
    }

    #[test]
    fn ids_that_do_not_fit_are_told() {
        let highest = (1 << ID_BITS) - 2;
        let pairs = Pairs::of(vec![(highest, highest, 3), (0, 0, 4)], highest).unwrap();
        assert_eq!((pairs.rank(highest, highest), pairs.rank(0, 0), pairs.rank(highest, 0)), (0, 1, NONE));
        assert!(Pairs::of(Vec::new(), highest + 1).is_none() && Pairs::of(Vec::new(), u32::MAX).is_none());
    }
}
