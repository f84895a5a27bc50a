//! Passes a stream on as it arrives, reads it on the side, and takes injected usage out of it.

use bytes::Bytes;
use kvasir_core::{RequestKind, Usage};
use smallvec::SmallVec;

use super::event::{Facts, Verdict};
use super::lines::{Line, comments, next_line};
use super::open::OpenEvent;
use crate::usage::cached_text;

/// What one chunk becomes: usually the chunk itself.
pub type Pieces = SmallVec<[Bytes; 4]>;

/// Longest event that is read, bytes. A longer one is passed on as it is, whatever it holds.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Where the stream stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No field of an event was seen since the last blank line.
    Between,
    /// In an event of which nothing is known yet; its bytes are in the carry or still in the chunk.
    Open,
    /// In an event that goes on as it is.
    Passing,
    /// In an event that is left out.
    Dropping,
}

/// What a line is, told by its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineKind {
    Blank,
    Comment,
    Field,
}

/// What became of a line whose CR was the last byte of a chunk: a LF that follows shares its fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Passed,
    Dropped,
    Held,
}

/// The tap on one stream of one answer.
///
/// Without hiding or correcting, every chunk goes on at once, untouched. With hiding, an event that only carries the usage the
/// router asked for is left out whole, and a `usage` member beside content is cut out; an event is held back only
/// until its payload is complete, everything else goes on at once. Chunks are sliced, not copied; a copy is made
/// only of an event that arrives in several chunks. At most [`MAX_EVENT_BYTES`] are held.
#[derive(Debug)]
pub struct StreamTap {
    facts: Facts,
    /// Whether events may go on otherwise than they came, so that each is held until its payload is complete.
    edits: bool,
    /// The number of cached tokens that takes the engine's place, and its spelling.
    corrected_to: Option<Option<u64>>,
    cached: Bytes,
    stage: Stage,
    /// Set while the current line began in an earlier chunk.
    begun: Option<LineKind>,
    /// The event in which `Open` is.
    event: OpenEvent,
    /// Whether the last line that ended was left out.
    dropped_last: bool,
    after_cr: Option<Fate>,
    first_line: bool,
}

/// The chunk at hand and how far it has been dealt with.
struct Chunk<'a> {
    bytes: &'a Bytes,
    /// The first byte that was neither passed on nor left out nor carried.
    flow: usize,
    /// The first byte of the open event, while the carry is empty.
    open: usize,
}

impl StreamTap {
    /// A tap on the answer to a request of `kind`. `hide_usage` says that the router asked for usage, not the
    /// client; it matters for chat and completions only, the other APIs always send usage.
    pub fn new(kind: RequestKind, hide_usage: bool) -> Self {
        let hides = hide_usage && matches!(kind, RequestKind::Chat | RequestKind::Completions);
        Self {
            facts: Facts::new(kind, hides),
            edits: hides,
            corrected_to: None,
            cached: Bytes::new(),
            stage: Stage::Between,
            begun: None,
            event: OpenEvent::default(),
            dropped_last: false,
            after_cr: None,
            first_line: true,
        }
    }

    /// A tap that may be told the number of cached tokens: the engine at hand does not know it.
    pub fn correcting(mut self) -> Self {
        self.edits = true;
        self
    }

    /// From now on usage has this number of cached tokens in the place of the engine's own; `None` becomes null. Only for a
    /// tap that is [`correcting`](Self::correcting). Usage without such a number stays as it is, and so does
    /// Anthropic's, where the number is no part of another one.
    pub fn correct_cached(&mut self, cached: Option<u64>) {
        if self.edits && self.corrected_to != Some(cached) {
            self.facts.corrects = true;
            self.corrected_to = Some(cached);
            self.cached = cached_text(cached);
        }
    }

    /// Takes one chunk and appends to `out` what the client gets now.
    pub fn push(&mut self, chunk: Bytes, out: &mut Pieces) {
        if chunk.is_empty() {
            return;
        }
        if !self.edits {
            out.push(chunk.clone());
        }
        let mut part = Chunk { bytes: &chunk, flow: 0, open: 0 };
        let mut at = self.join_crlf(&mut part, out);
        let mut last = None;
        while let Some(line) = next_line(&chunk, at) {
            at = line.next;
            last = Some((self.end_line(&mut part, &line, out), line.cut_after_cr));
        }
        self.begin_line(&mut part, at);
        self.end_chunk(&mut part, at, out);
        if let Some((kind, true)) = last {
            self.after_cr = Some(self.fate(kind));
        }
    }

