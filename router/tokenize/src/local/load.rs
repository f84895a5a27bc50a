//! Loading a model's directory.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::boundary::Boundaries;
use super::encoder::{Encoder, EncoderChoice};
use super::outline::{self, AddedToken, Outline};
use super::tekken::Tekken;
use super::{Affixes, ChatRules, LocalTokenizer, MistralRules, self_check};
use crate::memory::PrefixMemory;
use crate::template::{
    ChatTemplates, SpecialTokens, TemplateError, TemplateSource, TemplateSourceError, WallClock,
    system_wall_clock,
};

/// Room for the ids of earlier turns of one tokenizer: about 8 million tokens, 400 conversations of 20,000.
const MEMORY_BYTES: usize = 32 << 20;

/// Choices when loading.
pub struct LoadOptions {
    /// Which encoder.
    pub encoder: EncoderChoice,
    /// Most bytes of the memory of segments; zero turns it off.
    pub memory_bytes: usize,
    /// The clock of `strftime_now`.
    pub wall_clock: WallClock,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { encoder: EncoderChoice::Auto, memory_bytes: MEMORY_BYTES, wall_clock: system_wall_clock() }
    }
}

impl std::fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("encoder", &self.encoder)
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}

/// Why a directory does not load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nothing is there.
    #[error("the tokenizer directory {0} does not exist")]
    MissingDirectory(PathBuf),
    /// The directory has no tokenizer.
    #[error("{0} has no tokenizer.json (nor Mistral's tekken.json)")]
    MissingTokenizer(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The template cannot be read.
    #[error(transparent)]
    TemplateFile(#[from] TemplateSourceError),
    /// The template has a fault.
    #[error("{path}: {error}")]
    Template {
        /// The directory or the overriding file.
        path: PathBuf,
        /// The fault.
        error: TemplateError,
    },
}

/// Loads everything of a directory.
pub fn load(
    directory: &Path,
    chat_template: Option<&Path>,
    options: LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    if !directory.is_dir() {
        return Err(LoadError::MissingDirectory(directory.to_owned()));
    }
    let path = directory.join("tokenizer.json");
    let tekken = directory.join("tekken.json");
    if tekken.is_file() && chat_template.is_none() && (!path.is_file() || has_mistral_weights(directory)) {
        return load_tekken(&tekken, &options);
    }
    if !path.is_file() {
        return Err(LoadError::MissingTokenizer(directory.to_owned()));
    }
    let config = read_optional(&directory.join("tokenizer_config.json"))?;
    let map = read_optional(&directory.join("special_tokens_map.json"))?;
    // The template first: it is quick, and its faults are the user's to mend.
    let source = TemplateSource::find(directory, &config, chat_template)?;
    let special = SpecialTokens::from_config(&config, &map);
    let clock = options.wall_clock.clone();
    let templates = ChatTemplates::compile(&source, special, clock).map_err(|error| LoadError::Template {
        path: chat_template.unwrap_or(directory).to_owned(),
        error,
    })?;
    assemble(&path, read(&path)?, &config, ChatRules::Templates(Box::new(templates)), &options)
}

fn load_tekken(path: &Path, options: &LoadOptions) -> Result<LocalTokenizer, LoadError> {
    let damaged = |reason: String| LoadError::Damaged { path: path.to_owned(), reason };
    let Tekken { tokenizer, version, controls, vocab_size } = Tekken::parse(&read(path)?).map_err(damaged)?;
    let begin = *controls.get("<s>").ok_or_else(|| damaged("no control token <s>".to_owned()))?;
    let rules = ChatRules::Mistral(MistralRules { version, controls });
    let tokenizer = assemble(path, tokenizer, &Value::Null, rules, options)?;
    let affixes = Some(Affixes { before: vec![begin], after: Vec::new() });
    Ok(LocalTokenizer { affixes, vocab_size, ..tokenizer })
}

/// Where Mistral's own weights lie beside both kinds of tokenizer, the engine takes Mistral's.
fn has_mistral_weights(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with("consolidated") && name.ends_with(".safetensors")
            })
        })
    })
}

