//! From a request's body to what is to be rendered and encoded, normalised exactly as the engine does it.

mod anthropic;
mod chat;
mod completions;
mod media;
mod messages;
mod mistral;
mod responses;
mod sglang;
mod shape;
mod sorted;
mod tools;

use std::sync::Arc;

use kvasir_core::{RequestKind, TokenizeError};

use crate::json::{self, Json, Object, ParseError};

pub use chat::ChatCall;
pub use media::MEDIA;
pub use mistral::{MistralVersion, Segment};
pub use sglang::sglang_differs;
pub use shape::ChatShape;

/// Longest text that is encoded: two million tokens or more, which no engine's context holds. A thread would be busy
/// with it for a second.
pub const MAX_TEXT_BYTES: usize = 8 << 20;

/// Why a longer one is not.
pub const TOO_LONG: TokenizeError = TokenizeError::Inexact("a text of many megabytes");

/// The fields of a body that decide its ids; others are not kept.
const FIELDS: [&str; 25] = [
    "add_generation_prompt",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "conversation",
    "documents",
    "input",
    "input_ids",
    "instructions",
    "kv_transfer_params",
    "messages",
    "output_config",
    "previous_input_messages",
    "previous_response_id",
    "prompt",
    "prompt_embeds",
    "reasoning",
    "reasoning_effort",
    "suffix",
    "system",
    "thinking",
    "tools",
    "truncate_prompt_tokens",
    "truncation",
];

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
        let read = json::parse_fields(text, |name| FIELDS.contains(&name)).map_err(unreadable)?;
        let Json::Map(mut body) = read else {
            return Err(TokenizeError::Invalid("the body is no object"));
        };
        refuse_overrides(&body)?;
        match kind {
            RequestKind::Completions => completions::read(&body),
            RequestKind::Messages => anthropic::read(&mut body).map(|call| Self::Chat(Box::new(call))),
            RequestKind::Responses => responses::read(&mut body).map(|call| Self::Chat(Box::new(call))),
            _ => ChatCall::read(&mut body).map(|call| Self::Chat(Box::new(call))),
        }
    }
}

fn unreadable(error: ParseError) -> TokenizeError {
    match error {
        ParseError::Syntax(_) => TokenizeError::Invalid("the body is not JSON"),
        ParseError::Surrogate(_) => TokenizeError::Invalid("a lone surrogate"),
        ParseError::TooDeep => TokenizeError::Inexact("nested too deeply"),
        ParseError::TooMany => TokenizeError::Inexact("too many values"),
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

/// Fields that cut the prompt by the engine's limits, or that an engine takes in its stead: vLLM the ids of a transfer,
/// SGLang `input_ids`.
fn refuse_overrides(body: &Object) -> Result<(), TokenizeError> {
    for name in ["truncate_prompt_tokens", "prompt_embeds", "input_ids"] {
        if field(body, name).is_some() {
            return Err(TokenizeError::Inexact(name));
        }
    }
    let transfer = field(body, "kv_transfer_params").and_then(Json::as_map);
    if transfer.is_some_and(|transfer| field(transfer, "prompt_token_ids").is_some()) {
        return Err(TokenizeError::Inexact("the ids of a transfer"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
