//! Loading a model's directory.

mod class;
mod complete;
mod models;
mod rebuild;
mod settings;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::boundary::Boundaries;
use super::encoder::{Encoder, EncoderChoice};
use super::find::{Found, find};
use super::outline::{AddedToken, Outline};
use super::sentencepiece::{self, Model};
use super::tiktoken::{self, Family, FamilyFiles};
use super::words::Words;
use super::{Affixes, ChatRules, LocalTokenizer, TextRules, mistral, self_check};
use crate::memory::PrefixMemory;
use crate::template::{
    ChatTemplates, SpecialTokens, TemplateError, TemplateSource, TemplateSourceError, WallClock,
    system_wall_clock,
};

pub use class::writes_chats;
use complete::Complete;
pub use rebuild::Rebuilt;
pub use settings::Settings;

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
    let found = find(directory, chat_template.is_some()).ok_or_else(missing)?;
    let settings = match &found {
        Found::Tekken(path) => return mistral::load_tekken(path, &options),
        Found::Mistral(path, version) => return mistral::load_model(path, *version, &options),
        Found::Json(_) | Found::Model(_) | Found::Ranks(_) => Settings::read(directory)?,
    };
    let (path, kind) = match &found {
        Found::Json(path) => (path, Kind::Json(Complete::of(path, &settings)?)),
        Found::Model(path) => (path, Kind::Model),
        Found::Ranks(path) | Found::Tekken(path) | Found::Mistral(path, _) => (path, Kind::Ranks),
    };
    // The template first: it is quick, and its faults are the user's to mend.
    let source = TemplateSource::find(directory, &settings.config, chat_template)?;
    let special = settings
        .special(&[], kind.defaults())
        .map_err(|reason| unsupported(path, &reason, "mend the file beside it"))?;
    let special = SpecialTokens::of(special.names());
    let clock = options.wall_clock.clone();
    let templates = ChatTemplates::compile(&source, special, clock).map_err(|error| LoadError::Template {
        path: chat_template.unwrap_or(directory).to_owned(),
        error,
    })?;
    let chat = ChatRules::Templates(Box::new(templates));
    let tokenizer = kind.load(path, &settings, chat, &options)?;
    let texts = TextRules { writes_chats: writes_chats(&settings.model).is_some(), ..tokenizer.texts };
    Ok(LocalTokenizer { texts, ..tokenizer })
}

/// A tokenizer whose chats are rendered by a template.
#[derive(Debug)]
enum Kind<'a> {
    Json(Complete<'a>),
    Model,
    Ranks,
}

impl Kind<'_> {
    /// The tokens that the tokenizer's class names itself.
    fn defaults(&self) -> &'static [settings::Default] {
        match self {
            Self::Json(complete) => complete.defaults(),
            Self::Model => Rebuilt::Llama.defaults(),
            Self::Ranks => &[],
        }
    }

    fn load(
        &self,
        path: &Path,
        settings: &Settings,
        chat: ChatRules,
        options: &LoadOptions,
    ) -> Result<LocalTokenizer, LoadError> {
        let file = read(path)?;
        match self {
            Self::Json(complete) => assemble(path, complete.text(file)?, chat, options),
            Self::Model => match Model::parse(&file) {
                Ok(model) => load_llama(path, &model, settings, chat, options),
                // Some files of this name are tiktoken's.
                Err(_) if tiktoken::read_ranks(&file).is_ok() => {
                    load_ranks(path, &file, settings, chat, options)
                }
                Err(reason) => Err(LoadError::Damaged { path: path.to_owned(), reason }),
            },
            Self::Ranks => load_ranks(path, &file, settings, chat, options),
        }
    }
}

/// Loads a SentencePiece model the way transformers does.
fn load_llama(
    path: &Path,
    model: &Model,
    settings: &Settings,
    chat: ChatRules,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let text = sentencepiece::tokenizer_json(model, settings).map_err(|reason| {
        let fix = "write a tokenizer.json beside it, which save_pretrained of transformers does (for a model of \
                   Mistral's own rules name the file tokenizer.model.v1)";
        unsupported(path, &reason, fix)
    })?;
    assemble(path, text, chat, options)
}

/// Loads a rank file of tiktoken.
fn load_ranks(
    path: &Path,
    file: &[u8],
    settings: &Settings,
    chat: ChatRules,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let fix = "leave the directory out and the engine is asked";
    let family = Family::of(&FamilyFiles { ranks: path, config: &settings.config, model: &settings.model })
        .map_err(|reason| unsupported(path, &reason, fix))?;
    let text = tiktoken::tokenizer_json(file, &family)
        .map_err(|reason| LoadError::Damaged { path: path.to_owned(), reason })?;
    let tokenizer = assemble(path, text, chat, options)?;
    let texts = TextRules {
        composes: family.composes,
        limits: family.limits,
        tools: family.tools,
        ..TextRules::default()
    };
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
    chat: ChatRules,
    options: &LoadOptions,
) -> Result<LocalTokenizer, LoadError> {
    let damaged = |reason: String| LoadError::Damaged { path: path.to_owned(), reason };
    let outline: Outline = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let reference = load_reference(&text).map_err(&damaged)?;
    let vocab_size = reference.get_vocab_size(true);
    let (encoder, fallback) = match options.encoder {
        EncoderChoice::Reference => (Encoder::Reference(Arc::new(reference)), None),
        EncoderChoice::Auto => choose(text, &outline, reference),
    };
    let tokenizer = LocalTokenizer {
        affixes: Affixes::of(&encoder),
        boundaries: Boundaries::of(&outline),
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

fn load_reference(text: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    let mut reference = tokenizers::Tokenizer::from_bytes(text).map_err(|error| error.to_string())?;
    // Cutting and filling belong to batches for training; engines switch both off.
    reference.with_truncation(None).map_err(|error| error.to_string())?;
    reference.with_padding(None);
    Ok(reference)
}

/// A fast encoder where one can be trusted, else the reference and the reason.
fn choose(text: Vec<u8>, outline: &Outline, reference: tokenizers::Tokenizer) -> (Encoder, Option<String>) {
    let tokens = &outline.added_tokens;
    let reference = Arc::new(reference);
    let words = Words::of(&text, outline, tokens, |content| reference.token_to_id(content)).ok();
    let words = words.map(|words| Encoder::Words(Box::new(words), Arc::clone(&reference)));
    let reference = Encoder::Reference(reference);
    if let Some(words) = words.filter(|words| self_check::compare(words, &reference, tokens).is_ok()) {
        return (words, None);
    }
    match load_fast(text, tokens).and_then(|fast| {
        self_check::compare(&fast, &reference, tokens)?;
        Ok(fast)
    }) {
        Ok(fast) => (fast, None),
        Err(reason) => (reference, Some(reason)),
    }
}

fn load_fast(text: Vec<u8>, tokens: &[AddedToken]) -> Result<Encoder, String> {
    // Its matching takes no notice of this rule.
    if tokens.iter().any(|token| token.single_word) {
        return Err("an added token matches whole words only".to_owned());
    }
    let json = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    drop(text);
    let mut fast = fastokens::Tokenizer::from_json(json).map_err(|error| error.to_string())?;
    fast.set_truncation(None);
    fast.set_padding(None);
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
