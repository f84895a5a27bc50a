//! The engine `native`: our own tokenizer, in this process, for sources that pass its exactness check.

mod answer;
mod exactness;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{RequestKind, TokenizeError};
use kvasir_tokenize::local::MISTRAL_FILES;
use kvasir_tokenize::template::TemplateSource;
use kvasir_tokenize::{LocalTokenizer, Pool, SharedTokenizer};
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::hub::{self, Hub, HubError};
use crate::model_set::ModelSpec;

pub use answer::{NativeCall, Refused};

/// Loads at the same time: each has a core busy for a second, and for a while takes ten times the file's size.
const LOADS: usize = 2;

/// Keys of `config.json` that hold the length of the context, in the engine's order.
const CONTEXT_KEYS: [&str; 8] = [
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
];

/// Context length when nothing tells it; the engine assumes the same.
const UNKNOWN_CONTEXT: u64 = 2_048;

/// A loaded model.
pub struct NativeModel {
    tokenizer: SharedTokenizer,
    directory: PathBuf,
    context: u64,
}

/// Why a model is not served natively.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// The source is a path, and nothing is there.
    #[error("the directory {0} does not exist")]
    NoDirectory(PathBuf),
    /// The hub did not give it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// It would not be exact.
    #[error("not exact natively: {0}")]
    NotExact(String),
    /// It does not load.
    #[error("{0}")]
    Load(String),
}

impl NativeError {
    /// Whether a renderer may serve the source.
    pub fn a_renderer_may_do_better(&self) -> bool {
        match self {
            Self::NoDirectory(_) => false,
            Self::Hub(error) => error.a_renderer_may_do_better(),
            Self::NotExact(_) | Self::Load(_) => true,
        }
    }
}

/// Finds sources and loads them.
#[derive(Debug)]
pub struct NativeEngine {
    hub: Hub,
    /// An argument of renderers that may change the ids: what it does is not known here.
    foreign_argument: Option<String>,
    loads: Semaphore,
}

impl NativeEngine {
    /// An engine that fetches from `hub`.
    pub fn new(hub: Hub, foreign_argument: Option<String>) -> Self {
        Self { hub, foreign_argument, loads: Semaphore::new(LOADS) }
    }

    /// Loads a model. Dropping the future leaves a load that has begun to its end.
    ///
    /// # Errors
    /// [`NativeError`]
    pub async fn load(&self, spec: &ModelSpec) -> Result<NativeModel, NativeError> {
        if let Some(argument) = &self.foreign_argument {
            return Err(NativeError::NotExact(format!("{argument:?} is set for renderers")));
        }
        let directory = self.locate(&spec.source).await?;
        let template = spec.chat_template.clone();
        let Ok(_turn) = self.loads.acquire().await else {
            return Err(NativeError::Load("the service stops".to_owned()));
        };
        let (sender, receiver) = oneshot::channel();
        // A thread of its own: the end of the process need not wait for it.
        std::thread::Builder::new()
            .name("tokenizer-load".to_owned())
            .spawn(move || {
                let loaded = load(directory, template.as_deref());
                // Nobody waits any more when the model was taken away.
                drop(sender.send(loaded));
            })
            .map_err(|error| NativeError::Load(format!("no thread to load on: {error}")))?;
        receiver.await.unwrap_or_else(|_| Err(NativeError::Load("the tokenizer library panicked".to_owned())))
    }

    /// The directory of a source: what exists is a directory, as for the engine; a name is a repository.
    async fn locate(&self, source: &str) -> Result<PathBuf, NativeError> {
        let path = Path::new(source);
        if path.is_dir() {
            return Ok(path.to_owned());
        }
        if path.is_absolute() || source.starts_with('.') || !hub::is_repository(source) {
            return Err(NativeError::NoDirectory(path.to_owned()));
        }
        let snapshot = self.hub.fetch(source, &MISTRAL_FILES).await?;
        if let Some(file) = snapshot.others.first() {
            return Err(NativeError::NotExact(format!("the engine reads {file}")));
        }
        if !snapshot.complete {
            return Err(NativeError::NotExact(
                "the cache does not tell which files the repository lacks".to_owned(),
            ));
        }
        Ok(snapshot.directory)
    }
}

fn load(directory: PathBuf, template: Option<&Path>) -> Result<NativeModel, NativeError> {
    if let Some(objection) = exactness::objection(&directory) {
        return Err(NativeError::NotExact(objection));
    }
    let tokenizer =
        LocalTokenizer::load(&directory, template).map_err(|error| NativeError::Load(error.to_string()))?;
    try_out(&tokenizer, template.is_some() || has_template(&directory))?;
    let tokenizer = Arc::new(tokenizer);
    let shared = Arc::clone(&tokenizer);
    Pool::process().run_on_each_thread(move || shared.warm_up());
    let context = context(&directory);
    Ok(NativeModel { tokenizer, directory, context })
}

/// A text can be encoded, and a conversation can be rendered where there is a template: one that does not run
/// here may well run at the engine.
fn try_out(tokenizer: &LocalTokenizer, has_template: bool) -> Result<(), NativeError> {
    let wrong = |what: &str, error: &TokenizeError| NativeError::NotExact(format!("{what}: {error}"));
    tokenizer.encode_text("hello", true).map_err(|error| wrong("a plain text", &error))?;
    if !has_template {
        return Ok(());
    }
    let chat = Bytes::from_static(br#"{"messages":[{"role":"user","content":"hello"}]}"#);
    match tokenizer.encode_body(RequestKind::Chat, &chat) {
        Ok(ids) if ids.is_empty() => {
            Err(NativeError::NotExact("a conversation renders to nothing".to_owned()))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(wrong("a conversation", &error)),
    }
}

fn has_template(directory: &Path) -> bool {
    let config = std::fs::read_to_string(directory.join("tokenizer_config.json")).unwrap_or_default();
    let config = serde_json::from_str(&config).unwrap_or_default();
    TemplateSource::find(directory, &config, None)
        .is_ok_and(|source| source.default.is_some() || source.tool_use.is_some())
}

/// The context length that `config.json` tells.
fn context(directory: &Path) -> u64 {
    let text = std::fs::read_to_string(directory.join("config.json")).unwrap_or_default();
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    let of = |part: &Value| CONTEXT_KEYS.iter().filter_map(|key| part.get(key)?.as_u64()).min();
    of(&config).or_else(|| of(config.get("text_config")?)).unwrap_or(UNKNOWN_CONTEXT)
}

impl NativeModel {
    /// Which encoder answers: `fastokens`, `words` or `tokenizers`.
    pub fn encoder_name(&self) -> &'static str {
        self.tokenizer.encoder_name()
    }
}

impl fmt::Debug for NativeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeModel").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
