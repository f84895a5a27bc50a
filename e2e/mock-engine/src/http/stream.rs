//! From tokens to server-sent events: the frame that all streamed answers share.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::unfold;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::body::Events;
use super::whole::{Count, total};
use crate::generation::Generation;

/// Tokens of parallel sequences that may wait for the client.
const QUEUED_TOKENS: usize = 64;

/// The events of one kind of answer. Each [`Bytes`] is one whole event.
pub(crate) trait Format: Send {
    /// Before the first token of sequence `choice`.
    fn begin(&mut self, choice: usize, count: Count, out: &mut VecDeque<Bytes>);

    /// One token; `finish_reason` is set on the last one of its sequence.
    fn token(
        &mut self,
        choice: usize,
        text: &str,
        finish_reason: Option<&'static str>,
        out: &mut VecDeque<Bytes>,
    );

    /// After the last token of all sequences.
    fn end(&mut self, count: Count, out: &mut VecDeque<Bytes>);
}

/// The stream of `generations`, `choices` of which share each prompt. Dropping it cancels them.
pub(crate) fn stream(mut generations: Vec<Generation>, choices: usize, format: Box<dyn Format>) -> Events {
    let sequences = generations.len();
    let source = match generations.pop() {
        Some(single) if generations.is_empty() => Source::One(Box::new(single)),
        last => {
            generations.extend(last);
            Source::many(generations)
        }
    };
    let state = Stream {
        source,
        format,
        ready: VecDeque::new(),
        begun: vec![false; sequences],
        counts: vec![Count::default(); sequences],
        choices,
        ended: false,
    };
    Box::pin(unfold(state, |mut state| async move { state.next().await.map(|event| (Ok(event), state)) }))
}

struct Stream {
    source: Source,
    format: Box<dyn Format>,
    ready: VecDeque<Bytes>,
    begun: Vec<bool>,
    counts: Vec<Count>,
    choices: usize,
    ended: bool,
}

enum Source {
    One(Box<Generation>),
    Many { tokens: mpsc::Receiver<Token>, _tasks: JoinSet<()> },
}

struct Token {
    choice: usize,
    text: String,
    finish_reason: Option<&'static str>,
    count: Count,
}

impl Source {
    /// Runs each sequence in its own task, so that each takes its own time.
    fn many(generations: Vec<Generation>) -> Self {
        let (sender, tokens) = mpsc::channel(QUEUED_TOKENS);
        let mut tasks = JoinSet::new();
        for (choice, mut generation) in generations.into_iter().enumerate() {
            let sender = sender.clone();
            tasks.spawn(async move {
                while let Some(index) = generation.next().await {
                    let token = Token {
                        choice,
                        text: generation.piece(index).text.to_owned(),
                        finish_reason: generation.is_done().then(|| generation.finish_reason()),
                        count: Count::from(&generation),
                    };
                    if sender.send(token).await.is_err() {
                        return;
                    }
                }
            });
        }
        Self::Many { tokens, _tasks: tasks }
    }
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            if !self.more().await {
                self.ended = true;
                self.format.end(total(self.counts.iter().copied(), self.choices), &mut self.ready);
            }
        }
    }

    /// Waits for a token and makes its events; false after the last token.
    async fn more(&mut self) -> bool {
        match &mut self.source {
            Source::One(generation) => {
                let Some(index) = generation.next().await else { return false };
                let count = Count::from(&**generation);
                if !std::mem::replace(&mut self.begun[0], true) {
                    self.format.begin(0, count, &mut self.ready);
                }
                self.counts[0] = count;
                let finish_reason = generation.is_done().then(|| generation.finish_reason());
                self.format.token(0, generation.piece(index).text, finish_reason, &mut self.ready);
            }
            Source::Many { tokens, .. } => {
                let Some(token) = tokens.recv().await else { return false };
                if !std::mem::replace(&mut self.begun[token.choice], true) {
                    self.format.begin(token.choice, token.count, &mut self.ready);
                }
                self.counts[token.choice] = token.count;
                self.format.token(token.choice, &token.text, token.finish_reason, &mut self.ready);
            }
        }
        true
    }
}

/// `data: ...` and the empty line.
pub(crate) fn data_event(json: &str) -> Bytes {
    Bytes::from(format!("data: {json}\n\n"))
}

/// `event: ...`, `data: ...` and the empty line.
pub(crate) fn named_event(name: &str, json: &serde_json::Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}

/// Appends `text` as a JSON string.
pub(crate) fn put_json_string(out: &mut BytesMut, text: &str) {
    let quoted = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if quoted {
        out.put_u8(b'"');
        out.put_slice(text.as_bytes());
        out.put_u8(b'"');
    } else if let Ok(escaped) = serde_json::to_string(text) {
        out.put_slice(escaped.as_bytes());
    }
}
