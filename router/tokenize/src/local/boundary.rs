//! Where a text may be cut so that the ids of the pieces, put together, are those of the whole.
//!
//! Encoders first find the added tokens in the raw text, leftmost and longest first, and encode what lies between
//! them piece by piece. Behind such a token everything starts afresh, provided that it swallows no white space
//! (`lstrip`, `rstrip`), is matched in the raw text (`normalized` false), and that no other token looks back over it
//! (`single_word`) or reaches into it.

use super::marks::Marks;
use super::outline::{AddedToken, Outline};
use crate::template::is_space;

/// Finds the boundaries of one tokenizer.
#[derive(Debug)]
pub struct Boundaries {
    /// The tokens that decide where a safe one is found; whether a cut behind it is safe.
    tokens: Marks<bool>,
}

impl Boundaries {
    /// The boundaries of a tokenizer; `None` where no cut is safe.
    pub fn of(outline: &Outline) -> Option<Self> {
        if !outline.pieces_are_independent() {
            return None;
        }
        let raw: Vec<&AddedToken> = outline.added_tokens.iter().filter(|token| !token.normalized).collect();
        let tokens = that_matter(&raw).into_iter().map(|token| (token.content.as_str(), is_safe(token)));
        let tokens = Marks::of(tokens)?;
        let some_is_safe = tokens.values().any(|safe| safe);
        some_is_safe.then_some(Self { tokens })
    }

    /// The pieces of a text, each but the last ending with a safe token.
    pub fn pieces<'a>(&'a self, text: &'a str) -> Pieces<'a> {
        Pieces { boundaries: self, text, start: 0 }
    }
}

/// Whether a cut behind a token is safe.
fn is_safe(token: &AddedToken) -> bool {
    let touches_space = token.content.starts_with(is_space) || token.content.ends_with(is_space);
    !token.lstrip && !token.rstrip && !touches_space
}

/// The tokens that have a say in where a safe one is found: the safe ones, and each that holds a byte with which one of
/// these tokens begins, until there are no more. Runs of white space, of which some tokenizers have dozens, mostly have
/// none, and without them a fast search finds the next place to look at.
///
/// Leaving the others out changes nothing. Where the search with all tokens finds one of the others, no kept token
/// begins at any of its bytes, so going on behind it or right after its first byte comes to the same next kept token.
/// Where it finds a kept one, no kept one begins further left, and the longest of all tokens that begin there is the
/// longest of the kept ones.
fn that_matter<'a>(tokens: &[&'a AddedToken]) -> Vec<&'a AddedToken> {
    let mut starts = [false; 256];
    let mut kept = vec![false; tokens.len()];
    loop {
        let mut grew = false;
        for (token, kept) in tokens.iter().zip(&mut kept) {
            let bytes = token.content.as_bytes();
            let meets = bytes.iter().any(|byte| starts.get(usize::from(*byte)) == Some(&true));
            if !*kept && (is_safe(token) || meets) {
                (*kept, grew) = (true, true);
                if let Some(start) = bytes.first().and_then(|first| starts.get_mut(usize::from(*first))) {
                    *start = true;
                }
            }
        }
        if !grew {
            return tokens.iter().zip(kept).filter(|(_, kept)| *kept).map(|(token, _)| *token).collect();
        }
    }
}

/// Iterator over the pieces of a text; none for an empty text.
#[derive(Debug)]
pub struct Pieces<'a> {
    boundaries: &'a Boundaries,
    text: &'a str,
    start: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let mut at = self.start;
        while let Some((token, safe)) = self.boundaries.tokens.next(bytes, at) {
            at = token.end;
            if safe && at < bytes.len() {
                let piece = self.text.get(self.start..at);
                self.start = at;
                return piece;
            }
        }
        let rest = self.text.get(self.start..).filter(|rest| !rest.is_empty());
        self.start = self.text.len();
        rest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let boundaries = Boundaries::of(&outline).unwrap();
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
        assert!(Boundaries::of(&outline(vec![token("<a>"), single])).is_none());
        let normalized = AddedToken { normalized: true, ..token("<n>") };
        assert!(Boundaries::of(&outline(vec![normalized])).is_none());
        assert!(Boundaries::of(&outline(vec![token("<a>"), token(&"x".repeat(300))])).is_none());
    }

    /// By hand: the ends of safe tokens, the search knowing all tokens.
    fn cut_by_all(tokens: &[AddedToken], text: &str) -> Vec<String> {
        let (mut pieces, mut start, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let begin_here =
                tokens.iter().filter(|token| text.as_bytes()[at..].starts_with(token.content.as_bytes()));
            let Some(token) = begin_here.max_by_key(|token| token.content.len()) else {
                at += 1;
                continue;
            };
            at += token.content.len();
            if is_safe(token) && at < text.len() {
                pieces.push(text[start..at].to_owned());
                start = at;
            }
        }
        pieces.extend(Some(text[start..].to_owned()).filter(|rest| !rest.is_empty()));
        pieces
    }

    #[test]
    fn tokens_without_a_say_are_left_out() {
        let spaces = ["\n", "\n\n", "\t", "\u{2581}\u{2581}"].map(token);
        let tokens: Vec<AddedToken> =
            ["<a>", "[x]", "</a>"].map(token).into_iter().chain(spaces.clone()).collect();
        let kept = |tokens: &[AddedToken]| {
            let all: Vec<&AddedToken> = tokens.iter().collect();
            that_matter(&all).into_iter().map(|token| token.content.clone()).collect::<Vec<_>>()
        };
        // The last one does not touch white space: it is safe like the first three.
        assert_eq!(kept(&tokens), ["<a>", "[x]", "</a>", "\u{2581}\u{2581}"]);
        assert!(kept(&spaces[..3]).is_empty());
        // One that holds the first byte of a safe one may hide it, and one that holds its own first byte may hide that.
        let hidden = [token("a"), token("\na"), token("\t\n"), token("\r")];
        assert_eq!(kept(&hidden), ["a", "\na", "\t\n"]);
        assert_eq!(cut(hidden.to_vec(), "a\na\t\na"), ["a", "\na\t\na"]);
    }

    proptest! {
        #[test]
        fn leaving_tokens_out_changes_no_cut(
            contents in prop::collection::btree_set("[<>a \n\u{2581}]{1,3}", 1..8),
            greedy in prop::collection::vec(any::<bool>(), 8),
            text in "[<>a \n\u{2581}b]{0,40}",
        ) {
            let tokens: Vec<AddedToken> = contents
                .iter()
                .zip(greedy)
                .map(|(content, greedy)| AddedToken { rstrip: greedy && content.len() % 2 == 0, ..token(content) })
                .collect();
            let outline = Outline { added_tokens: tokens.clone(), ..Outline::default() };
            if let Some(boundaries) = Boundaries::of(&outline) {
                let pieces: Vec<&str> = boundaries.pieces(&text).collect();
                prop_assert_eq!(pieces.concat(), &*text);
                prop_assert_eq!(pieces, cut_by_all(&tokens, &text));
            } else {
                prop_assert!(!tokens.iter().any(is_safe));
            }
        }
    }

    #[test]
    fn single_byte_tokens_are_found_at_the_end_too() {
        assert_eq!(cut(vec![token("<"), token("<|x|>")], "a<b<|x|>c<"), ["a<", "b<|x|>", "c<"]);
    }
}
