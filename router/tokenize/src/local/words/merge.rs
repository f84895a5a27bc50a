//! Merges the letters of a word: the pair of the lowest rank first, and of equal pairs the leftmost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;

use super::pairs::{NONE, Pairs};

/// Number of letters of one byte.
const ASCII: usize = 128;

/// Most letters of a word that is merged by looking at all pairs each time; longer ones use a heap.
const SHORT: usize = 24;

/// The letters of a vocabulary and what becomes of two neighbours.
pub struct Merges {
    /// Ids of letters; those of one byte have a table.
    ascii: [Option<u32>; ASCII],
    letters: HashMap<char, u32>,
    /// Ids of the bytes of letters that have none.
    bytes: [u32; 256],
    pairs: Pairs,
    /// Ranks of two letters of one byte, the left one times [`ASCII`] plus the right one: half of all questions, answered
    /// from memory small enough to stay near.
    ascii_ranks: Box<[u32]>,
}

/// Room that is used again for each word.
#[derive(Default)]
pub struct Scratch {
    ids: Vec<u32>,
    /// Rank of each id and the next one, [`NONE`] where these are not merged.
    ranks: Vec<u32>,
    parts: Vec<Part>,
    proposals: BinaryHeap<Reverse<Proposal>>,
}

/// A letter, or what letters were merged to.
#[derive(Clone, Copy)]
struct Part {
    /// Nothing when its left neighbour has taken it in.
    id: Option<u32>,
    /// The first letter behind it.
    end: u32,
    before: u32,
    after: u32,
}

/// Two neighbours that may be merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Proposal {
    rank: u32,
    left: u32,
    /// Where the right one ends: if it has grown since, this is no more.
    end: u32,
}

impl Merges {
    /// Merges these pairs. Letters without an id become these bytes, which are never merged.
    pub fn new(letters: HashMap<char, u32>, bytes: [u32; 256], pairs: Pairs) -> Self {
        let ascii = std::array::from_fn(|place| letters.get(&char::from(place as u8)).copied());
        let both = ascii.iter().flat_map(|left| ascii.iter().map(move |right| left.zip(*right)));
        let ascii_ranks =
            both.map(|both| both.map_or(NONE, |(left, right)| pairs.rank(left, right))).collect();
        Self { ascii, letters, bytes, pairs, ascii_ranks }
    }

    fn letter(&self, letter: char) -> Option<u32> {
        match self.ascii.get(letter as usize) {
            Some(id) => *id,
            None => self.letters.get(&letter).copied(),
        }
    }

    fn ascii_rank(&self, left: u8, right: u8) -> u32 {
        self.ascii_ranks.get(usize::from(left) * ASCII + usize::from(right)).copied().unwrap_or(NONE)
    }

    /// Appends the ids of a word.
    pub fn merge(&self, word: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        scratch.ids.clear();
        for letter in word.chars() {
            match self.letter(letter) {
                Some(id) => scratch.ids.push(id),
                None => {
                    let mut buffer = [0; 4];
                    let bytes = letter.encode_utf8(&mut buffer).bytes();
                    scratch.ids.extend(bytes.filter_map(|byte| self.bytes.get(usize::from(byte))));
                }
            }
        }
        if scratch.ids.len() <= SHORT {
            self.merge_short(word, scratch);
            out.extend_from_slice(&scratch.ids);
        } else {
            self.merge_long(scratch, out);
        }
    }

    /// Looks at all pairs before each merge: quick while they are few.
    fn merge_short(&self, word: &str, scratch: &mut Scratch) {
        let Scratch { ids, ranks, .. } = scratch;
        let rank = |ids: &[u32], left: usize| match ids.get(left..).and_then(<[u32]>::first_chunk) {
            Some([left, right]) => self.pairs.rank(*left, *right),
            None => NONE,
        };
        ranks.clear();
        if word.is_ascii() {
            ranks.extend(word.as_bytes().windows(2).map(|pair| match pair {
                [left, right] => self.ascii_rank(*left, *right),
                _ => NONE,
            }));
            ranks.push(NONE);
        } else {
            ranks.extend((0..ids.len()).map(|left| rank(ids, left)));
        }
        while let Some((best, at)) = ranks.iter().copied().zip(0_usize..).min()
            && let Some(merged) = self.pairs.merged(best)
        {
            ids.remove(at + 1);
            ranks.remove(at + 1);
            if let Some(left) = ids.get_mut(at) {
                *left = merged;
            }
            for left in at.saturating_sub(1)..=at {
                if let Some(slot) = ranks.get_mut(left) {
                    *slot = rank(ids, left);
                }
            }
        }
    }

