//! Reads a `usage` object, in the spellings of the three APIs.

use kvasir_core::{RequestKind, Usage};

use crate::json::{JsonError, Kind, Members, Value};

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