    /// Ends the stream: appends what was held back, unless it is a usage event that only lacks its last line end.
    pub fn finish(&mut self, out: &mut Pieces) {
        if self.stage == Stage::Open {
            if self.begun.take() == Some(LineKind::Field) {
                self.event.note_carried(0, self.first_line);
            }
            let nothing = Bytes::new();
            self.decide(&mut Chunk { bytes: &nothing, flow: 0, open: 0 }, 0, out);
        }
        self.stage = Stage::Passing;
    }

    /// What the stream has said about usage so far; the last word wins.
    pub fn usage(&self) -> Option<Usage> {
        self.facts.usage()
    }

    /// Whether the stream came to its proper end: `[DONE]`, `message_stop`, or a closing event of the Responses API.
    pub fn finished(&self) -> bool {
        self.facts.finished
    }

    /// Whether an event reported an error. Such a stream is no success, in spite of a `[DONE]`.
    pub fn error_seen(&self) -> bool {
        self.facts.error_seen
    }

    /// Whether the engine said why it stopped.
    pub fn finish_reason_seen(&self) -> bool {
        self.facts.finish_reason_seen
    }

    /// The id of a Responses API answer.
    pub fn response_id(&self) -> Option<&str> {
        self.facts.response_id.as_deref()
    }

    /// Gives a LF at the start of the chunk to the CR before it.
    fn join_crlf(&mut self, part: &mut Chunk<'_>, out: &mut Pieces) -> usize {
        let (Some(fate), Some(b'\n')) = (self.after_cr.take(), part.bytes.first()) else { return 0 };
        match fate {
            // A comment that went on in spite of its event.
            Fate::Passed if self.stage == Stage::Dropping => {
                self.emit(part.bytes.slice(..1), out);
                part.flow = 1;
            }
            Fate::Passed => {}
            Fate::Dropped => part.flow = 1,
            Fate::Held => {
                self.event.carry(b"\n");
                part.flow = 1;
            }
        }
        1
    }

    fn fate(&self, last: LineKind) -> Fate {
        match self.stage {
            Stage::Open => Fate::Held,
            Stage::Passing => Fate::Passed,
            Stage::Dropping if last == LineKind::Comment => Fate::Passed,
            Stage::Dropping => Fate::Dropped,
            Stage::Between if self.dropped_last => Fate::Dropped,
            Stage::Between => Fate::Passed,
        }
    }

    /// Deals with a line that ends in this chunk.
    fn end_line(&mut self, part: &mut Chunk<'_>, line: &Line, out: &mut Pieces) -> LineKind {
        let start = line.content.start;
        let kind = self.begun.unwrap_or_else(|| match part.bytes.get(start) {
            _ if line.content.is_empty() => LineKind::Blank,
            Some(b':') => LineKind::Comment,
            _ => LineKind::Field,
        });
        self.dropped_last = false;
        match (self.stage, kind) {
            (Stage::Between, LineKind::Field) => {
                part.open = start;
                self.stage = Stage::Open;
                self.add_line(part, line, out);
            }
            (Stage::Open, LineKind::Blank) => self.end_event(part, line, out),
            (Stage::Open, _) => self.add_line(part, line, out),
            (Stage::Passing, LineKind::Blank) => self.stage = Stage::Between,
            (Stage::Dropping, _) => {
                if kind == LineKind::Comment {
                    self.emit(part.bytes.slice(start..line.next), out);
                }
                part.flow = line.next;
                if kind == LineKind::Blank {
                    self.stage = Stage::Between;
                    self.dropped_last = true;
                }
            }
            (Stage::Between | Stage::Passing, _) => {}
        }
        self.begun = None;
        self.first_line = false;
        kind
    }

    /// Adds a line to the open event.
    fn add_line(&mut self, part: &mut Chunk<'_>, line: &Line, out: &mut Pieces) {
        if self.event.is_carried() {
            let bytes = part.bytes.get(part.flow..line.next).unwrap_or_default();
            if self.event.carried_len() + bytes.len() > MAX_EVENT_BYTES {
                return self.give_up(part, out);
            }
            let terminator = line.next - line.content.end;
            self.event.carry_line(bytes, terminator, self.begun.is_some(), self.first_line);
            part.flow = line.next;
        } else {
            let text = part.bytes.get(line.content.clone()).unwrap_or_default();
            self.event.note_line(line.content.start - part.open, text, self.first_line);
        }
        if self.event.has_too_many_lines() {
            self.give_up(part, out);
        }
    }

    /// Lets the open event go on unread.
    fn give_up(&mut self, part: &mut Chunk<'_>, out: &mut Pieces) {
        self.stage = Stage::Passing;
        let carried = self.event.take();
        self.emit(carried, out);
        // What of the event is in the chunk flows on with the rest of it.
        part.open = part.flow;
    }

