//! Loading a model's directory.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::boundary::Boundaries;
use super::encoder::{Encoder, EncoderChoice};
use super::find::{Found, find};
use super::outline::{self, AddedToken, Outline};
use super::sentencepiece::{self, LlamaConfig, Model};
use super::tiktoken::{self, Family, FamilyFiles};
use super::{Affixes, ChatRules, LocalTokenizer, TextRules, mistral, self_check};
use crate::memory::PrefixMemory;
use crate::template::{
    ChatTemplates, SpecialTokens, TemplateError, TemplateSource, TemplateSourceError, WallClock,
    system_wall_clock,
};

/// Room for the ids of earlier turns of one tokenizer: about 8 million tokens, 400 conversations of 20,000.
const MEMORY_BYTES: usize = 32 << 20;

/// Most bytes of a file; the largest tokenizers of today have an eighth of that.
const LARGEST_FILE: u64 = 256 << 20;

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
    #[error("{0} has no tokenizer.json (nor a tekken.json, tokenizer.model or tiktoken file)")]
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
    /// A file is fine, and what it says is not followed here.
    #[error("{path} cannot be used, for it has {reason}: {fix}")]
    Unsupported {
        /// Which.
        path: PathBuf,
        /// What is not followed.
        reason: String,
        /// What can be done.
        fix: String,
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
    let missing = || LoadError::MissingTokenizer(directory.to_owned());
    let (path, kind) = match find(directory, chat_template.is_some()).ok_or_else(missing)? {
        Found::Tekken(path) => return mistral::load_tekken(&path, &options),
        Found::Mistral(path, version) => return mistral::load_model(&path, version, &options),
        Found::Json(path) => (path, Kind::Json),
        Found::Model(path) => (path, Kind::Model),
        Found::Ranks(path) => (path, Kind::Ranks),
    };
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
    let chat = ChatRules::Templates(Box::new(templates));
    let file = read(&path)?;
    match kind {
        Kind::Json => assemble(&path, file, &config, chat, &options),
        Kind::Model => match Model::parse(&file) {
            Ok(model) => load_llama(&path, &model, &config, &map, chat, &options),
            // Some files of this name are tiktoken's.
            Err(_) if tiktoken::read_ranks(&file).is_ok() => {
                load_ranks(&path, &file, &config, chat, &options)
            }
            Err(reason) => Err(LoadError::Damaged { path, reason }),
        },
        Kind::Ranks => load_ranks(&path, &file, &config, chat, &options),
    }
}

/// A tokenizer whose chats are rendered by a template.
#[derive(Clone, Copy)]
enum Kind {
    Json,
    Model,
    Ranks,
}

/// Loads a SentencePiece model the way transformers does.
fn load_llama(
    path: &Path,
    model: &Model,
    config: &Value,
    map: &Value,
    chat: ChatRules,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let added = read_optional(&path.with_file_name("added_tokens.json"))?;
    let own = read_optional(&path.with_file_name("config.json"))?;
    let files = LlamaConfig { config, map, added: &added, model: &own };
    let text = sentencepiece::tokenizer_json(model, &files).map_err(|reason| {
        let fix = "write a tokenizer.json beside it, which save_pretrained of transformers does (for a model of \
                   Mistral's own rules name the file tokenizer.model.v1)";
        unsupported(path, &reason, fix)
    })?;
    assemble(path, text, &Value::Null, chat, options)
}

/// Loads a rank file of tiktoken.
fn load_ranks(
    path: &Path,
    file: &[u8],
    config: &Value,
    chat: ChatRules,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let own = read_optional(&path.with_file_name("config.json"))?;
    let fix = "leave the directory out and the engine is asked";
    let family = Family::of(&FamilyFiles { ranks: path, config, model: &own })
        .map_err(|reason| unsupported(path, &reason, fix))?;
    let text = tiktoken::tokenizer_json(file, &family)
        .map_err(|reason| LoadError::Damaged { path: path.to_owned(), reason })?;
    let tokenizer = assemble(path, text, &Value::Null, chat, options)?;
    let texts = TextRules { composes: family.composes, limits: family.limits, tools: family.tools };
    Ok(LocalTokenizer { texts, ..tokenizer })
}

/// What is not followed here, and what can be done.
pub fn unsupported(path: &Path, reason: &str, fix: &str) -> LoadError {
    LoadError::Unsupported { path: path.to_owned(), reason: reason.to_owned(), fix: fix.to_owned() }
}

/// Puts a tokenizer together from the text of its `tokenizer.json`.
pub fn assemble(
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
        texts: TextRules::default(),
        vocab_size,
    };
    tokenizer.warm_up();
    Ok(tokenizer)
}

/// A file, unless it is too large.
pub fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.to_owned(), error };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let length = file.metadata().map_err(unreadable)?.len();
    // The length is asked first and held to: a file may grow while it is read.
    if length <= LARGEST_FILE {
        file.take(LARGEST_FILE).read_to_end(&mut bytes).map_err(unreadable)?;
        return Ok(bytes);
    }
    Err(LoadError::Damaged { path: path.to_owned(), reason: format!("{length} bytes are too many") })
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

#[cfg(test)]
mod tests;
