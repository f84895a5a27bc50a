//! Where no merge can cross: the places at which a text falls into words.
//!
//! A merge joins two neighbours and is listed by name: what it joins ends with one letter and begins with another. Where
//! no listed merge has the two letters at a place of the text at its seam, nothing is ever joined across that place, in
//! whatever order merges are done. What is left of it and what is right of it is then merged as if the other were not
//! there: among the merges of one side, the one of the lowest rank, and of these the leftmost, is next with or without
//! the other side's. The same holds for added tokens, none of which may hold the two letters side by side.
//!
//! Letters are told by one byte each, the last of the left one and the first of the right one: two that share these bytes
//! share the answer, which then is "no cut" if it is that for one.

use std::ops::Range;

/// Places that are looked at together.
const BLOCK: usize = 64;

/// Whether a text may be cut between two bytes.
pub struct Cuts {
    /// By the byte on the right, times 256, plus the byte on the left.
    apart: Box<[bool; 1 << 16]>,
}

impl Cuts {
    /// All places are cuts but those inside a letter.
    pub fn everywhere() -> Self {
        let mut apart = Box::new([false; 1 << 16]);
        let starts_letter = |byte: u8| !(0x80..0xc0).contains(&byte);
        for (slot, pair) in apart.iter_mut().zip(0..=u16::MAX) {
            let [_, right] = pair.to_le_bytes();
            *slot = starts_letter(right);
        }
        Self { apart }
    }

    /// No cut between these bytes.
    pub fn close(&mut self, left: u8, right: u8) {
        if let Some(slot) = self.apart.get_mut(pair(left, right)) {
            *slot = false;
        }
    }

    /// Whether the place between two bytes is a cut.
    #[inline]
    pub fn between(&self, left: u8, right: u8) -> bool {
        self.apart.get(pair(left, right)) == Some(&true)
    }

    /// The words of a text: the ranges of their bytes.
    pub fn words<'a>(&'a self, bytes: &'a [u8]) -> Words<'a> {
        Words { cuts: self, bytes, start: 0, block: 0, ends: self.ends(bytes, 0) }
    }

    /// One bit for each place of a block behind which a word ends. All places are looked at and then the bits are gone
    /// through: a processor cannot guess where words end, and guessing wrong at each takes longer than this.
    fn ends(&self, bytes: &[u8], block: usize) -> u64 {
        let rest = bytes.get(block..).unwrap_or_default();
        let Some(places) = rest.first_chunk::<{ BLOCK + 1 }>() else {
            let inside =
                rest.windows(2).map(|pair| matches!(pair, [left, right] if self.between(*left, *right)));
            // The text ends behind its last byte.
            let cuts = inside.chain(rest.last().map(|_| true));
            return cuts.zip(0..).fold(0, |ends, (cut, place)| ends | u64::from(cut) << place);
        };
        let pairs = places.iter().zip(places.iter().skip(1)).zip(0..);
        pairs.fold(0, |ends, ((left, right), place)| ends | u64::from(self.between(*left, *right)) << place)
    }
}

/// Iterator over the words of a text.
pub struct Words<'a> {
    cuts: &'a Cuts,
    bytes: &'a [u8],
    start: usize,
    block: usize,
    ends: u64,
}

impl Iterator for Words<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        while self.ends == 0 {
            self.block += BLOCK;
            if self.block >= self.bytes.len() {
                return None;
            }
            self.ends = self.cuts.ends(self.bytes, self.block);
        }
        let word = self.start..self.block + self.ends.trailing_zeros() as usize + 1;
        self.ends &= self.ends - 1;
        self.start = word.end;
        Some(word)
    }
}

fn pair(left: u8, right: u8) -> usize {
    usize::from(u16::from_le_bytes([left, right]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_where_nothing_is_closed() {
        let mut cuts = Cuts::everywhere();
        for word in ["ab", " ab", "\u{e9}a"] {
            word.as_bytes().windows(2).for_each(|pair| cuts.close(pair[0], pair[1]));
        }
        let words =
            |text: &str| cuts.words(text.as_bytes()).map(|word| text[word].to_owned()).collect::<Vec<_>>();
        assert_eq!(words("ab ab  abba"), ["ab", " ab", " ", " ab", "b", "a"]);
        // Letters are never cut; two that end with the same byte are treated alike.
        assert_eq!(
            words("a\u{e9}ab\u{129}a\u{4e00}\u{1f600}"),
            ["a", "\u{e9}ab", "\u{129}a", "\u{4e00}", "\u{1f600}"]
        );
        assert!(words("").is_empty());
        assert_eq!(words("\n\n\t"), ["\n", "\n", "\t"]);
    }

    #[test]
    fn texts_of_all_lengths_are_cut_alike() {
        let mut cuts = Cuts::everywhere();
        cuts.close(b'a', b'b');
        for length in 0..4 * BLOCK {
            let text = &"abcaab".repeat(BLOCK)[..length];
            let mut expected = Vec::new();
            let mut start = 0;
            for end in 1..=length {
                if end == length || text[end - 1..=end] != *"ab" {
                    expected.push(start..end);
                    start = end;
                }
            }
            assert_eq!(cuts.words(text.as_bytes()).collect::<Vec<_>>(), expected, "{length}");
        }
        // A word longer than blocks.
        let long = "ab".repeat(BLOCK * 3);
        cuts.close(b'b', b'a');
        assert_eq!(
            cuts.words(format!("{long}cc").as_bytes()).map(|word| word.len()).collect::<Vec<_>>(),
            [384, 1, 1]
        );
    }
}
