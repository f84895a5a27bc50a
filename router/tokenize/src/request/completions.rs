//! `/v1/completions`: a text, or token ids.
//!
//! Several prompts in one request are a batch: the engine runs each on its own, and no single place is best for all
//! of them. Such a request is routed by load.

use std::sync::Arc;

use kvasir_core::TokenizeError;

use super::{PromptInput, field, flag, refuse_truncation};
use crate::json::{Json, Object};

/// Reads the body.
pub fn read(body: &Object) -> Result<PromptInput, TokenizeError> {
    refuse_truncation(body)?;
    if field(body, "suffix").is_some() {
        return Err(TokenizeError::Invalid("suffix is not supported by the engine"));
    }
    let add_special_tokens = flag(body, "add_special_tokens", true)?;
    let prompt = field(body, "prompt").ok_or(TokenizeError::Invalid("no prompt"))?;
    match prompt {
        Json::Text(text) => plain(text, add_special_tokens),
        Json::List(list) => match list.as_slice() {
            [] => Err(TokenizeError::Invalid("no prompt")),
            [Json::Text(text)] => plain(text, add_special_tokens),
            [Json::List(ids)] => token_ids(ids),
            [Json::Int(_), ..] => token_ids(list),
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
    Ok(PromptInput::Text { text: Arc::clone(text), add_special_tokens })
}

/// Ids pass through, those beyond the vocabulary too.
fn token_ids(list: &[Json]) -> Result<PromptInput, TokenizeError> {
    let ids: Option<Arc<[u32]>> = list
        .iter()
        .map(|id| match id {
            Json::Int(digits) => digits.parse().ok(),
            _ => None,
        })
        .collect();
    match ids {
        Some(ids) if !ids.is_empty() => Ok(PromptInput::Ids(ids)),
        _ => Err(TokenizeError::Invalid("a token id is a small whole number")),
    }
}
