//! Reads what an engine answers: one JSON object, or a stream of them.

use kvasir_core::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::{Failure, FailureKind};
use crate::sse::{Event, EventTooLarge, SseReader};

/// Most text kept of one answer, bytes. Only conversations keep any.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// What an answer said.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Said {
    /// Generated text, when it was asked for.
    pub(crate) text: String,
    /// Token counts, when the engine gave them.
    pub(crate) usage: Option<Usage>,
}

/// Reads a stream, and knows whether it ended as it should: with a finish reason and `[DONE]`, and no error.
#[derive(Debug, Default)]
pub(crate) struct StreamReader {
    sse: SseReader,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    keep_text: bool,
    said: Said,
    has_content: bool,
    finished: bool,
    done: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Message<'a>>,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default)]
    content: Option<String>,
    /// Thinking, under the names that engines give it.
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl StreamReader {
    /// A reader that keeps the generated text, or not.
    pub(crate) fn new(keep_text: bool) -> Self {
        Self { sse: SseReader::default(), state: State { keep_text, ..State::default() } }
    }

    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let state = &mut self.state;
        self.sse.feed(bytes, |event| state.take(event))
    }

    /// Whether generated content has arrived: text, thinking or a tool call. The chunk that only names the role,
    /// which engines send before they have computed anything, is none.
    pub(crate) fn has_content(&self) -> bool {
        self.state.has_content
    }

    /// What was said, or why the stream was no whole answer. To be called when the body has ended properly.
    pub(crate) fn end(self) -> Result<Said, Failure> {
        match (self.state.done, self.state.finished) {
            (true, true) => Ok(self.state.said),
            (true, false) => Err(Failure::new(FailureKind::NoFinish, "the stream gave no finish reason")),
            (false, _) => Err(Failure::new(FailureKind::StreamCut, "the stream ended without [DONE]")),
        }
    }
}

impl State {
    fn take(&mut self, event: Event<'_>) -> Result<(), Failure> {
        if event.name == b"error" {
            return Err(Failure::error_event(event.data));
        }
        if event.data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk = parse(event.data)?;
        if let Some(usage) = chunk.usage {
            self.said.usage = Some(usage.into());
        }
        for choice in chunk.choices.unwrap_or_default() {
            self.finished |= choice.finish_reason.is_some();
            let text = choice.generated();
            self.has_content |= choice.has_content(text);
            if self.keep_text && self.said.text.len() + text.len() <= MAX_TEXT_BYTES {
                self.said.text.push_str(text);
            }
        }
        Ok(())
    }
}

impl Choice<'_> {
    fn spoken(&self) -> Option<&Message<'_>> {
        self.delta.as_ref().or(self.message.as_ref())
    }

    fn generated(&self) -> &str {
        let content = self.spoken().and_then(|message| message.content.as_deref());
        content.or(self.text.as_deref()).unwrap_or_default()
    }

    fn has_content(&self, text: &str) -> bool {
        let filled = |field: &Option<String>| field.as_ref().is_some_and(|text| !text.is_empty());
        let beside_text = self.spoken().is_some_and(|message| {
            filled(&message.reasoning_content)
                || filled(&message.reasoning)
                || message.tool_calls.is_some_and(|calls| !matches!(calls.get(), "null" | "[]"))
        });
        !text.is_empty() || beside_text
    }
}

impl From<EventTooLarge> for Failure {
    fn from(_: EventTooLarge) -> Self {
        Self::new(FailureKind::TooLarge, "one event of the stream is larger than 4 MiB")
    }
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        Self {
            prompt_tokens: wire.prompt_tokens,
            completion_tokens: wire.completion_tokens.unwrap_or(0),
            cached_tokens: wire.prompt_tokens_details.and_then(|details| details.cached_tokens),
        }
    }
}

/// Reads an answer that came in one piece.
pub(crate) fn read_whole(body: &[u8], keep_text: bool) -> Result<Said, Failure> {
    let chunk = parse(body)?;
    let Some(choice) = chunk.choices.as_deref().and_then(<[Choice<'_>]>::first) else {
        return Err(Failure::new(FailureKind::BadAnswer, "the answer has no choices"));
    };
    if choice.finish_reason.is_none() {
        return Err(Failure::new(FailureKind::NoFinish, "the answer gives no finish reason"));
    }
    let text = if keep_text { choice.generated().to_owned() } else { String::new() };
    Ok(Said { text, usage: chunk.usage.map(Usage::from) })
}

fn parse(data: &[u8]) -> Result<Chunk<'_>, Failure> {
    let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|error| {
        // The place, not the text: an answer may quote the prompt.
        let message = format!("not a chat or completions answer (column {} of its JSON)", error.column());
        Failure::new(FailureKind::BadAnswer, &message)
    })?;
    if chunk.error.is_some_and(|error| error.get() != "null") {
        return Err(Failure::error_event(data));
    }
    Ok(chunk)
}

#[cfg(test)]
mod tests;
