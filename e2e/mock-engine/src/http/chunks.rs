//! Streamed chat and completions, in vLLM's shape.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::json;

use super::stream::{Format, data_event, put_json_string};
use super::whole::{Count, Heading, usage};

/// The end of a stream.
const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// `chat.completion.chunk`: the role first, then pieces, the last of which has the finish reason.
pub(crate) struct ChatChunks(Chunks);

/// `text_completion`: pieces, the last of which has the finish reason.
pub(crate) struct CompletionChunks(Chunks);

/// What the chunks of one answer share.
struct Chunks {
    heading: Heading,
    object: &'static str,
    wants_usage: bool,
    /// From `data: ` up to the choice's index.
    opening: Bytes,
}

impl ChatChunks {
    pub(crate) fn new(heading: &Heading, wants_usage: bool) -> Self {
        Self(Chunks::new(heading, "chat.completion.chunk", wants_usage))
    }
}

impl CompletionChunks {
    pub(crate) fn new(heading: &Heading, wants_usage: bool) -> Self {
        Self(Chunks::new(heading, "text_completion", wants_usage))
    }
}

impl Chunks {
    fn new(heading: &Heading, object: &'static str, wants_usage: bool) -> Self {
        let mut opening = BytesMut::with_capacity(192);
        opening.put_slice(b"data: {\"id\":");
        put_json_string(&mut opening, &heading.id);
        opening.put_slice(b",\"object\":\"");
        opening.put_slice(object.as_bytes());
        opening.put_slice(format!("\",\"created\":{},\"model\":", heading.created).as_bytes());
        put_json_string(&mut opening, &heading.model);
        opening.put_slice(b",\"choices\":[{\"index\":");
        Self { heading: heading.clone(), object, wants_usage, opening: opening.freeze() }
    }

    /// One chunk: `before` the text, `after` it, then how it ended.
    fn chunk(
        &self,
        choice: usize,
        [before, after]: [&str; 2],
        text: &str,
        finish_reason: Option<&'static str>,
    ) -> Bytes {
        let mut chunk = BytesMut::with_capacity(self.opening.len() + text.len() + 128);
        chunk.put_slice(&self.opening);
        chunk.put_slice(choice.to_string().as_bytes());
        chunk.put_slice(before.as_bytes());
        put_json_string(&mut chunk, text);
        chunk.put_slice(after.as_bytes());
        chunk.put_slice(b",\"logprobs\":null,\"finish_reason\":");
        match finish_reason {
            None => chunk.put_slice(b"null"),
            Some(reason) => {
                chunk.put_u8(b'"');
                chunk.put_slice(reason.as_bytes());
                chunk.put_slice(b"\",\"stop_reason\":null");
            }
        }
        chunk.put_slice(b"}]}\n\n");
        chunk.freeze()
    }

    fn end(&self, count: Count, out: &mut VecDeque<Bytes>) {
        if self.wants_usage {
            let last = json!({
                "id": self.heading.id,
                "object": self.object,
                "created": self.heading.created,
                "model": self.heading.model,
                "choices": [],
                "usage": usage(&self.heading, count),
            });
            out.push_back(data_event(&last.to_string()));
        }
        out.push_back(DONE);
    }
}

impl Format for ChatChunks {
    fn begin(&mut self, choice: usize, _: Count, out: &mut VecDeque<Bytes>) {
        out.push_back(self.0.chunk(
            choice,
            [",\"delta\":{\"role\":\"assistant\",\"content\":", "}"],
            "",
            None,
        ));
    }

    fn token(
        &mut self,
        choice: usize,
        text: &str,
        finish_reason: Option<&'static str>,
        out: &mut VecDeque<Bytes>,
    ) {
        out.push_back(self.0.chunk(choice, [",\"delta\":{\"content\":", "}"], text, finish_reason));
    }

    fn end(&mut self, count: Count, out: &mut VecDeque<Bytes>) {
        self.0.end(count, out);
    }
}

impl Format for CompletionChunks {
    fn begin(&mut self, _: usize, _: Count, _: &mut VecDeque<Bytes>) {}

    fn token(
        &mut self,
        choice: usize,
        text: &str,
        finish_reason: Option<&'static str>,
        out: &mut VecDeque<Bytes>,
    ) {
        out.push_back(self.0.chunk(choice, [",\"text\":", ""], text, finish_reason));
    }

    fn end(&mut self, count: Count, out: &mut VecDeque<Bytes>) {
        self.0.end(count, out);
    }
}
