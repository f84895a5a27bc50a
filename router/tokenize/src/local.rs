//! A tokenizer in this process: template, encoder and memory of one model's directory.

mod boundary;
mod encoder;
mod find;
mod load;
mod marks;
mod mistral;
mod outline;
mod prefix;
mod ranks;
mod self_check;
pub mod sentencepiece;
mod tekken;
mod texts;
pub mod tiktoken;
mod unicode;
mod words;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{InferenceRequest, Prompt, RequestKind, TokenizeError};

use crate::memory::{MemoryUse, PrefixMemory};
use crate::request::{ChatCall, MistralVersion, PromptInput, Segment};
use crate::template::ChatTemplates;

use boundary::Boundaries;
use encoder::Encoder;
use texts::TextRules;

pub use encoder::EncoderChoice;
pub use find::MISTRAL_FILES;
pub use load::{LoadError, LoadOptions, writes_chats};
pub use prefix::EncodedPrompt;

/// Turns requests into the ids that the engine will compute, without asking anyone.
///
/// All calls are synchronous and take CPU time in proportion to the prompt: call them from the pool, not from an
/// event loop.
pub struct LocalTokenizer {
    encoder: Encoder,
    /// Why the fast encoder is not used, where it is not.
    fallback: Option<String>,
    affixes: Option<Affixes>,
    boundaries: Option<Boundaries>,
    chat: ChatRules,
    texts: TextRules,
    memory: PrefixMemory,
    vocab_size: usize,
}

/// How a conversation becomes a prompt.
#[derive(Debug)]
enum ChatRules {
    /// By a template.
    Templates(Box<ChatTemplates>),
    /// As `mistral-common` does it.
    Mistral(MistralRules),
}

/// A Mistral tokenizer's version and control tokens.
#[derive(Debug)]
struct MistralRules {
    version: Option<MistralVersion>,
    controls: HashMap<String, u32>,
}

/// What the tokenizer puts around a plain prompt.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Affixes {
    before: Vec<u32>,
    after: Vec<u32>,
}

impl LocalTokenizer {
    /// Loads the tokenizer, `tokenizer_config.json` and the chat template of a directory. Takes seconds.
    ///
    /// # Errors
    /// A sentence that names the file and what is wrong with it.
    pub fn load(directory: &Path, chat_template: Option<&Path>) -> Result<Self, LoadError> {
        Self::load_with(directory, chat_template, LoadOptions::default())
    }

