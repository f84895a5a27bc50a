//! Where the prompt stands, and the ids when it is a flat list of them.

use std::sync::Arc;

use kvasir_core::{Prompt, RequestKind};

use super::ScanError;
use crate::json::{Kind, Members, Value};

/// Fields that make an engine compute something else than the prompt that is written there.
#[derive(Default)]
pub(super) struct Replacements {
    /// `truncate_prompt_tokens`: a part of it.
    pub truncation: Option<Value>,
    /// `prompt_embeds`: vectors before it.
    pub embeddings: Option<Value>,
    /// `input_ids`: SGLang takes them in its stead.
    pub input_ids: Option<Value>,
    /// `kv_transfer_params`, whose `prompt_token_ids` vLLM takes in its stead.
    pub transfer: Option<Value>,
}

impl Replacements {
    /// Whether any of them is in force.
    fn are_there(&self, body: &[u8]) -> Result<bool, ScanError> {
        let is_set = |value: &Option<Value>| value.as_ref().is_some_and(|value| value.kind != Kind::Null);
        if is_set(&self.truncation) || is_set(&self.embeddings) || is_set(&self.input_ids) {
            return Ok(true);
        }
        let Some(transfer) = self.transfer.as_ref().filter(|value| value.kind == Kind::Object) else {
            return Ok(false);
        };
        let mut members = Members::of(body, transfer)?;
        let mut ids = None;
        while let Some(member) = members.next()? {
            if member.key.decode(body).is_some_and(|key| key == "prompt_token_ids") {
                ids = Some(member.value);
            }
        }
        Ok(is_set(&ids))
    }
}

/// The key that holds the prompt of a kind of request, if the kind has one.
pub(super) fn prompt_key(kind: RequestKind) -> Option<&'static str> {
    match kind {
        RequestKind::Chat | RequestKind::Messages => Some("messages"),
        RequestKind::Completions => Some("prompt"),
        RequestKind::Responses => Some("input"),
        RequestKind::Embeddings | RequestKind::Other => None,
    }
}

/// The prompt that `value` is. A form that no engine takes is no error here: the engine answers for it. A list of ids that
/// the engine will not compute as they are is text like any other: who reads it has to see the rest of the body.
pub(super) fn read_prompt(
    kind: RequestKind,
    body: &[u8],
    value: Option<&Value>,
    replacements: &Replacements,
) -> Result<Prompt, ScanError> {
    let Some(value) = value else { return Ok(Prompt::None) };
    let span = value.span.clone();
    let list = value.kind == Kind::Array;
    let text = matches!(value.kind, Kind::String { .. });
    Ok(match kind {
        RequestKind::Chat | RequestKind::Messages if list => Prompt::Messages(span),
        RequestKind::Responses if list || text => Prompt::Input(span),
        RequestKind::Completions if list => match token_ids(body.get(span.clone()).unwrap_or_default()) {
            Some(ids) if !replacements.are_there(body)? => Prompt::TokenIds(ids),
            _ => Prompt::Text(span),
        },
        RequestKind::Completions if text => Prompt::Text(span),
        _ => Prompt::None,
    })
}

/// The ids of a list of whole numbers that fit 32 bits; `None` for any other list and for an empty one.
///
/// `list` is checked JSON, so that only the shape of the items has to be looked at.
fn token_ids(list: &[u8]) -> Option<Arc<[u32]>> {
    let inner = list.strip_prefix(b"[")?.strip_suffix(b"]")?;
    if !inner.trim_ascii_start().first()?.is_ascii_digit() {
        return None;
    }
    // Ids are about five digits and a comma; a good first guess saves the doubling of a long list.
    let mut ids = Vec::with_capacity(inner.len() / 6 + 1);
    for item in inner.split(|byte| *byte == b',') {
        let mut id = 0_u32;
        let digits = item.trim_ascii();
        if digits.is_empty() {
            return None;
        }
        for digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            id = id.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
        }
        ids.push(id);
    }
    Some(ids.into())
}
