//! Encodes word by word, for vocabularies whose own rules know no words: a line of a text is one run of letters to merge.
//!
//! [`cuts`] tells at which places of a text no merge and no added token can cross; what lies between two of them is a
//! word here. Most words of a text were seen before, and [`table`] has their ids; the others are merged by [`merge`].

mod cuts;
mod file;
mod merge;
mod pairs;
mod table;

use std::fmt;
use std::ops::Range;

use super::marks::Marks;
use super::outline::{AddedToken, Outline};
use cuts::Cuts;
use file::{Changes, Prefix};
use merge::{Merges, Scratch};
use table::{SLOTS, Table};

/// Most bytes of a text; places of letters are numbers of 32 bits.
const LONGEST_TEXT: usize = 1 << 30;

/// Encodes by one vocabulary.
pub struct Words {
    merges: Merges,
    cuts: Cuts,
    /// The added tokens, by their ids.
    marks: Marks<u32>,
    prefix: Prefix,
    table: Table,
}

/// What encoding writes to.
#[derive(Default)]
struct Work {
    ids: Vec<u32>,
    scratch: Scratch,
}

impl Words {
    /// The encoder of a `tokenizer.json`, given all its added tokens and a way to ask for their ids.
    ///
    /// # Errors
    /// Why its texts cannot be encoded word by word.
    pub fn of(
        text: &[u8],
        outline: &Outline,
        tokens: &[AddedToken],
        id: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, &'static str> {
        let changes = Changes::of(outline)?;
        if outline.model.dropout.is_some_and(|dropout| dropout != 0.0) {
            return Err("random merging");
        }
        if tokens.iter().any(|token| token.single_word || token.lstrip || token.rstrip || token.normalized) {
            return Err("an added token that depends on what stands around it");
        }
        let named = tokens.iter().filter(|token| !token.content.is_empty());
        let named: Option<Vec<(&str, u32)>> =
            named.map(|token| Some((token.content.as_str(), id(&token.content)?))).collect();
        let marks = named.and_then(Marks::of).ok_or("an added token without an id, or a very long one")?;
        let (merges, cuts) = file::read(text, changes, tokens)?;
        Ok(Self { merges, cuts, marks, prefix: changes.prefix, table: Table::new(SLOTS) })
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// The text is too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, &'static str> {
        if text.len() > LONGEST_TEXT {
            return Err("the text is too long");
        }
        let mut work = Work { ids: Vec::with_capacity(text.len() / 3 + 8), scratch: Scratch::default() };
        if self.prefix == Prefix::Never {
            // Added tokens are found inside words: they hold no cut.
            self.words(text, &mut work);
            return Ok(work.ids);
        }
        let mut start = 0;
        while let Some((mark, id)) = self.marks.next(text.as_bytes(), start) {
            self.piece(text.get(start..mark.start).unwrap_or_default(), start == 0, &mut work);
            work.ids.push(id);
            start = mark.end;
        }
        self.piece(text.get(start..).unwrap_or_default(), start == 0, &mut work);
        Ok(work.ids)
    }

    /// A text between two added tokens, with the space that it may get.
    fn piece(&self, text: &str, first: bool, work: &mut Work) {
        let missing = !text.starts_with([' ', file::SPACE]);
        let prefixed = match self.prefix {
            Prefix::Never => false,
            Prefix::Always => true,
            Prefix::Missing => missing,
            Prefix::First => missing && first,
        };
        let Some(letter) = text.bytes().next().filter(|_| prefixed) else {
            return self.words(text, work);
        };
        if self.cuts.between(b' ', letter) {
            self.word(" ", 0..1, work);
            return self.words(text, work);
        }
        let end = self.cuts.words(text.as_bytes()).next().map_or(0, |word| word.end);
        let word = format!(" {}", text.get(..end).unwrap_or_default());
        self.word(&word, 0..word.len(), work);
        self.words(text.get(end..).unwrap_or_default(), work);
    }

    fn words(&self, text: &str, work: &mut Work) {
        for word in self.cuts.words(text.as_bytes()) {
            self.word(text, word, work);
        }
    }

    fn word(&self, text: &str, word: Range<usize>, work: &mut Work) {
        let key = self.table.key(text.as_bytes(), word.clone());
        if self.table.recall(key, &mut work.ids) {
            return;
        }
        let known = work.ids.len();
        self.merge(text.get(word).unwrap_or_default(), work);
        self.table.remember(key, work.ids.get(known..).unwrap_or_default());
    }

    fn merge(&self, word: &str, work: &mut Work) {
        let Work { ids, scratch } = work;
        let mut start = 0;
        // Elsewhere the added tokens were taken out before.
        while self.prefix == Prefix::Never
            && let Some((mark, id)) = self.marks.next(word.as_bytes(), start)
        {
            self.merges.merge(word.get(start..mark.start).unwrap_or_default(), scratch, ids);
            ids.push(id);
            start = mark.end;
        }
        self.merges.merge(word.get(start..).unwrap_or_default(), scratch, ids);
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words")
            .field("merges", &self.merges)
            .field("prefix", &self.prefix)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