/// Puts a tokenizer together from the text of its `tokenizer.json`.
fn assemble(
    path: &Path,
    text: Vec<u8>,
    config: &Value,
    chat: ChatRules,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let damaged = |reason: String| LoadError::Damaged { path: path.to_owned(), reason };
    let outline: Outline = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let configured = outline::configured_tokens(config, &outline.added_tokens);
    let reference = load_reference(&text, &configured).map_err(&damaged)?;
    let vocab_size = reference.get_vocab_size(true);
    let reference = Encoder::Reference(Box::new(reference));
    let tokens: Vec<AddedToken> = outline.added_tokens.iter().chain(&configured).cloned().collect();
    let (encoder, fallback) = match options.encoder {
        EncoderChoice::Reference => (reference, None),
        EncoderChoice::Auto => choose(text, &tokens, &configured, reference),
    };
    let tokenizer = LocalTokenizer {
        affixes: Affixes::of(&encoder),
        boundaries: Boundaries::of(&outline, &configured),
        memory: PrefixMemory::new(options.memory_bytes),
        encoder,
        fallback,
        chat,
        vocab_size,
    };
    tokenizer.warm_up();
    Ok(tokenizer)
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(path).map_err(|error| LoadError::Unreadable { path: path.to_owned(), error })
}

/// A file that need not be there. Damage is an error all the same: half a config would give wrong ids silently.
fn read_optional(path: &Path) -> Result<Value, LoadError> {
    if !path.is_file() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&read(path)?)
        .map_err(|error| LoadError::Damaged { path: path.to_owned(), reason: error.to_string() })
}

fn load_reference(text: &[u8], configured: &[AddedToken]) -> Result<tokenizers::Tokenizer, String> {
    let mut reference = tokenizers::Tokenizer::from_bytes(text).map_err(|error| error.to_string())?;
    // Cutting and filling belong to batches for training; engines switch both off.
    reference.with_truncation(None).map_err(|error| error.to_string())?;
    reference.with_padding(None);
    for token in configured {
        let added = tokenizers::AddedToken::from(token.content.clone(), token.special)
            .single_word(token.single_word)
            .lstrip(token.lstrip)
            .rstrip(token.rstrip)
            .normalized(token.normalized);
        let outcome =
            if token.special { reference.add_special_tokens([added]) } else { reference.add_tokens([added]) };
        outcome.map_err(|error| error.to_string())?;
    }
    Ok(reference)
}

/// The fast encoder where it can be trusted, else the reference and the reason.
fn choose(
    text: Vec<u8>,
    tokens: &[AddedToken],
    configured: &[AddedToken],
    reference: Encoder,
) -> (Encoder, Option<String>) {
    match load_fast(text, tokens, configured).and_then(|fast| {
        self_check::compare(&fast, &reference, tokens)?;
        Ok(fast)
    }) {
        Ok(fast) => (fast, None),
        Err(reason) => (reference, Some(reason)),
    }
}

fn load_fast(text: Vec<u8>, tokens: &[AddedToken], configured: &[AddedToken]) -> Result<Encoder, String> {
    // Its matching takes no notice of this rule.
    if tokens.iter().any(|token| token.single_word) {
        return Err("an added token matches whole words only".to_owned());
    }
    let json = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    drop(text);
    let mut fast = fastokens::Tokenizer::from_json(json).map_err(|error| error.to_string())?;
    fast.set_truncation(None);
    fast.set_padding(None);
    let added: Vec<fastokens::NewToken> = configured
        .iter()
        .map(|token| fastokens::NewToken {
            content: token.content.clone(),
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            normalized: token.normalized,
            special: token.special,
        })
        .collect();
    fast.add_tokens(&added).map_err(|error| error.to_string())?;
    Ok(Encoder::Fast(Box::new(fast)))
}

impl Affixes {
    /// What stands around the ids of a text; `None` when it is not the same for two different texts.
    fn of(encoder: &Encoder) -> Option<Self> {
        let around = |text: &str| {
            let bare = encoder.encode(text, false).ok()?;
            let dressed = encoder.encode(text, true).ok()?;
            let extra = dressed.len().checked_sub(bare.len())?;
            (0..=extra).find_map(|before| {
                let (head, rest) = dressed.split_at_checked(before)?;
                let (body, tail) = rest.split_at_checked(bare.len())?;
                (body == bare).then(|| Self { before: head.to_vec(), after: tail.to_vec() })
            })
        };
        let first = around("Kvasir reads 7 words.")?;
        (around("x")? == first).then_some(first)
    }
}
