//! Reads a `usage` object, in the spellings of the three APIs, and corrects it.

use std::ops::Range;

use bytes::Bytes;
use kvasir_core::{RequestKind, Usage};
use smallvec::SmallVec;

use crate::json::{Cursor, JsonError, Kind, Members, Value};
use crate::rewrite::{Edit, splice};

/// The counts of one answer, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    prompt: Option<u64>,
    completion: Option<u64>,
    cached: Option<u64>,
    cache_written: Option<u64>,
}

impl Counts {
    /// Takes over what the object `value` of `bytes` says.
    ///
    /// OpenAI's objects are whole, so the last one wins; that keeps streams with usage in every event from being
    /// counted more than once. Anthropic's come in parts (`message_start`, then `message_delta`), so the last
    /// value of each count wins, and a 0 never hides what was known.
    pub(crate) fn take(&mut self, kind: RequestKind, bytes: &[u8], value: &Value) -> Result<(), JsonError> {
        let read = Self::read(bytes, value)?;
        if read.prompt.is_none() && read.completion.is_none() && read.cached.is_none() {
            return Ok(());
        }
        if kind == RequestKind::Messages {
            self.prompt = later(self.prompt, read.prompt);
            self.completion = later(self.completion, read.completion);
            self.cached = later(self.cached, read.cached);
            self.cache_written = later(self.cache_written, read.cache_written);
        } else {
            *self = read;
        }
        Ok(())
    }

    /// What the router accounts; `None` before anything was read.
    ///
    /// Anthropic's `input_tokens` leaves out what was read from and written to the cache, so the prompt is the sum
    /// of the three.
    pub(crate) fn usage(&self, kind: RequestKind) -> Option<Usage> {
        if *self == Self::default() {
            return None;
        }
        let mut prompt = self.prompt.unwrap_or(0);
        if kind == RequestKind::Messages {
            let cache = self.cached.unwrap_or(0).saturating_add(self.cache_written.unwrap_or(0));
            prompt = prompt.saturating_add(cache);
        }
        Some(Usage {
            prompt_tokens: prompt,
            completion_tokens: self.completion.unwrap_or(0),
            cached_tokens: self.cached,
        })
    }

    fn read(bytes: &[u8], value: &Value) -> Result<Self, JsonError> {
        let mut read = Self::default();
        if value.kind != Kind::Object {
            return Ok(read);
        }
        let mut members = Members::of(bytes, value)?;
        while let Some(member) = members.next()? {
            let count = member.value.as_u64(bytes);
            match member.key.raw(bytes) {
                b"prompt_tokens" | b"input_tokens" => read.prompt = count,
                b"completion_tokens" | b"output_tokens" => read.completion = count,
                b"cache_read_input_tokens" => read.cached = count,
                b"cache_creation_input_tokens" => read.cache_written = count,
                b"prompt_tokens_details" | b"input_tokens_details" => {
                    read.cached = cached_tokens(bytes, &member.value)?.or(read.cached);
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

fn later(known: Option<u64>, read: Option<u64>) -> Option<u64> {
    match (known, read) {
        (Some(known), Some(0)) => Some(known),
        (known, read) => read.or(known),
    }
}

/// `cached_tokens` of a details object; the engines send null in its place when they do not count.
fn cached_tokens(bytes: &[u8], details: &Value) -> Result<Option<u64>, JsonError> {
    if details.kind != Kind::Object {
        return Ok(None);
    }
    let mut members = Members::of(bytes, details)?;
    let mut cached = None;
    while let Some(member) = members.next()? {
        if member.key.raw(bytes) == b"cached_tokens" {
            cached = member.value.as_u64(bytes);
        }
    }
    Ok(cached)
}

/// Where a usage object says how many tokens came out of the cache. Anthropic's spelling is left out: there the number
/// is no part of another one, so that it cannot be changed alone.
pub(crate) fn cached_spans(bytes: &[u8], usage: &Value) -> Result<SmallVec<[Range<usize>; 1]>, JsonError> {
    let mut spans = SmallVec::new();
    let mut members = Members::of(bytes, usage)?;
    while let Some(member) = members.next()? {
        let is_details = matches!(member.key.raw(bytes), b"prompt_tokens_details" | b"input_tokens_details");
        if !is_details || member.value.kind != Kind::Object {
            continue;
        }
        let mut details = Members::of(bytes, &member.value)?;
        while let Some(detail) = details.next()? {
            if detail.key.raw(bytes) == b"cached_tokens"
                && matches!(detail.value.kind, Kind::Number | Kind::Null)
            {
                spans.push(detail.value.span);
            }
        }
    }
    Ok(spans)
}

/// The number of cached tokens as JSON; null where the engine that knows it did not say.
pub(crate) fn cached_text(cached: Option<u64>) -> Bytes {
    cached.map_or(Bytes::from_static(b"null"), |count| Bytes::from(count.to_string()))
}

/// A whole answer with another number of cached tokens, wherever its top-level `usage` has one; every other byte stays.
/// An answer without one, or one that is no JSON object, comes back uncopied.
pub fn correct_cached(answer: &Bytes, cached: Option<u64>) -> Bytes {
    let edits = top_level_spans(answer).unwrap_or_default();
    let with = cached_text(cached);
    splice(answer, edits.into_iter().map(|at| Edit { at, with: with.clone() }).collect())
}

fn top_level_spans(answer: &[u8]) -> Result<SmallVec<[Range<usize>; 1]>, JsonError> {
    let mut members = Cursor::new(answer).enter_object()?;
    let mut spans = SmallVec::new();
    while let Some(member) = members.next()? {
        if member.key.raw(answer) == b"usage" && member.value.kind == Kind::Object {
            spans.extend(cached_spans(answer, &member.value)?);
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cached_tokens_of_an_answer_are_replaced_in_place() {
        let cases = [
            (
                r#"{"usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 96 , "a":1}}, "id":"x"}"#,
                "96",
            ),
            (r#"{"usage":{"input_tokens_details":{"cached_tokens":null}}}"#, "null"),
            (
                r#"{"a":{"usage":{"prompt_tokens_details":{"cached_tokens":3}}},"usage":{"prompt_tokens_details":{"cached_tokens":96}}}"#,
                "96",
            ),
        ];
        for (answer, was) in cases {
            let bytes = Bytes::copy_from_slice(answer.as_bytes());
            for (cached, is) in [(Some(0), "0"), (Some(123_456), "123456"), (None, "null")] {
                let expected =
                    answer.replace(&format!("cached_tokens\":{was}"), &format!("cached_tokens\":{is}"));
                let expected =
                    expected.replace(&format!("cached_tokens\": {was}"), &format!("cached_tokens\": {is}"));
                assert_eq!(correct_cached(&bytes, cached), expected.as_bytes());
            }
        }
    }

    #[test]
    fn an_answer_without_the_number_is_left_alone() {
        for answer in [
            "",
            "[]",
            "{\"usage\":null}",
            "{\"usage\":{\"prompt_tokens\":1,\"prompt_tokens_details\":null}}",
            "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":\"many\"}}}",
            "{\"usage\":{\"cache_read_input_tokens\":5}}",
            "{\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":5}}",
        ] {
            let bytes = Bytes::copy_from_slice(answer.as_bytes());
            let made = correct_cached(&bytes, Some(1));
            assert_eq!((made.as_ptr(), made.len()), (bytes.as_ptr(), bytes.len()), "{answer}");
        }
    }
}