    /// Keeps the pairs in order of their ranks.
    fn merge_long(&self, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let Scratch { parts, proposals, ids, .. } = scratch;
        parts.clear();
        proposals.clear();
        parts.extend(ids.iter().zip(0_u32..).map(|(id, at)| Part {
            id: Some(*id),
            end: at + 1,
            before: at.wrapping_sub(1),
            after: at + 1,
        }));
        if let Some(last) = parts.last_mut() {
            last.after = NONE;
        }
        for left in 0..parts.len() as u32 {
            self.propose(parts, left, proposals);
        }
        while let Some(Reverse(best)) = proposals.pop() {
            let Some((left, right)) = neighbours(parts, best.left) else { continue };
            // Both are as they were when this was proposed: a part grows at its right end only.
            if right.end != best.end {
                continue;
            }
            let (taken, after) = (left.after, right.after);
            set(parts, best.left, Part { id: self.pairs.merged(best.rank), end: right.end, after, ..left });
            set(parts, taken, Part { id: None, ..right });
            if let Some(next) = part(parts, after) {
                set(parts, after, Part { before: best.left, ..next });
            }
            self.propose(parts, left.before, proposals);
            self.propose(parts, best.left, proposals);
        }
        out.extend(parts.iter().filter_map(|part| part.id));
    }

    fn propose(&self, parts: &[Part], left: u32, proposals: &mut BinaryHeap<Reverse<Proposal>>) {
        let Some((first, second)) = neighbours(parts, left) else { return };
        let rank = first.id.zip(second.id).map_or(NONE, |(first, second)| self.pairs.rank(first, second));
        if rank != NONE {
            proposals.push(Reverse(Proposal { rank, left, end: second.end }));
        }
    }
}

impl fmt::Debug for Merges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merges").field("pairs", &self.pairs).finish_non_exhaustive()
    }
}

fn part(parts: &[Part], number: u32) -> Option<Part> {
    parts.get(usize::try_from(number).ok()?).copied()
}

/// A part that is still there, and its right neighbour.
fn neighbours(parts: &[Part], left: u32) -> Option<(Part, Part)> {
    let left = part(parts, left).filter(|part| part.id.is_some())?;
    Some((left, part(parts, left.after)?))
}

fn set(parts: &mut [Part], number: u32, part: Part) {
    if let Some(slot) = usize::try_from(number).ok().and_then(|number| parts.get_mut(number)) {
        *slot = part;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LETTERS: [char; 4] = ['a', 'b', 'c', '\u{e9}'];

    /// Letters `a` to `c`, a letter of two bytes, and merges of letters and what was merged before.
    fn merges(pairs: &[(u32, u32)]) -> Merges {
        let pairs = pairs.iter().zip(4..).map(|((left, right), known)| (left % known, right % known, known));
        let pairs = Pairs::of(pairs.collect(), 2_000).unwrap();
        let letters = LETTERS.into_iter().zip(0..).collect();
        Merges::new(letters, std::array::from_fn(|byte| 1000 + byte as u32), pairs)
    }

    /// The rule, word for word.
    fn by_hand(merges: &Merges, mut ids: Vec<u32>) -> Vec<u32> {
        let best = |ids: &[u32]| {
            let ranks = ids.windows(2).map(|pair| merges.pairs.rank(pair[0], pair[1])).zip(0..);
            ranks.filter(|(rank, _)| *rank != NONE).min()
        };
        while let Some((rank, at)) = best(&ids) {
            ids.splice(at..at + 2, merges.pairs.merged(rank));
        }
        ids
    }

    fn merged(merges: &Merges, word: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        merges.merge(word, &mut Scratch::default(), &mut ids);
        ids
    }

    #[test]
    fn letters_without_an_id_become_bytes() {
        let merges = merges(&[(0, 1)]);
        assert_eq!(merged(&merges, "ab\u{ea}ab"), [4, 1000 + 0xc3, 1000 + 0xaa, 4]);
        assert_eq!(merged(&merges, "x"), [1000 + u32::from(b'x')]);
        assert!(merged(&merges, "").is_empty());
    }

    #[test]
    fn of_equal_pairs_the_leftmost_is_merged() {
        let merges = merges(&[(0, 0)]);
        assert_eq!(merged(&merges, "aaaaa"), [4, 4, 0]);
        assert_eq!(merged(&merges, &"a".repeat(101)), [[4; 50].as_slice(), &[0]].concat());
    }

    proptest! {
        #[test]
        fn words_short_and_long_are_merged_by_the_rule(
            pairs in prop::collection::vec((0..40_u32, 0..40_u32), 0..40),
            word in "[abc]{0,60}|[abc\u{e9}]{0,60}",
        ) {
            let merges = merges(&pairs);
            let id = |letter: char| LETTERS.iter().position(|known| *known == letter).unwrap() as u32;
            let letters: Vec<u32> = word.chars().map(id).collect();
            prop_assert_eq!(merged(&merges, &word), by_hand(&merges, letters));
        }
    }
}
