//! What a body becomes where one engine computes the prompt and another one generates.

use bytes::Bytes;
use kvasir_core::RequestKind;
use memchr::memchr;

use crate::json::text::write_string;
use crate::json::{Cursor, Kind, Value};

/// A member that the connector of the engines adds: its name, and its value in JSON. It takes the place of what the
/// client sent under this name.
pub type Addition = (&'static str, Bytes);

/// Whether a member tells an engine where a prompt's cache comes from or goes to: what to fetch from whom, the room to
/// meet in, the rank. vLLM knows the first one, SGLang the others.
pub(crate) fn is_hand_over(key: &str) -> bool {
    matches!(
        key,
        "kv_transfer_params"
            | "bootstrap_host"
            | "bootstrap_port"
            | "bootstrap_room"
            | "bootstrap_pair_key"
            | "data_parallel_rank"
            | "routed_dp_rank"
            | "disagg_prefill_dp_rank"
    )
}

/// The body without what a client says of the hand-over between two engines. Only the router knows who they are; a
/// client's word would send an engine to an address of the client's choice, or to a rank where nobody waits.
///
/// `None` when the body is no JSON object.
pub fn without_hand_over(body: &Bytes) -> Option<Bytes> {
    Remade::of(body, |key, _| is_hand_over(key))?.finish(&[])
}

/// Whether `prompt`, the checked JSON of that member, is a list of two prompts or more: texts, or lists of token ids.
pub fn are_several_prompts(prompt: &[u8]) -> bool {
    let mut cursor = Cursor::at(prompt, 1);
    cursor.skip_space();
    let is_list = prompt.first() == Some(&b'[') && matches!(cursor.peek(), Some(b'"' | b'['));
    if !is_list || cursor.value().is_err() {
        return false;
    }
    cursor.skip_space();
    cursor.peek() == Some(b',')
}

/// How the prefill engine is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefillShape {
    /// Which API the body speaks.
    pub kind: RequestKind,
    /// Whether one answer is enough where the client wants several. SGLang counts transfers by answers, so that there
    /// both engines must be asked for as many.
    pub one_sample: bool,
}

/// The body for the engine that computes the prompt: no stream, one token, and nothing that contradicts that.
///
/// `stream`, `stream_options` and `background` are left out, and `min_tokens` above 1. The limit of tokens becomes 1:
/// `max_tokens`, and `max_completion_tokens` where it is there and not null; `max_output_tokens` of the Responses API,
/// whose `store` becomes false: nobody would ever ask for what the prefill engine had stored.
/// With [`PrefillShape::one_sample`], `n` and `best_of` above 1 become 1. Every other byte stays; what is new comes at
/// the end. A repeated key is treated wherever it stands, so that every reader finds the same.
///
/// `None` when the body is no JSON object.
pub fn body_for_prefill(shape: PrefillShape, body: &Bytes, additions: &[Addition]) -> Option<Bytes> {
    let limit = match shape.kind {
        RequestKind::Responses => "max_output_tokens",
        _ => "max_tokens",
    };
    let mut ones = vec![limit];
    let mut one = |name: &'static str| {
        if !ones.contains(&name) {
            ones.push(name);
        }
        true
    };
    let mut remade = Remade::of(body, |key, value| match key {
        "stream" | "stream_options" => true,
        "background" | "store" => shape.kind == RequestKind::Responses,
        "min_tokens" => is_above_one(body, value),
        "max_completion_tokens" if limit == "max_tokens" => {
            value.kind != Kind::Null && one("max_completion_tokens")
        }
        "n" if shape.one_sample => is_above_one(body, value) && one("n"),
        "best_of" if shape.one_sample => is_above_one(body, value) && one("best_of"),
        key => key == limit || additions.iter().any(|(name, _)| *name == key),
    })?;
    for name in ones {
        remade.add(name, b"1");
    }
    if shape.kind == RequestKind::Responses {
        remade.add("store", b"false");
    }
    remade.finish(additions)
}

/// The body for the engine that generates: as it came, with what the connector adds at its end. Without additions the
/// same bytes come back, uncopied.
///
/// `None` when the body is no JSON object.
pub fn body_for_decode(body: &Bytes, additions: &[Addition]) -> Option<Bytes> {
    if additions.is_empty() {
        return Some(body.clone());
    }
    Remade::of(body, |key, _| additions.iter().any(|(name, _)| *name == key))?.finish(additions)
}

/// A number that is not known to be 0 or 1. Engines read numbers out of strings too.
fn is_above_one(body: &[u8], value: &Value) -> bool {
    match value.kind {
        Kind::Number => value.as_u64(body).is_none_or(|count| count > 1),
        Kind::String { .. } => true,
        _ => false,
    }
}

/// An object in the making, its closing brace still to come.
struct Remade<'b> {
    out: Vec<u8>,
    empty: bool,
    /// What follows the last member.
    tail: &'b [u8],
}

impl<'b> Remade<'b> {
    /// A copy without the members for which `leaves` holds, each with one comma beside it.
    fn of(body: &'b Bytes, mut leaves: impl FnMut(&str, &Value) -> bool) -> Option<Self> {
        let mut cursor = Cursor::new(body);
        cursor.skip_space();
        let start = cursor.position() + 1;
        let mut members = cursor.enter_object().ok()?;
        let mut out = Vec::with_capacity(body.len() + 256);
        out.extend_from_slice(body.get(..start)?);
        let mut empty = true;
        let mut seen = start;
        while let Some(member) = members.next().ok()? {
            let (from, to) = (member.key.span.start, member.value.span.end);
            // A key that is no text (half of a surrogate pair) is none of ours.
            let leaves = member.key.decode(body).is_some_and(|key| leaves(&key, &member.value));
            if !leaves {
                let gap = body.get(seen..from)?;
                // Of a gap behind members that left only what follows their comma is the new first member's.
                let gap = match memchr(b',', gap) {
                    Some(comma) if empty => gap.get(comma + 1..)?,
                    _ => gap,
                };
                out.extend_from_slice(gap);
                out.extend_from_slice(body.get(from..to)?);
                empty = false;
            }
            seen = to;
        }
        Some(Self { out, empty, tail: body.get(seen..)? })
    }

    fn add(&mut self, name: &str, value: &[u8]) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        write_string(&mut self.out, name);
        self.out.push(b':');
        self.out.extend_from_slice(value);
    }

    fn finish(mut self, additions: &[Addition]) -> Option<Bytes> {
        for (name, value) in additions {
            self.add(name, value);
        }
        self.out.extend_from_slice(self.tail);
        Some(self.out.into())
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
