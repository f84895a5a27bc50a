//! Classes that take vocabulary and merges of a `tokenizer.json` and put rules of their own around them.

use serde_json::{Value, json};
use tokenizers::models::ModelWrapper;
use tokenizers::{DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

use super::super::sentencepiece::prepend;
use super::settings::{Default, Special};

/// One of these classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebuilt {
    /// `LlamaTokenizer`
    Llama,
    /// `GemmaTokenizer`
    Gemma,
    /// `Qwen2Tokenizer`
    Qwen2,
    /// `Qwen3_5Tokenizer`
    Qwen35,
    /// `GPT2Tokenizer`
    Gpt2,
    /// `GPTNeoXTokenizer`
    NeoX,
    /// `CohereTokenizer`
    Cohere,
}

/// Contractions, words with what stands before them, digits one by one, marks, and white space.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The same, with combining marks as parts of words.
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const ENDOFTEXT: &str = "<|endoftext|>";

impl Rebuilt {
    /// The class of a name.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "LlamaTokenizer" => Self::Llama,
            "GemmaTokenizer" => Self::Gemma,
            "Qwen2Tokenizer" => Self::Qwen2,
            "Qwen3_5Tokenizer" => Self::Qwen35,
            "GPT2Tokenizer" => Self::Gpt2,
            "GPTNeoXTokenizer" => Self::NeoX,
            "CohereTokenizer" => Self::Cohere,
            _ => return None,
        })
    }

    /// The tokens that the class names itself, where the configuration says nothing.
    pub fn defaults(self) -> &'static [Default] {
        match self {
            Self::Llama => &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")],
            Self::Gemma => &[
                ("bos_token", "<bos>"),
                ("eos_token", "<eos>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ],
            Self::Qwen2 | Self::Qwen35 => {
                &[("eos_token", ENDOFTEXT), ("unk_token", ENDOFTEXT), ("pad_token", ENDOFTEXT)]
            }
            Self::Gpt2 => &[("bos_token", ENDOFTEXT), ("eos_token", ENDOFTEXT), ("unk_token", ENDOFTEXT)],
            Self::NeoX => &[
                ("bos_token", ENDOFTEXT),
                ("eos_token", ENDOFTEXT),
                ("unk_token", ENDOFTEXT),
                ("pad_token", "<|padding|>"),
            ],
            Self::Cohere => &[
                ("bos_token", "<BOS_TOKEN>"),
                ("eos_token", "<|END_OF_TURN_TOKEN|>"),
                ("unk_token", "<UNK>"),
                ("sep_token", "<SEP>"),
                ("pad_token", "<PAD>"),
                ("cls_token", "<CLS>"),
                ("mask_token", "<MASK_TOKEN>"),
            ],
        }
    }

    /// Makes the class's tokenizer of the file's.
    ///
    /// # Errors
    /// The file is not one for the class, or the configuration is not followed here.
    pub fn apply(self, file: &Tokenizer, config: &Value, special: &Special) -> Result<Tokenizer, String> {
        let ModelWrapper::BPE(model) = file.get_model() else {
            return Err(format!("a tokenizer.json that is not made for the class {self:?}"));
        };
        let pieces = matches!(self, Self::Llama | Self::Gemma);
        let bytes = as_json(&file.get_pre_tokenizer()).contains("ByteLevel");
        // Such a directory has the wrong class in it, and whether the engine sees through that depends on more than files.
        if pieces == bytes {
            return Err(format!("a tokenizer.json that is not made for the class {self:?}"));
        }
        let mut model = model.clone();
        model.dropout = None;
        (model.continuing_subword_prefix, model.end_of_word_suffix) = (None, None);
        (model.fuse_unk, model.byte_fallback, model.ignore_merges) = (pieces, pieces, false);
        let unknown = special.named.iter().find(|(name, _)| name == "unk_token" && self == Self::Gemma);
        model.unk_token = unknown.map(|(_, token)| token.content.clone());
        let mut tokenizer = Tokenizer::new(ModelWrapper::BPE(model));
        let rules = self.rules(config)?;
        let failed = |error: serde_json::Error| error.to_string();
        let normalizer: Option<NormalizerWrapper> =
            serde_json::from_value(rules.normalizer).map_err(failed)?;
        let pre_tokenizer: PreTokenizerWrapper =
            serde_json::from_value(rules.pre_tokenizer).map_err(failed)?;
        let decoder: DecoderWrapper = serde_json::from_value(rules.decoder).map_err(failed)?;
        tokenizer.with_normalizer(normalizer).map_err(|error| error.to_string())?;
        tokenizer.with_pre_tokenizer(Some(pre_tokenizer)).with_decoder(Some(decoder));
        // This class writes the processor anew, with switches that are off where there is a tokenizer.json.
        let processor = file.get_post_processor().filter(|_| self != Self::NeoX).cloned();
        tokenizer.with_post_processor(processor);
        Ok(tokenizer)
    }

    /// Whether the class adds all its special tokens once more, without what the configuration says of their
    /// surroundings.
    pub fn adds_plainly(self) -> bool {
        self == Self::Qwen2
    }

    /// The rules of the class, as they stand in a `tokenizer.json`.
    fn rules(self, config: &Value) -> Result<Rules, String> {
        let nfc = json!({"type": "NFC"});
        let space = || -> Result<bool, String> {
            match config.get("add_prefix_space") {
                None | Some(Value::Null) => Ok(false),
                Some(Value::Bool(flag)) => Ok(*flag),
                Some(_) => Err("add_prefix_space that is no boolean".to_owned()),
            }
        };
        let bytes = |space: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": regex});
        let split = |pattern: &str, space: bool| {
            let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, bytes(space, false)]})
        };
        let (normalizer, pre_tokenizer) = match self {
            Self::Llama => (
                Value::Null,
                json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend(config)?, "split": false}),
            ),
            Self::Gemma => (
                json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
                json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}),
            ),
            Self::Qwen2 => (nfc, split(QWEN2, space()?)),
            Self::Qwen35 => (nfc, split(QWEN35, space()?)),
            Self::Gpt2 => (Value::Null, bytes(space()?, true)),
            Self::NeoX => (nfc, bytes(space()?, true)),
            Self::Cohere => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                (nfc, json!({"type": "Sequence", "pretokenizers": [digits, bytes(space()?, true)]}))
            }
        };
        Ok(Rules { normalizer, pre_tokenizer, decoder: self.decoder(config)? })
    }

    fn decoder(self, config: &Value) -> Result<Value, String> {
        if !matches!(self, Self::Llama | Self::Gemma) {
            return Ok(
                json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            );
        }
        let mut steps = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self == Self::Llama && prepend(config)? != "never" {
            steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(json!({"type": "Sequence", "decoders": steps}))
    }
}

