//! Mistral's `tekken.json`: ranks of byte strings, as tiktoken has them, rewritten as a `tokenizer.json` that both
//! encoders read.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::ranks::RankedVocabulary;
use crate::request::MistralVersion;

/// Control tokens of the versions that do not list them.
const UNLISTED: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// Most tokens of a file; today's have an eighth of that.
const MOST_TOKENS: usize = 1 << 20;

#[derive(Deserialize)]
struct File {
    config: Config,
    vocab: Vec<Rank>,
    special_tokens: Option<Vec<SpecialToken>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
    version: String,
}

#[derive(Deserialize)]
struct Rank {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct SpecialToken {
    rank: u32,
    token_str: String,
}

/// What a `tekken.json` holds.
pub struct Tekken {
    /// The same as a `tokenizer.json`, without the control tokens: their names in a text are text.
    pub tokenizer: Vec<u8>,
    /// The version of the chat rules; none when it is not known here.
    pub version: Option<MistralVersion>,
    /// The control tokens by name.
    pub controls: HashMap<String, u32>,
    /// Number of ids.
    pub vocab_size: usize,
}

impl Tekken {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let special = file.config.default_num_special_tokens;
        let size = file.config.default_vocab_size;
        if size > MOST_TOKENS {
            return Err(format!("more than {MOST_TOKENS} tokens"));
        }
        let regular = size.checked_sub(special).ok_or("more control tokens than tokens")?;
        let ranks = ranks(&file.vocab, regular)?;
        let controls = match file.special_tokens {
            Some(listed) => listed.into_iter().map(|token| (token.token_str, token.rank)).collect(),
            None => UNLISTED.iter().zip(0..).map(|(name, id)| ((*name).to_owned(), id)).collect(),
        };
        Ok(Self {
            tokenizer: RankedVocabulary {
                first: special,
                ranks: &ranks,
                pattern: &file.config.pattern,
                specials: &BTreeMap::new(),
            }
            .tokenizer_json()?,
            version: MistralVersion::of(&file.config.version),
            controls,
            vocab_size: size,
        })
    }
}

/// The byte strings by rank.
fn ranks(vocab: &[Rank], count: usize) -> Result<Vec<Vec<u8>>, String> {
    let mut ranks = vec![Vec::new(); count];
    for token in vocab {
        if let Some(slot) = ranks.get_mut(token.rank) {
            *slot = STANDARD.decode(&token.token_bytes).map_err(|_| "token_bytes is not base64")?;
        }
    }
    match ranks.iter().position(Vec::is_empty) {
        Some(missing) => Err(format!("no token of rank {missing}")),
        None => Ok(ranks),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        vocab.extend(["he", "ll", "hell", "o ", "beyond"].iter().map(|text| text.as_bytes().to_vec()));
        let vocab: Vec<Value> = vocab
            .iter()
            .enumerate()
            .map(|(rank, bytes)| json!({"rank": rank, "token_bytes": STANDARD.encode(bytes), "token_str": null}))
            .collect();
        let mut file = json!({
            "config": {"pattern": r"\p{L}+ ?|[^\p{L}]+", "num_vocab_tokens": 261, "default_vocab_size": 280,
                       "default_num_special_tokens": 20, "version": "v3"},
            "vocab": vocab,
        });
        change(&mut file);
        file.to_string().into_bytes()
    }

    #[test]
    fn words_are_merged_by_rank_and_controls_are_apart() {
        let tekken = Tekken::parse(&file(|_| {})).unwrap();
        assert_eq!((tekken.version, tekken.vocab_size), (Some(MistralVersion::V3), 280));
        assert_eq!((tekken.controls["<s>"], tekken.controls["[TOOL_CONTENT]"]), (1, 19));
        let tokenizer = tokenizers::Tokenizer::from_bytes(&tekken.tokenizer).unwrap();
        let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ids("hello "), [20 + 258, 20 + 259]);
        assert_eq!(ids("<s>"), [20 + 60, 20 + 115, 20 + 62]);
        assert_eq!(ids("bey"), [20 + 98, 20 + 101, 20 + 121], "ranks beyond the size are not used");
    }

    #[test]
    fn listed_controls_and_unknown_versions_are_read() {
        let listed = Tekken::parse(&file(|file| {
            file["config"]["version"] = json!("v99");
            file["special_tokens"] = json!([{"rank": 7, "token_str": "<s>", "is_control": true}]);
        }))
        .unwrap();
        assert_eq!((listed.version, listed.controls["<s>"], listed.controls.len()), (None, 7, 1));
    }

    #[test]
    fn damage_is_named() {
        let gap = file(|file| {
            file["vocab"].as_array_mut().unwrap().remove(3);
        });
        assert_eq!(Tekken::parse(&gap).err().as_deref(), Some("no token of rank 3"));
        let noise = file(|file| file["vocab"][5]["token_bytes"] = json!("*"));
        assert_eq!(Tekken::parse(&noise).err().as_deref(), Some("token_bytes is not base64"));
        let huge = file(|file| file["config"]["default_vocab_size"] = json!(1_u64 << 40));
        assert_eq!(Tekken::parse(&huge).err().as_deref(), Some("more than 1048576 tokens"));
        assert!(Tekken::parse(b"{}").is_err());
    }
}
