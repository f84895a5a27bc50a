//! From a request's body to what is to be rendered and encoded, normalised exactly as the engine does it.

mod anthropic;
mod chat;
mod completions;
mod media;
mod messages;
mod mistral;
mod responses;
mod sorted;
mod tools;

use std::sync::Arc;

use kvasir_core::{RequestKind, TokenizeError};

use crate::json::{self, Json, Object, ParseError};

pub use chat::ChatCall;
pub use media::MEDIA;
pub use mistral::{MistralVersion, Segment};

/// What a body asks to be computed.
#[derive(Debug)]
pub enum PromptInput {
    /// The ids themselves.
    Ids(Arc<[u32]>),
    /// A plain text.
    Text {
        /// The text.
        text: Arc<str>,
        /// Whether the tokenizer adds its own special tokens (BOS and the like).
        add_special_tokens: bool,
    },
    /// A conversation, to be rendered by the chat template.
    Chat(Box<ChatCall>),
}

impl PromptInput {
    /// Reads a body.
    ///
    /// # Errors
    /// [`TokenizeError::Invalid`] where the engine will refuse the request, [`TokenizeError::Inexact`] where its ids
    /// cannot be told exactly, [`TokenizeError::NotTokenizable`] where there is no single prompt.
    pub fn read(kind: RequestKind, body: &[u8]) -> Result<Self, TokenizeError> {
        match kind {
            RequestKind::Embeddings | RequestKind::Other => return Err(TokenizeError::NotTokenizable),
            RequestKind::Chat | RequestKind::Completions | RequestKind::Responses | RequestKind::Messages => {
            }
        }
        let text = std::str::from_utf8(body).map_err(|_| TokenizeError::Invalid("the body is not UTF-8"))?;
        let Json::Map(body) = json::parse(text).map_err(unreadable)? else {
            return Err(TokenizeError::Invalid("the body is no object"));
        };
        match kind {
            RequestKind::Completions => completions::read(&body),
            RequestKind::Messages => anthropic::read(&body).map(|call| Self::Chat(Box::new(call))),
            RequestKind::Responses => responses::read(&body).map(|call| Self::Chat(Box::new(call))),
            _ => ChatCall::read(&body).map(|call| Self::Chat(Box::new(call))),
        }
    }
}

fn unreadable(error: ParseError) -> TokenizeError {
    match error {
        ParseError::Syntax(_) => TokenizeError::Invalid("the body is not JSON"),
        ParseError::Surrogate(_) => TokenizeError::Invalid("a lone surrogate"),
        ParseError::TooDeep => TokenizeError::Inexact("nested too deeply"),
    }
}

/// A field that is there and not null.
fn field<'a>(body: &'a Object, name: &str) -> Option<&'a Json> {
    body.get(name).filter(|value| !value.is_null())
}

/// A boolean field. The engine also takes `1` and `"true"` for true; we do not follow it there.
fn flag(body: &Object, name: &'static str, default: bool) -> Result<bool, TokenizeError> {
    match body.get(name) {
        None => Ok(default),
        Some(Json::Bool(flag)) => Ok(*flag),
        Some(_) => Err(TokenizeError::Inexact("a switch that is no boolean")),
    }
}

/// Switches that change the ids in ways that depend on the engine's limits.
fn refuse_truncation(body: &Object) -> Result<(), TokenizeError> {
    if field(body, "truncate_prompt_tokens").is_some() {
        return Err(TokenizeError::Inexact("truncate_prompt_tokens"));
    }
    if field(body, "prompt_embeds").is_some() {
        return Err(TokenizeError::Inexact("prompt_embeds"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