    /// Decides over the open event at its blank line.
    fn end_event(&mut self, part: &mut Chunk<'_>, line: &Line, out: &mut Pieces) {
        if self.event.is_carried() {
            self.event.carry(part.bytes.get(part.flow..line.next).unwrap_or_default());
            part.flow = line.next;
        }
        let verdict = self.decide(part, line.next, out);
        self.dropped_last = verdict == Verdict::Drop;
        self.stage = Stage::Between;
    }

    /// Reads the open event, up to `end` of the chunk or in its carry, and carries out the verdict.
    fn decide(&mut self, part: &mut Chunk<'_>, end: usize, out: &mut Pieces) -> Verdict {
        let region = part.bytes.get(part.open..end).unwrap_or_default();
        let verdict = self.event.judge(&mut self.facts, region);
        let carried = self.event.take();
        if carried.is_empty() {
            self.apply(part, end, &verdict, out);
        } else {
            let mut held = Chunk { bytes: &carried, flow: 0, open: 0 };
            self.apply(&mut held, carried.len(), &verdict, out);
            self.emit(carried.slice(held.flow..), out);
        }
        verdict
    }

    /// Carries out a verdict over an event that stands in the chunk from `open` to `end`.
    fn apply(&mut self, part: &mut Chunk<'_>, end: usize, verdict: &Verdict, out: &mut Pieces) {
        match verdict {
            Verdict::Pass => {}
            Verdict::Drop => {
                self.emit(part.bytes.slice(part.flow..part.open), out);
                let region = part.bytes.slice(part.open..end);
                for comment in comments(&region) {
                    self.emit(region.slice(comment), out);
                }
                part.flow = end;
            }
            Verdict::Cut(cuts) => {
                for cut in cuts {
                    self.emit(part.bytes.slice(part.flow..part.open + cut.start), out);
                    part.flow = part.open + cut.end;
                }
            }
            Verdict::Correct(spans) => {
                for span in spans {
                    self.emit(part.bytes.slice(part.flow..part.open + span.start), out);
                    self.emit(self.cached.clone(), out);
                    part.flow = part.open + span.end;
                }
            }
        }
    }

    /// Notes the line that begins at `at` and ends in a later chunk.
    fn begin_line(&mut self, part: &mut Chunk<'_>, at: usize) {
        let (None, Some(first)) = (self.begun, part.bytes.get(at)) else { return };
        let kind = if *first == b':' { LineKind::Comment } else { LineKind::Field };
        self.begun = Some(kind);
        if self.stage == Stage::Between && kind == LineKind::Field {
            self.stage = Stage::Open;
            part.open = at;
        }
        // Without a carry the event will move into it from `open` on.
        let in_event =
            if self.event.is_carried() { self.event.carried_len() } else { at - part.open.min(at) };
        self.event.begin_line(in_event);
    }

    /// Deals with what is left of the chunk; an unfinished line starts at `at`.
    fn end_chunk(&mut self, part: &mut Chunk<'_>, at: usize, out: &mut Pieces) {
        let end = part.bytes.len();
        if self.stage == Stage::Open {
            self.hold(part, out);
        }
        if self.stage == Stage::Dropping {
            if self.begun == Some(LineKind::Comment) && at.max(part.flow) < end {
                self.emit(part.bytes.slice(at.max(part.flow)..), out);
            }
        } else if part.flow < end {
            self.emit(part.bytes.slice(part.flow..), out);
        }
    }

    /// Decides over an event whose payload is complete already, or keeps it for the next chunk.
    fn hold(&mut self, part: &mut Chunk<'_>, out: &mut Pieces) {
        let carried = self.event.is_carried();
        let end = part.bytes.len();
        let rest = part.bytes.get(if carried { part.flow } else { part.open }..).unwrap_or_default();
        let complete = self.event.is_complete(rest);
        if !complete && self.event.carried_len() + rest.len() > MAX_EVENT_BYTES {
            return self.give_up(part, out);
        }
        if carried || !complete {
            if !carried {
                self.emit(part.bytes.slice(part.flow..part.open), out);
            }
            self.event.carry(rest);
            part.flow = end;
        }
        if complete {
            let verdict = self.decide(part, end, out);
            self.stage = if verdict == Verdict::Drop { Stage::Dropping } else { Stage::Passing };
        }
    }

    fn emit(&self, piece: Bytes, out: &mut Pieces) {
        // Without edits the chunk has gone out as a whole.
        if self.edits && !piece.is_empty() {
            out.push(piece);
        }
    }
}
