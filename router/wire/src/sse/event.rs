//! What one event says: usage, an error, the end, the id of the answer.

use std::ops::Range;
use std::sync::LazyLock;

use kvasir_core::{RequestKind, Usage};
use memchr::memmem::Finder;
use smallvec::SmallVec;

use crate::json::{Cursor, JsonError, Kind, Members, Value};
use crate::usage::{Counts, cached_spans};

// Keys are looked for as the engines write them, never spelled with escapes. Inside a JSON string a quote is
// escaped, so text that talks about a key does not look like one.
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\""));
static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"error\""));
static FINISH_REASON: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"finish_reason\""));
static STOP_REASON: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"stop_reason\""));
static MESSAGE_STOP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"message_stop\""));
static RESPONSE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"response\""));

/// Longest id that is remembered. Engines use a prefix and a UUID.
const MAX_ID_BYTES: usize = 512;

/// What becomes of an event when injected usage is hidden.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It goes on as it is.
    Pass,
    /// It carries nothing but usage.
    Drop,
    /// These ranges of its payload, in order, are left out.
    Cut(SmallVec<[Range<usize>; 1]>),
    /// These ranges of its payload, in order, hold the number of cached tokens, which is another one.
    Correct(SmallVec<[Range<usize>; 1]>),
}

/// Everything the events of one stream have said.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    kind: RequestKind,
    /// Whether usage is taken out.
    pub(super) hides: bool,
    /// Whether the number of cached tokens is another one than the engine says.
    pub(super) corrects: bool,
    counts: Counts,
    pub(super) finished: bool,
    pub(super) error_seen: bool,
    pub(super) finish_reason_seen: bool,
    pub(super) response_id: Option<String>,
}

/// The members of an event that matter.
#[derive(Default)]
struct Event {
    usage: Option<Value>,
    choices: Option<Value>,
    error: Option<Value>,
    object: Option<Value>,
    type_: Option<Value>,
    /// `message` of Anthropic's first event, `response` of the Responses API.
    envelope: Option<Value>,
    delta: Option<Value>,
    /// Removable members and where they stand.
    usage_cuts: SmallVec<[Range<usize>; 1]>,
}

impl Facts {
    pub(super) fn new(kind: RequestKind, hides: bool) -> Self {
        Self {
            kind,
            hides,
            corrects: false,
            counts: Counts::default(),
            finished: false,
            error_seen: false,
            finish_reason_seen: false,
            response_id: None,
        }
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.counts.usage(self.kind)
    }

    /// Takes in the payload of one event and says what becomes of it. A payload that is no JSON passes.
    pub(super) fn observe(&mut self, payload: &[u8]) -> Verdict {
        if payload.trim_ascii() == b"[DONE]" {
            self.finished = true;
            return Verdict::Pass;
        }
        if matches!(self.kind, RequestKind::Chat | RequestKind::Completions | RequestKind::Other) {
            self.finish_reason_seen = self.finish_reason_seen || names_string(payload, &FINISH_REASON);
        }
        if !self.is_of_interest(payload) {
            return Verdict::Pass;
        }
        let Ok(event) = read_event(payload) else { return Verdict::Pass };
        self.take(payload, &event).unwrap_or(Verdict::Pass)
    }

    /// A scan without parsing, so that an ordinary event costs next to nothing.
    fn is_of_interest(&self, payload: &[u8]) -> bool {
        let has = |finder: &LazyLock<Finder<'static>>| finder.find(payload).is_some();
        match self.kind {
            RequestKind::Messages => has(&USAGE) || has(&ERROR) || has(&MESSAGE_STOP) || has(&STOP_REASON),
            RequestKind::Responses => has(&RESPONSE) || has(&USAGE) || has(&ERROR),
            _ => has(&USAGE) || has(&ERROR),
        }
    }

    fn take(&mut self, payload: &[u8], event: &Event) -> Result<Verdict, JsonError> {
        let type_ = text_of(payload, event.type_.as_ref());
        let error = event.error.as_ref().is_some_and(|error| !matches!(error.kind, Kind::Null | Kind::False))
            || type_ == b"error"
            || text_of(payload, event.object.as_ref()) == b"error";
        self.error_seen |= error;
        match self.kind {
            RequestKind::Messages => self.take_message(payload, event, type_)?,
            RequestKind::Responses => return self.take_response(payload, event, type_),
            _ => {}
        }
        let Some(usage) = event.usage.as_ref().filter(|usage| usage.kind == Kind::Object) else {
            return Ok(Verdict::Pass);
        };
        self.counts.take(self.kind, payload, usage)?;
        if !self.hides {
            return self.correction(payload, usage);
        }
        let bare = event.choices.as_ref().is_some_and(|choices| is_empty_list(payload, choices));
        Ok(if bare && !error { Verdict::Drop } else { Verdict::Cut(event.usage_cuts.clone()) })
    }

    /// Anthropic: usage in `message_start.message` and at the top of `message_delta`.
    fn take_message(&mut self, payload: &[u8], event: &Event, type_: &[u8]) -> Result<(), JsonError> {
        self.finished |= type_ == b"message_stop";
        if let Some(usage) = member_of(payload, event.envelope.as_ref(), b"usage")? {
            self.counts.take(self.kind, payload, &usage)?;
        }
        let stop = member_of(payload, event.delta.as_ref(), b"stop_reason")?;
        self.finish_reason_seen |= stop.is_some_and(|stop| stop.as_text().is_some());
        Ok(())
    }

