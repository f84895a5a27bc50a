//! Where the prompt stands, and the ids when it is a flat list of them.

use std::sync::Arc;

use kvasir_core::{Prompt, RequestKind};

use crate::json::{Kind, Value};

/// The key that holds the prompt of a kind of request, if the kind has one.
pub(super) fn prompt_key(kind: RequestKind) -> Option<&'static str> {
    match kind {
        RequestKind::Chat | RequestKind::Messages => Some("messages"),
        RequestKind::Completions => Some("prompt"),
        RequestKind::Responses => Some("input"),
        RequestKind::Embeddings | RequestKind::Other => None,
    }
}

/// The prompt that `value` is. A form that no engine takes is no error here: the engine answers for it.
pub(super) fn read_prompt(kind: RequestKind, body: &[u8], value: Option<&Value>) -> Prompt {
    let Some(value) = value else { return Prompt::None };
    let span = value.span.clone();
    let list = value.kind == Kind::Array;
    let text = matches!(value.kind, Kind::String { .. });
    match kind {
        RequestKind::Chat | RequestKind::Messages if list => Prompt::Messages(span),
        RequestKind::Responses if list || text => Prompt::Input(span),
        RequestKind::Completions if list => match token_ids(body.get(span.clone()).unwrap_or_default()) {
            Some(ids) => Prompt::TokenIds(ids),
            None => Prompt::Text(span),
        },
        RequestKind::Completions if text => Prompt::Text(span),
        _ => Prompt::None,
    }
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
