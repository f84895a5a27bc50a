//! Finds texts of a fixed set in a text: the leftmost first, and of those that begin there the longest.

use std::collections::HashMap;
use std::ops::Range;

use smallvec::SmallVec;

/// Most bytes of a text that is looked for.
const LONGEST: usize = 255;

/// The texts that are looked for, each with a value.
#[derive(Debug, Default)]
pub struct Marks<T> {
    values: HashMap<Box<[u8]>, T>,
    /// Lengths of the texts that begin with these two bytes, longest first.
    lengths: HashMap<[u8; 2], SmallVec<[u8; 8]>>,
    /// With which bytes they begin, where these are few enough for a fast search.
    needles: Option<SmallVec<[u8; 3]>>,
    /// The same as a table.
    first: Vec<bool>,
}

impl<T: Copy> Marks<T> {
    /// Looks for these; of equal texts the last one's value counts. `None` where one is empty or too long.
    pub fn of<'a>(texts: impl IntoIterator<Item = (&'a str, T)>) -> Option<Self> {
        let mut marks = Self {
            values: HashMap::new(),
            lengths: HashMap::new(),
            needles: None,
            first: vec![false; usize::from(u8::MAX) + 1],
        };
        for (text, value) in texts {
            marks.add(text.as_bytes(), value)?;
        }
        let needles: SmallVec<[u8; 3]> =
            (0..=u8::MAX).filter(|byte| marks.first.get(usize::from(*byte)) == Some(&true)).collect();
        marks.needles = (needles.len() <= 3).then_some(needles);
        Some(marks)
    }

    fn add(&mut self, text: &[u8], value: T) -> Option<()> {
        let length = u8::try_from(text.len()).ok().filter(|length| usize::from(*length) <= LONGEST)?;
        let first = *text.first()?;
        self.values.insert(text.into(), value);
        if let Some(slot) = self.first.get_mut(usize::from(first)) {
            *slot = true;
        }
        // A text of one byte may be followed by any byte.
        let seconds = match text.get(1) {
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

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = T> {
        self.values.values().copied()
    }

    /// The next one at or behind a place: where, and its value.
    pub fn next(&self, bytes: &[u8], from: usize) -> Option<(Range<usize>, T)> {
        let mut at = from;
        loop {
            at += self.candidate(bytes.get(at..)?)?;
            if let Some((length, value)) = bytes.get(at..).and_then(|rest| self.longest(rest)) {
                return Some((at..at + length, value));
            }
            at += 1;
        }
    }

    /// The next place at which one may begin.
    fn candidate(&self, bytes: &[u8]) -> Option<usize> {
        match self.needles.as_deref() {
            Some([]) => None,
            Some([a]) => memchr::memchr(*a, bytes),
            Some([a, b]) => memchr::memchr2(*a, *b, bytes),
            Some([a, b, c]) => memchr::memchr3(*a, *b, *c, bytes),
            _ => bytes.iter().position(|byte| self.first.get(usize::from(*byte)) == Some(&true)),
        }
    }

    /// The longest one with which the bytes begin: its length and value.
    fn longest(&self, bytes: &[u8]) -> Option<(usize, T)> {
        let key = match bytes {
            [first, second, ..] => [*first, *second],
            [first] => [*first, 0],
            [] => return None,
        };
        self.lengths.get(&key)?.iter().find_map(|length| {
            let text = bytes.get(..usize::from(*length))?;
            self.values.get(text).map(|value| (text.len(), *value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str], text: &str) -> Vec<String> {
        let marks = Marks::of(texts.iter().map(|text| (*text, ()))).unwrap();
        let mut at = 0;
        std::iter::from_fn(|| {
            let (range, ()) = marks.next(text.as_bytes(), at)?;
            at = range.end;
            Some(text[range].to_owned())
        })
        .collect()
    }

    #[test]
    fn the_leftmost_and_longest_is_found() {
        assert_eq!(found(&["<a>", "<a><b>", "a"], "a <a><b><a>é<"), ["a", "<a><b>", "<a>"]);
        assert_eq!(found(&["ab", "bcd"], "abcd"), ["ab"]);
        assert_eq!(found(&["<", "<|x|>"], "a<b<|x|>c<"), ["<", "<|x|>", "<"]);
        assert_eq!(found(&["\n", "\n\n", "\t", "<", "é"], "\n\n\n\té<"), ["\n\n", "\n", "\t", "é", "<"]);
        assert!(found(&[], "abc").is_empty() && found(&["x"], "").is_empty());
    }

    #[test]
    fn what_cannot_be_looked_for_is_told() {
        assert!(Marks::of([("", ())]).is_none());
        assert!(Marks::of([(&*"x".repeat(256), ())]).is_none());
        assert_eq!(Marks::of([("x", 1), ("x", 2)]).unwrap().next(b"ax", 0), Some((1..2, 2)));
    }
}