    /// Responses: usage in `response` of the closing event; the id in the first one.
    fn take_response(&mut self, payload: &[u8], event: &Event, type_: &[u8]) -> Result<Verdict, JsonError> {
        let ended = matches!(type_, b"response.completed" | b"response.incomplete");
        let failed = type_ == b"response.failed";
        self.finished |= ended || failed;
        self.finish_reason_seen |= ended;
        self.error_seen |= failed;
        if self.response_id.is_none() {
            let id = member_of(payload, event.envelope.as_ref(), b"id")?;
            self.response_id = id.and_then(|id| read_id(payload, &id));
        }
        for usage in [member_of(payload, event.envelope.as_ref(), b"usage")?, event.usage.clone()] {
            let Some(usage) = usage.filter(|usage| usage.kind == Kind::Object) else { continue };
            self.counts.take(self.kind, payload, &usage)?;
            return self.correction(payload, &usage);
        }
        Ok(Verdict::Pass)
    }

    /// What becomes of an event that goes on with this usage.
    fn correction(&self, payload: &[u8], usage: &Value) -> Result<Verdict, JsonError> {
        if !self.corrects || self.kind == RequestKind::Messages {
            return Ok(Verdict::Pass);
        }
        let spans = cached_spans(payload, usage)?;
        Ok(if spans.is_empty() { Verdict::Pass } else { Verdict::Correct(spans) })
    }
}

/// A text id of bearable length.
pub(crate) fn read_id(bytes: &[u8], value: &Value) -> Option<String> {
    let text = value.as_text()?;
    if text.span.len() > MAX_ID_BYTES {
        return None;
    }
    Some(text.decode(bytes)?.into_owned()).filter(|id| !id.is_empty())
}

/// Whether the payload is one whole value, or can never become one.
pub(super) fn is_settled(payload: &[u8]) -> bool {
    let payload = payload.trim_ascii();
    match payload.first() {
        None => false,
        Some(_) if payload == b"[DONE]" => true,
        Some(b'{' | b'[') => Cursor::new(payload).value() != Err(JsonError::End),
        Some(_) => true,
    }
}

/// Reads the object that the payload starts with; what follows it is none of ours.
fn read_event(payload: &[u8]) -> Result<Event, JsonError> {
    let mut members = Cursor::new(payload).enter_object()?;
    let mut event = Event::default();
    let mut kept_end = None;
    let mut open_cut: Option<usize> = None;
    while let Some(member) = members.next()? {
        let start = member.key.span.start;
        let end = member.value.span.end;
        if let Some(from) = open_cut.take() {
            // No member stays in front of the one that goes, so it takes the comma behind it along.
            event.usage_cuts.push(from..start);
        }
        let key = member.key.raw(payload);
        if key == b"usage" && member.value.kind == Kind::Object {
            match kept_end {
                Some(kept) => event.usage_cuts.push(kept..end),
                None => open_cut = Some(start),
            }
            // A later usage member is cut from here on, not from the last kept member: ranges must not overlap.
            kept_end = kept_end.map(|_| end);
            event.usage = Some(member.value);
            continue;
        }
        kept_end = Some(end);
        let slot = match key {
            b"usage" => &mut event.usage,
            b"choices" => &mut event.choices,
            b"error" => &mut event.error,
            b"object" => &mut event.object,
            b"type" => &mut event.type_,
            b"message" | b"response" => &mut event.envelope,
            b"delta" => &mut event.delta,
            _ => continue,
        };
        *slot = Some(member.value);
    }
    if let Some(from) = open_cut {
        let end = event.usage.as_ref().map_or(from, |usage| usage.span.end);
        event.usage_cuts.push(from..end);
    }
    Ok(event)
}

fn member_of(payload: &[u8], object: Option<&Value>, key: &[u8]) -> Result<Option<Value>, JsonError> {
    let Some(object) = object.filter(|value| value.kind == Kind::Object) else { return Ok(None) };
    let mut members = Members::of(payload, object)?;
    let mut found = None;
    while let Some(member) = members.next()? {
        if member.key.raw(payload) == key {
            found = Some(member.value);
        }
    }
    Ok(found)
}

fn text_of<'a>(payload: &'a [u8], value: Option<&Value>) -> &'a [u8] {
    value.and_then(Value::as_text).map_or(&[], |text| text.raw(payload))
}

fn is_empty_list(payload: &[u8], value: &Value) -> bool {
    value.kind == Kind::Array
        && payload
            .get(value.span.start + 1..value.span.end.saturating_sub(1))
            .is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// Whether any occurrence of the key has a string for its value.
fn names_string(payload: &[u8], key: &Finder<'_>) -> bool {
    key.find_iter(payload).any(|at| {
        let value = payload.get(at + key.needle().len()..).unwrap_or_default().trim_ascii_start();
        value.strip_prefix(b":").is_some_and(|value| value.trim_ascii_start().starts_with(b"\""))
    })
}
