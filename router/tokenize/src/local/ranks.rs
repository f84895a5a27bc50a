//! Ranks of byte strings, as tiktoken has them, rewritten as a `tokenizer.json` that both encoders read.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

/// Begins the names that stand for ids without a token. No text has this letter, for it stands for no byte.
const FILLER: char = '\u{e000}';

/// A vocabulary by rank.
#[derive(Debug)]
pub struct RankedVocabulary<'a> {
    /// Id of the first rank.
    pub first: usize,
    /// The byte strings by rank; an empty one is a rank without a token.
    pub ranks: &'a [Vec<u8>],
    /// How a text is cut before merging, in the syntax of Oniguruma.
    pub pattern: &'a str,
    /// Tokens that are found in a text before it is cut, by id.
    pub specials: &'a BTreeMap<u32, String>,
}

impl RankedVocabulary<'_> {
    /// The same as a `tokenizer.json`.
    ///
    /// Every way in which two tokens make up a third is a merge, in the order of what it makes: merging by these gives
    /// what merging by rank gives, and whole words are looked up first as tiktoken does.
    ///
    /// # Errors
    /// Two tokens that would be written alike.
    pub fn tokenizer_json(&self) -> Result<Vec<u8>, String> {
        let letters = byte_letters();
        let written = |bytes: &[u8]| -> String {
            bytes.iter().filter_map(|byte| letters.get(usize::from(*byte))).collect()
        };
        let by_bytes: HashMap<&[u8], usize> =
            self.ranks.iter().enumerate().map(|(rank, bytes)| (bytes.as_slice(), rank)).collect();
        let mut merges: Vec<Value> = Vec::new();
        for bytes in self.ranks {
            let mut halves: Vec<(usize, usize, usize)> = (1..bytes.len())
                .filter_map(|at| {
                    let (left, right) = bytes.split_at(at);
                    Some((*by_bytes.get(left)?, *by_bytes.get(right)?, at))
                })
                .collect();
            halves.sort_unstable();
            merges.extend(halves.iter().map(|(_, _, at)| {
                let (left, right) = bytes.split_at(*at);
                json!([written(left), written(right)])
            }));
        }
        let added: Vec<Value> = self
            .specials
            .iter()
            .map(|(id, content)| {
                json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": true})
            })
            .collect();
        let vocabulary = self.vocabulary(written)?;
        let written = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": self.pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocabulary, "merges": merges,
            },
        });
        Ok(written.to_string().into_bytes())
    }

    /// Every id has an entry, for encoders count on ids without gaps.
    fn vocabulary(&self, written: impl Fn(&[u8]) -> String) -> Result<Map<String, Value>, String> {
        let last = self.specials.keys().next_back().and_then(|id| usize::try_from(*id).ok());
        let size = (self.first + self.ranks.len()).max(last.map_or(0, |id| id + 1));
        let vocabulary: Map<String, Value> = (0..size)
            .map(|id| {
                let special = u32::try_from(id).ok().and_then(|id| self.specials.get(&id)).cloned();
                let rank = id.checked_sub(self.first).and_then(|rank| self.ranks.get(rank));
                let name = match (special, rank.filter(|bytes| !bytes.is_empty())) {
                    (Some(special), _) => special,
                    (None, Some(bytes)) => written(bytes),
                    (None, None) => format!("{FILLER}{id}"),
                };
                (name, json!(id))
            })
            .collect();
        match size - vocabulary.len() {
            0 => Ok(vocabulary),
            doubles => Err(format!("{doubles} tokens are there twice")),
        }
    }
}

/// The letter that stands for each byte in a byte-level vocabulary: printable ones for themselves, the others moved
/// behind the first 256.
fn byte_letters() -> Vec<char> {
    let mut moved = 0x100..;
    (0..=u8::MAX)
        .filter_map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
            _ => moved.next().and_then(char::from_u32),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_and_special_tokens_have_their_ids() {
        let mut ranks: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        ranks.push(Vec::new());
        ranks.push(b"ab".to_vec());
        let specials = BTreeMap::from([(260, "<x>".to_owned()), (262, "<y>".to_owned())]);
        let vocabulary =
            RankedVocabulary { first: 0, ranks: &ranks, pattern: r"\p{L}+|[^\p{L}]+", specials: &specials };
        let tokenizer = tokenizers::Tokenizer::from_bytes(vocabulary.tokenizer_json().unwrap()).unwrap();
        let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ids("abc<y><x> ab"), [257, 99, 262, 260, 32, 257]);
        assert_eq!(tokenizer.get_vocab_size(true), 263);
        assert_eq!(ids("<z>"), [60, 122, 62]);
    }

    #[test]
    fn a_special_token_that_is_a_regular_one_is_told() {
        let ranks = [b"a".to_vec(), b"<x>".to_vec()];
        let specials = BTreeMap::from([(2, "<x>".to_owned())]);
        let vocabulary = RankedVocabulary { first: 0, ranks: &ranks, pattern: ".", specials: &specials };
        assert_eq!(vocabulary.tokenizer_json(), Err("1 tokens are there twice".to_owned()));
    }
}