    /// The same with choices.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with(
        directory: &Path,
        chat_template: Option<&Path>,
        options: LoadOptions,
    ) -> Result<Self, LoadError> {
        load::load(directory, chat_template, options)
    }

    /// The ids of a request's prompt.
    ///
    /// # Errors
    /// Why there are none; never with text of the prompt.
    pub fn encode_request(&self, request: &InferenceRequest) -> Result<Vec<u32>, TokenizeError> {
        match &request.prompt {
            Prompt::TokenIds(ids) => Ok(ids.to_vec()),
            _ => self.encode_body(request.kind, &request.body),
        }
    }

    /// The ids of a body's prompt.
    ///
    /// # Errors
    /// As [`Self::encode_request`].
    pub fn encode_body(&self, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, TokenizeError> {
        match PromptInput::read(kind, body)? {
            PromptInput::Ids(ids) => Ok(ids.to_vec()),
            PromptInput::Text { text, add_special_tokens } => self.encode_text(&text, add_special_tokens),
            PromptInput::Chat(call) => {
                let templates = match &self.chat {
                    ChatRules::Templates(templates) => templates,
                    ChatRules::Mistral(rules) => return self.encode_segments(&rules.segments(*call)?, rules),
                };
                let add_special_tokens = call.add_special_tokens();
                let rendered = self.texts.arrange(*call)?.render(templates)?;
                self.encode_text(&rendered, add_special_tokens)
            }
        }
    }

    /// The text that a chat body renders to, control tokens by name; `None` for a body without a template.
    ///
    /// # Errors
    /// As [`Self::encode_request`].
    pub fn render_body(&self, kind: RequestKind, body: &Bytes) -> Result<Option<String>, TokenizeError> {
        match PromptInput::read(kind, body)? {
            PromptInput::Chat(call) => match &self.chat {
                ChatRules::Templates(templates) => self.texts.arrange(*call)?.render(templates).map(Some),
                ChatRules::Mistral(rules) => {
                    let segments = rules.segments(*call)?;
                    let names = segments.iter().map(|segment| match segment {
                        Segment::Control(name) => *name,
                        Segment::Text(text) => text.as_str(),
                    });
                    Ok(Some(names.collect()))
                }
            },
            PromptInput::Ids(_) | PromptInput::Text { .. } => Ok(None),
        }
    }

    /// The ids of a text: special tokens inside it become their ids, and with `add_special_tokens` the tokenizer puts
    /// its own around it.
    ///
    /// # Errors
    /// [`TokenizeError::Tokenizer`] when the encoder fails, [`TokenizeError::Inexact`] where the model's code does
    /// something else.
    pub fn encode_text(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizeError> {
        let text = &*self.texts.prepare(text)?;
        let affixes = match (&self.affixes, add_special_tokens) {
            (_, false) => None,
            (Some(affixes), true) => Some(affixes),
            // How the post-processor changes a text is not understood: it has to see the whole.
            (None, true) => return self.encoder.encode(text, true).map_err(failed),
        };
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        ids.extend(affixes.iter().flat_map(|affixes| &affixes.before));
        self.encode_pieces(text, &mut ids)?;
        ids.extend(affixes.iter().flat_map(|affixes| &affixes.after));
        Ok(ids)
    }

    fn encode_pieces(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizeError> {
        let mut pieces = self.boundaries.iter().flat_map(|boundaries| boundaries.pieces(text)).peekable();
        let first = pieces.next();
        if pieces.peek().is_none() {
            ids.append(&mut self.encoder.encode(text, false).map_err(failed)?);
            return Ok(());
        }
        for piece in first.into_iter().chain(pieces) {
            self.encode_piece(piece, ids)?;
        }
        Ok(())
    }

    /// A piece whose ids depend on nothing but its text.
    fn encode_piece(&self, piece: &str, ids: &mut Vec<u32>) -> Result<(), TokenizeError> {
        let key = self.memory.key(piece);
        if self.memory.recall(key, ids) {
            return Ok(());
        }
        let mut encoded = self.encoder.encode(piece, false).map_err(failed)?;
        self.memory.remember(key, &encoded);
        ids.append(&mut encoded);
        Ok(())
    }

    fn encode_segments(&self, segments: &[Segment], rules: &MistralRules) -> Result<Vec<u32>, TokenizeError> {
        let mut ids = Vec::new();
        for segment in segments {
            match segment {
                Segment::Text(text) => self.encode_piece(text, &mut ids)?,
                Segment::Control(name) => ids.push(
                    *rules.controls.get(*name).ok_or(TokenizeError::Invalid("a control token is missing"))?,
                ),
            }
        }
        Ok(ids)
    }

    /// The text of ids, special tokens included.
    ///
    /// # Errors
    /// [`TokenizeError::Tokenizer`] when the decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizeError> {
        let ChatRules::Mistral(rules) = &self.chat else { return self.encoder.decode(ids).map_err(failed) };
        let name =
            |id: u32| rules.controls.iter().find(|(_, known)| **known == id).map(|(name, _)| name.as_str());
        let mut text = String::new();
        for run in ids.chunk_by(|a, b| name(*a).is_none() && name(*b).is_none()) {
            match run {
                [id] if name(*id).is_some() => text.push_str(name(*id).unwrap_or_default()),
                _ => text.push_str(&self.encoder.decode(run).map_err(failed)?),
            }
        }
        Ok(text)
    }

    /// The token of an id as the vocabulary writes it; `None` for an id that is none.
    pub fn token(&self, id: u32) -> Option<String> {
        self.encoder.token(id)
    }

    /// Number of ids, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// `fastokens`, `words`, `tokenizers` or `sentencepiece`.
    pub fn encoder_name(&self) -> &'static str {
        self.encoder.name()
    }

    /// Why the fast encoder is not used, where it is not.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Whether a chat template prints the day: two renderings then agree only on the same one.
    pub fn prints_the_date(&self) -> bool {
        match &self.chat {
            ChatRules::Templates(templates) => {
                templates.mentions("date_string") || templates.mentions("strftime_now")
            }
            ChatRules::Mistral(_) => false,
        }
    }

    /// What the memory of segments holds.
    pub fn memory_use(&self) -> MemoryUse {
        self.memory.usage()
    }

    /// Encodes a little of everything: the first texts after loading, and the first on each thread, are slow.
    pub fn warm_up(&self) {
        for sample in self_check::samples(&[]) {
            // Nothing depends on the outcome.
            drop(self.encoder.encode(&sample, false));
            drop(self.encoder.encode(&sample.repeat(8), false));
        }
    }
}

impl MistralRules {
    fn segments(&self, call: ChatCall) -> Result<Vec<Segment>, TokenizeError> {
        match self.version {
            Some(version) => call.mistral_segments(version),
            None => Err(TokenizeError::Inexact("chats of this version of Mistral's rules")),
        }
    }
}

impl fmt::Debug for LocalTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTokenizer")
            .field("encoder", &self.encoder.name())
            .field("fallback", &self.fallback)
            .field("vocab_size", &self.vocab_size)
            .field("chat", &self.chat)
            .finish_non_exhaustive()
    }
}

fn failed(reason: &'static str) -> TokenizeError {
    TokenizeError::Tokenizer(reason.to_owned())
}

/// Shared by all who encode for a model.
pub type SharedTokenizer = Arc<LocalTokenizer>;

#[cfg(test)]
mod tests;
