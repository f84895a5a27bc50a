//! Where a text may be cut so that the ids of the pieces, put together, are those of the whole.
//!
//! Encoders first find the added tokens in the raw text, leftmost and longest first, and encode what lies between
//! them piece by piece. Behind such a token everything starts afresh, provided that it swallows no white space
//! (`lstrip`, `rstrip`), is matched in the raw text (`normalized` false), and that no other token looks back over it
//! (`single_word`) or reaches into it.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::outline::{AddedToken, Outline};
use crate::template::is_space;

/// Most bytes of an added token that is looked for; a tokenizer with a longer one is not cut.
const LONGEST_TOKEN: usize = 255;

/// Finds the boundaries of one tokenizer.
#[derive(Debug)]
pub struct Boundaries {
    /// Every token that the encoder looks for in the raw text; whether a cut behind it is safe.
    tokens: HashMap<Box<[u8]>, bool>,
    /// Lengths of the tokens that begin with these two bytes, longest first.
    lengths: HashMap<[u8; 2], SmallVec<[u8; 8]>>,
    /// Whether some token begins with this byte.
    first: Box<[bool; 256]>,
    /// The same as a short list, where it is short enough for a fast search.
    needles: Option<SmallVec<[u8; 3]>>,
}

impl Boundaries {
    /// The boundaries of a tokenizer; `None` where no cut is safe.
    pub fn of(outline: &Outline, configured: &[AddedToken]) -> Option<Self> {
        if !outline.pieces_are_independent() || configured.iter().any(|token| token.single_word) {
            return None;
        }
        let mut boundaries = Self {
            tokens: HashMap::new(),
            lengths: HashMap::new(),
            first: Box::new([false; 256]),
            needles: None,
        };
        for token in outline.added_tokens.iter().chain(configured).filter(|token| !token.normalized) {
            boundaries.add(token)?;
        }
        if !boundaries.tokens.values().any(|safe| *safe) {
            return None;
        }
        let needles: SmallVec<[u8; 3]> =
            (0..=u8::MAX).filter(|byte| boundaries.first.get(usize::from(*byte)) == Some(&true)).collect();
        boundaries.needles = (needles.len() <= 3).then_some(needles);
        Some(boundaries)
    }

    fn add(&mut self, token: &AddedToken) -> Option<()> {
        let bytes = token.content.as_bytes();
        let length = u8::try_from(bytes.len()).ok().filter(|length| usize::from(*length) <= LONGEST_TOKEN)?;
        let first = *bytes.first()?;
        let touches_space = token.content.starts_with(is_space) || token.content.ends_with(is_space);
        let safe = !token.lstrip && !token.rstrip && !touches_space;
        self.tokens.insert(bytes.into(), safe);
        if let Some(slot) = self.first.get_mut(usize::from(first)) {
            *slot = true;
        }
        // A token of one byte may be followed by any byte.
        let seconds = match bytes.get(1) {
            Some(second) => *second..=*second,
            None => 0..=u8::MAX,
        };
        for second in seconds {
            let lengths = self.lengths.entry([first, second]).or_default();
            if !lengths.contains(&length) {
                lengths.push(length);
                lengths.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
        Some(())
    }

    /// The pieces of a text, each but the last ending with a safe token.
    pub fn pieces<'a>(&'a self, text: &'a str) -> Pieces<'a> {
        Pieces { boundaries: self, text, start: 0, at: 0 }
    }

    /// The next place at which a token may begin.
    fn candidate(&self, bytes: &[u8]) -> Option<usize> {
        match self.needles.as_deref() {
            Some([a]) => memchr::memchr(*a, bytes),
            Some([a, b]) => memchr::memchr2(*a, *b, bytes),
            Some([a, b, c]) => memchr::memchr3(*a, *b, *c, bytes),
            _ => bytes.iter().position(|byte| self.first.get(usize::from(*byte)) == Some(&true)),
        }
    }

    /// The longest token at the start of the bytes: its length, and whether a cut behind it is safe.
    fn token_at(&self, bytes: &[u8]) -> Option<(usize, bool)> {
        let key = match bytes {
            [first, second, ..] => [*first, *second],
            [first] => [*first, 0],
            [] => return None,
        };
        self.lengths.get(&key)?.iter().find_map(|length| {
            let token = bytes.get(..usize::from(*length))?;
            self.tokens.get(token).map(|safe| (token.len(), *safe))
        })
    }
}

/// Iterator over the pieces of a text; none for an empty text.
#[derive(Debug)]
pub struct Pieces<'a> {
    boundaries: &'a Boundaries,
    text: &'a str,
    start: usize,
    at: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        while let Some(offset) = bytes.get(self.at..).and_then(|rest| self.boundaries.candidate(rest)) {
            self.at += offset;
            let found = bytes.get(self.at..).and_then(|rest| self.boundaries.token_at(rest));
            let Some((length, safe)) = found else {
                self.at += 1;
                continue;
            };
            self.at += length;
            if safe && self.at < bytes.len() {
                let piece = self.text.get(self.start..self.at);
                self.start = self.at;
                return piece;
            }
        }
        let rest = self.text.get(self.start..).filter(|rest| !rest.is_empty());
        self.start = self.text.len();
        self.at = self.text.len();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(content: &str) -> AddedToken {
        AddedToken {
            content: content.to_owned(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }

    fn cut(tokens: Vec<AddedToken>, text: &str) -> Vec<String> {
        let outline = Outline { added_tokens: tokens, ..Outline::default() };
        let boundaries = Boundaries::of(&outline, &[]).unwrap();
        boundaries.pieces(text).map(str::to_owned).collect()
    }

    #[test]
    fn texts_are_cut_behind_safe_tokens() {
        let tokens = || vec![token("<a>"), token("<a><b>"), token("</x>")];
        assert_eq!(cut(tokens(), "1<a>2</x>3"), ["1<a>", "2</x>", "3"]);
        assert_eq!(cut(tokens(), "<a><b><a>"), ["<a><b>", "<a>"]);
        assert_eq!(cut(tokens(), "<<a>é<"), ["<<a>", "é<"]);
        assert_eq!(cut(tokens(), "none"), ["none"]);
        assert_eq!(cut(tokens(), "1<a>"), ["1<a>"]);
        assert!(cut(tokens(), "").is_empty());
    }

    #[test]
    fn tokens_that_touch_their_neighbours_are_skipped_over() {
        let greedy = AddedToken { rstrip: true, ..token("<r>") };
        let space = token("\n\n");
        assert_eq!(cut(vec![token("<a>"), greedy, space], "1<r> 2\n\n3<a>4"), ["1<r> 2\n\n3<a>", "4"]);
    }

    #[test]
    fn no_cut_is_safe_where_a_token_looks_back() {
        let single = AddedToken { single_word: true, ..token("word") };
        let outline = |tokens| Outline { added_tokens: tokens, ..Outline::default() };
        assert!(Boundaries::of(&outline(vec![token("<a>"), single]), &[]).is_none());
        let normalized = AddedToken { normalized: true, ..token("<n>") };
        assert!(Boundaries::of(&outline(vec![normalized]), &[]).is_none());
        assert!(Boundaries::of(&outline(vec![token("<a>"), token(&"x".repeat(300))]), &[]).is_none());
    }

    #[test]
    fn single_byte_tokens_are_found_at_the_end_too() {
        assert_eq!(cut(vec![token("<"), token("<|x|>")], "a<b<|x|>c<"), ["a<", "b<|x|>", "c<"]);
    }
}