/// The parts of a `tokenizer.json` around the vocabulary.
struct Rules {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
}

/// Whether two tokenizers give the same ids, as far as their settings tell.
pub fn same_rules(one: &Tokenizer, other: &Tokenizer) -> bool {
    let (ModelWrapper::BPE(first), ModelWrapper::BPE(second)) = (one.get_model(), other.get_model()) else {
        return false;
    };
    let affix = |affix: &Option<String>| affix.clone().filter(|affix| !affix.is_empty());
    let unknown =
        |model: &tokenizers::models::bpe::BPE| model.unk_token.clone().filter(|_| model.byte_fallback);
    first.fuse_unk == second.fuse_unk
        && first.byte_fallback == second.byte_fallback
        && first.ignore_merges == second.ignore_merges
        && first.dropout.unwrap_or_default() == second.dropout.unwrap_or_default()
        && unknown(first) == unknown(second)
        && affix(&first.continuing_subword_prefix) == affix(&second.continuing_subword_prefix)
        && affix(&first.end_of_word_suffix) == affix(&second.end_of_word_suffix)
        && as_json(&one.get_normalizer()) == as_json(&other.get_normalizer())
        && as_json(&one.get_pre_tokenizer()) == as_json(&other.get_pre_tokenizer())
        && as_json(&one.get_post_processor()) == as_json(&other.get_post_processor())
        && one.get_added_tokens_decoder() == other.get_added_tokens_decoder()
}

/// A part of a tokenizer as text, without what has to do with places in the text.
fn as_json(part: &impl serde::Serialize) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.remove("trim_offsets");
                object.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(part).unwrap_or_default();
    strip(&mut value);
    value.to_string()
}
