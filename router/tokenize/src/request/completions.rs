//! `/v1/completions`: a text, or token ids.
//!
//! Several prompts in one request are a batch: the engine runs each on its own, and no single place is best for all
//! of them. Such a request is routed by load.

use std::sync::Arc;

use kvasir_core::TokenizeError;

use super::{MAX_TEXT_BYTES, PromptInput, TOO_LONG, field, flag};
use crate::json::{Json, Object};

/// Reads the body.
pub fn read(body: &Object) -> Result<PromptInput, TokenizeError> {
    if field(body, "suffix").is_some() {
        // The engine refuses it, but for models that fill in the middle: theirs has a form of its own.
        return Err(TokenizeError::Inexact("suffix"));
    }
    let add_special_tokens = flag(body, "add_special_tokens", true)?;
    let prompt = field(body, "prompt").ok_or(TokenizeError::Invalid("no prompt"))?;
    match prompt {
        Json::Text(text) => plain(text, add_special_tokens),
        Json::List(list) => match list.as_slice() {
            [] => Err(TokenizeError::Invalid("no prompt")),
            [Json::Text(text)] => plain(text, add_special_tokens),
            [Json::List(ids)] => token_ids(ids),
            [Json::Int(_) | Json::BigInt(_), ..] => token_ids(list),
            [Json::Text(_) | Json::List(_), ..] => Err(TokenizeError::NotTokenizable),
            _ => Err(TokenizeError::Invalid("a prompt is text or token ids")),
        },
        _ => Err(TokenizeError::Invalid("a prompt is text or token ids")),
    }
}

fn plain(text: &Arc<str>, add_special_tokens: bool) -> Result<PromptInput, TokenizeError> {
    if text.is_empty() {
        return Err(TokenizeError::Invalid("an empty prompt"));
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err(TOO_LONG);
    }
    Ok(PromptInput::Text { text: Arc::clone(text), add_special_tokens })
}

/// Ids pass through, those beyond the vocabulary too.
fn token_ids(list: &[Json]) -> Result<PromptInput, TokenizeError> {
    let ids: Option<Arc<[u32]>> = list
        .iter()
        .map(|id| match id {
            Json::Int(id) => u32::try_from(*id).ok(),
            _ => None,
        })
        .collect();
    match ids {
        Some(ids) if !ids.is_empty() => Ok(PromptInput::Ids(ids)),
        _ => Err(TokenizeError::Invalid("a token id is a small whole number")),
    }
}
