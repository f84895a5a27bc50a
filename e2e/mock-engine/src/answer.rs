//! What an engine says: pieces of text with their token ids, the same for the same prompt.

use std::borrow::Cow;

use bytes::Bytes;
use kvasir_core::RequestKind;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::tokenize::{Tokenize, WordTokenizer};

/// Short words, each with its space: one token in the built-in tokenizer and in most real ones, so that the answer,
/// sent back as part of the next turn, has the ids that were generated.
const WORDS: [&str; 40] = [
    " the", " of", " and", " to", " in", " is", " for", " on", " it", " as", " at", " by", " we", " or",
    " an", " be", " if", " so", " no", " up", " can", " not", " was", " are", " you", " all", " has", " one",
    " out", " new", " two", " way", " day", " how", " who", " any", " see", " now", " may", " use",
];

/// The words that one tokenizer writes as one token.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    words: Vec<(u32, &'static str)>,
}

/// One answer, made piece by piece.
#[derive(Debug)]
pub(crate) struct Script {
    seed: u64,
    echo: Vec<(u32, String)>,
    length: usize,
    /// Whether the answer ends because its limit is reached.
    cut: bool,
}

/// One piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) id: u32,
    pub(crate) text: &'a str,
}

impl Vocabulary {
    /// Asks `tokenizer` for each word; a tokenizer that knows none of them gets ids of ours.
    pub(crate) fn new(tokenizer: &dyn Tokenize, model: &str) -> Self {
        let words: Vec<(u32, &'static str)> = WORDS
            .into_iter()
            .filter_map(|word| {
                let body = serde_json::json!({"model": model, "prompt": word, "add_special_tokens": false});
                let ids = tokenizer.encode(RequestKind::Completions, &Bytes::from(body.to_string())).ok()?;
                match ids[..] {
                    [id] => Some((id, word)),
                    _ => None,
                }
            })
            .collect();
        if words.is_empty() {
            return Self { words: (1000..).zip(WORDS).collect() };
        }
        Self { words }
    }

    fn word(&self, chance: u64) -> Piece<'_> {
        let index = (chance % self.words.len().max(1) as u64) as usize;
        self.words.get(index).map_or(Piece { id: 0, text: "" }, |(id, text)| Piece { id: *id, text })
    }
}

impl Script {
    /// Nothing to say: embeddings.
    pub(crate) fn silent() -> Self {
        Self { seed: 0, echo: Vec::new(), length: 0, cut: false }
    }

    /// `length` words, chosen by `seed`.
    pub(crate) fn words(seed: u64, length: usize, cut: bool) -> Self {
        Self { seed, echo: Vec::new(), length, cut }
    }

    /// `text` piece by piece, at most `most` of them.
    pub(crate) fn echo(text: &str, most: usize) -> Self {
        let mut pieces: Vec<(u32, String)> = Vec::new();
        for piece in text.split_inclusive(char::is_whitespace).take(most) {
            let body = Bytes::from(serde_json::json!({ "prompt": piece }).to_string());
            let ids = WordTokenizer.encode(RequestKind::Completions, &body).unwrap_or_default();
            pieces.push((ids.first().copied().unwrap_or_default(), piece.to_owned()));
        }
        if pieces.is_empty() {
            pieces.push((0, String::new()));
        }
        Self { seed: 0, length: pieces.len(), cut: pieces.len() == most, echo: pieces }
    }

    /// Tokens in all.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Makes the answer at most `most` tokens long.
    pub(crate) fn limit(&mut self, most: usize) {
        if self.length > most {
            self.length = most;
            self.cut = true;
        }
    }

    /// `length` or `stop`.
    pub(crate) fn finish_reason(&self) -> &'static str {
        if self.cut { "length" } else { "stop" }
    }

    /// Piece number `index`.
    pub(crate) fn piece<'a>(&'a self, vocabulary: &'a Vocabulary, index: usize) -> Piece<'a> {
        if let Some((id, text)) = self.echo.get(index) {
            return Piece { id: *id, text };
        }
        vocabulary.word(xxh3_64_with_seed(&index.to_le_bytes(), self.seed))
    }

    /// The first `count` pieces as one text.
    pub(crate) fn text(&self, vocabulary: &Vocabulary, count: usize) -> Cow<'static, str> {
        let text: String =
            (0..count.min(self.length)).map(|index| self.piece(vocabulary, index).text).collect();
        Cow::Owned(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_sent_back_has_the_ids_that_were_generated() {
        let vocabulary = Vocabulary::new(&WordTokenizer, "m");
        assert_eq!(vocabulary.words.len(), WORDS.len(), "each word is one token");
        let script = Script::words(7, 30, true);
        let spoken: Vec<u32> = (0..30).map(|index| script.piece(&vocabulary, index).id).collect();
        let text = script.text(&vocabulary, 30);
        let body = Bytes::from(serde_json::json!({ "prompt": text }).to_string());
        assert_eq!(WordTokenizer.encode(RequestKind::Completions, &body), Ok(spoken));
        assert_eq!(text, Script::words(7, 30, true).text(&vocabulary, 30));
        assert_ne!(text, Script::words(8, 30, true).text(&vocabulary, 30));
    }

    #[test]
    fn an_echo_repeats_the_text_up_to_its_limit() {
        let vocabulary = Vocabulary::new(&WordTokenizer, "m");
        let whole = Script::echo("say it again", 9);
        assert_eq!((whole.text(&vocabulary, 9).as_ref(), whole.finish_reason()), ("say it again", "stop"));
        let cut = Script::echo("say it again", 2);
        assert_eq!((cut.text(&vocabulary, 9).as_ref(), cut.finish_reason()), ("say it ", "length"));
    }
}
