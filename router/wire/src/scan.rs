//! One pass over a JSON request body for the few fields that the router needs.

mod error;
mod prompt;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{Prompt, RequestKind};
use smallvec::SmallVec;

use crate::disaggregate::is_hand_over;
use crate::json::{Cursor, Kind, Member, Members, Value};

use prompt::Replacements;

pub use error::ScanError;
pub(crate) use error::check_model;

/// Most bytes of a model's name. Names are file paths at the longest.
pub const MAX_MODEL_BYTES: usize = 4096;

/// Most times a rewritten key may stand in one object, so that a body of nothing but repeats costs no more memory
/// than its own size.
pub const MAX_REPEATS: usize = 16;

/// Where the values of one key stand, in order.
pub(crate) type Spans = SmallVec<[Range<usize>; 1]>;

/// What was found in a body. Ranges are byte offsets into that body.
///
/// Where a key is repeated the last one counts, as in Python's `json`, which vLLM and SGLang read bodies with.
#[derive(Clone, Default)]
pub struct Scan {
    /// `model`, decoded, as the client wrote it.
    pub model: String,
    /// The JSON string of `model` with its quotes, where it counts.
    pub model_span: Range<usize>,
    /// Whether `stream` is `true`.
    pub stream: bool,
    /// Whether the client asks for a usage event: `stream_options.include_usage` is neither absent, null nor false.
    pub include_usage_asked: bool,
    /// The value of `stream_options`, whatever it is.
    pub stream_options_span: Option<Range<usize>>,
    /// The opening brace of the body; new members go right behind it.
    pub object_start: usize,
    /// Where the prompt is.
    pub prompt: Prompt,
    /// `cache_salt`: a secret, never logged. Empty counts as absent.
    pub cache_salt: Option<Arc<str>>,
    /// Whether the engine skips its prefix cache, because it has to compute the log probabilities of the prompt.
    pub skips_cache: bool,
    /// Most output tokens asked for, when it is a number that fits.
    pub max_tokens: Option<u32>,
    /// `previous_response_id` of the Responses API.
    pub previous_response_id: Option<String>,
    /// `background` of the Responses API is `true`.
    pub background: bool,
    /// `store` of the Responses API, when it is a boolean.
    pub store: Option<bool>,
    /// Whether the client says where a prompt's cache comes from or goes to; see [`without_hand_over`].
    ///
    /// [`without_hand_over`]: crate::without_hand_over
    pub hands_over: bool,
    pub(crate) model_spans: Spans,
    pub(crate) stream_options_spans: Spans,
    pub(crate) stream_options_kind: Option<Kind>,
}

impl Scan {
    /// Whether usage is to be asked for in the client's stead: streams of chat and completions that do not ask for
    /// it themselves, and whose `stream_options` can be merged into.
    pub fn lacks_usage(&self, kind: RequestKind) -> bool {
        matches!(kind, RequestKind::Chat | RequestKind::Completions)
            && self.stream
            && !self.include_usage_asked
            && matches!(self.stream_options_kind, None | Some(Kind::Null | Kind::Object))
    }
}

impl fmt::Debug for Scan {
    /// Tells shapes only: prompts, ids and salts stay out of every log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prompt = match &self.prompt {
            Prompt::None => "none",
            Prompt::Messages(_) => "messages",
            Prompt::Text(_) => "text",
            Prompt::TokenIds(_) => "token ids",
            Prompt::Input(_) => "input",
        };
        f.debug_struct("Scan")
            .field("model", &self.model)
            .field("stream", &self.stream)
            .field("include_usage_asked", &self.include_usage_asked)
            .field("prompt", &prompt)
            .field("salted", &self.cache_salt.is_some())
            .field("skips_cache", &self.skips_cache)
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}

/// Reads `body`, checking it to its last byte.
///
/// # Errors
/// The body is no JSON object in UTF-8 with a usable `model`. A prompt that no engine takes is no error.
pub fn scan(kind: RequestKind, body: &Bytes) -> Result<Scan, ScanError> {
    if body.starts_with(b"\xef\xbb\xbf") {
        return Err(ScanError::ByteOrderMark);
    }
    let mut cursor = Cursor::new(body);
    cursor.skip_space();
    match cursor.peek() {
        None => return Err(ScanError::Empty),
        Some(b'{') => {}
        Some(_) => return Err(ScanError::NotObject { found: cursor.value()?.kind.as_str() }),
    }
    let object_start = cursor.position();
    let mut members = cursor.enter_object()?;
    let mut fields = Fields::default();
    while let Some(member) = members.next()? {
        fields.keep(kind, body, member)?;
    }
    let mut cursor = members.into_cursor();
    cursor.skip_space();
    if cursor.peek().is_some() {
        return Err(ScanError::Trailing { at: cursor.position() });
    }
    fields.into_scan(kind, body, object_start)
}

/// The last value of every key that is of interest.
#[derive(Default)]
struct Fields {
    model: Option<Value>,
    model_spans: Spans,
    stream: Option<Value>,
    stream_options: Option<Value>,
    stream_options_spans: Spans,
    prompt: Option<Value>,
    replacements: Replacements,
    cache_salt: Option<Value>,
    prompt_logprobs: Option<Value>,
    echo: Option<Value>,
    logprobs: Option<Value>,
    top_logprobs: Option<Value>,
    max_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    max_output_tokens: Option<Value>,
    previous_response_id: Option<Value>,
    background: Option<Value>,
    store: Option<Value>,
    hands_over: bool,
}

impl Fields {
    fn keep(&mut self, kind: RequestKind, body: &[u8], member: Member) -> Result<(), ScanError> {
        // A key that is no text (half of a surrogate pair) is none of ours.
        let Some(key) = member.key.decode(body) else { return Ok(()) };
        self.hands_over |= is_hand_over(&key);
        let slot = match key.as_ref() {
            "model" => {
                keep_span(&mut self.model_spans, &member.value, "model")?;
                &mut self.model
            }
            "stream_options" => {
                keep_span(&mut self.stream_options_spans, &member.value, "stream_options")?;
                &mut self.stream_options
            }
            "stream" => &mut self.stream,
            "truncate_prompt_tokens" => &mut self.replacements.truncation,
            "prompt_embeds" => &mut self.replacements.embeddings,
            "input_ids" => &mut self.replacements.input_ids,
            "kv_transfer_params" => &mut self.replacements.transfer,
            "cache_salt" => &mut self.cache_salt,
            "prompt_logprobs" => &mut self.prompt_logprobs,
            "echo" => &mut self.echo,
            "logprobs" => &mut self.logprobs,
            "top_logprobs" => &mut self.top_logprobs,
            "max_tokens" => &mut self.max_tokens,
            "max_completion_tokens" => &mut self.max_completion_tokens,
            "max_output_tokens" => &mut self.max_output_tokens,
            "previous_response_id" => &mut self.previous_response_id,
            "background" => &mut self.background,
            "store" => &mut self.store,
            key if Some(key) == prompt::prompt_key(kind) => &mut self.prompt,
            _ => return Ok(()),
        };
        *slot = Some(member.value);
        Ok(())
    }

    fn into_scan(self, kind: RequestKind, body: &[u8], object_start: usize) -> Result<Scan, ScanError> {
        let (model, model_span) = read_model(body, self.model.as_ref())?;
        let skips_cache = self.skips_cache(kind);
        Ok(Scan {
            model,
            model_span,
            stream: is_true(self.stream.as_ref()),
            include_usage_asked: asks_for_usage(body, self.stream_options.as_ref())?,
            stream_options_span: self.stream_options.as_ref().map(|value| value.span.clone()),
            object_start,
            prompt: prompt::read_prompt(kind, body, self.prompt.as_ref(), &self.replacements)?,
            cache_salt: read_salt(body, self.cache_salt.as_ref()),
            skips_cache,
            max_tokens: self.max_tokens(kind, body),
            previous_response_id: read_string(body, self.previous_response_id.as_ref()),
            background: is_true(self.background.as_ref()),
            store: match self.store.as_ref().map(|value| value.kind) {
                Some(Kind::True) => Some(true),
                Some(Kind::False) => Some(false),
                _ => None,
            },
            hands_over: self.hands_over,
            stream_options_kind: self.stream_options.map(|value| value.kind),
            model_spans: self.model_spans,
            stream_options_spans: self.stream_options_spans,
        })
    }

    /// vLLM computes the whole prompt when it has to return the prompt's log probabilities: for `prompt_logprobs`,
    /// and for `echo` with the count that takes its place, `logprobs` of completions or `top_logprobs` of chat,
    /// which is 0 and so in force unless it is null.
    fn skips_cache(&self, kind: RequestKind) -> bool {
        let says = |value: &Option<Value>| {
            value.as_ref().is_some_and(|value| !matches!(value.kind, Kind::Null | Kind::False))
        };
        if says(&self.prompt_logprobs) {
            return true;
        }
        is_true(self.echo.as_ref())
            && match kind {
                RequestKind::Chat => self.top_logprobs.is_none() || says(&self.top_logprobs),
                _ => says(&self.logprobs),
            }
    }

    fn max_tokens(&self, kind: RequestKind, body: &[u8]) -> Option<u32> {
        let number = |value: &Option<Value>| {
            value.as_ref().and_then(|value| value.as_u64(body)).and_then(|count| u32::try_from(count).ok())
        };
        match kind {
            RequestKind::Responses => number(&self.max_output_tokens),
            RequestKind::Chat => number(&self.max_completion_tokens).or_else(|| number(&self.max_tokens)),
            _ => number(&self.max_tokens),
        }
    }
}

fn keep_span(spans: &mut Spans, value: &Value, field: &'static str) -> Result<(), ScanError> {
    if spans.len() == MAX_REPEATS {
        return Err(ScanError::Repeated { field });
    }
    spans.push(value.span.clone());
    Ok(())
}

fn read_model(body: &[u8], value: Option<&Value>) -> Result<(String, Range<usize>), ScanError> {
    let value = value.ok_or(ScanError::ModelMissing)?;
    let text = value.as_text().ok_or(ScanError::ModelNotString { found: value.kind.as_str() })?;
    // Decoding copies escaped text, so a name of megabytes is refused by its length first; an escape takes at most
    // six bytes for one.
    if text.span.len() > MAX_MODEL_BYTES * 6 + 2 {
        return Err(ScanError::ModelTooLong);
    }
    let name = text.decode(body).ok_or(ScanError::ModelNotText)?;
    check_model(&name)?;
    Ok((name.into_owned(), text.span))
}

fn is_true(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.kind == Kind::True)
}

/// Whether `include_usage` says anything but no. A value that the engine would have to interpret (`1`, `"yes"`)
/// counts as a yes: what a client asked for is never touched.
fn asks_for_usage(body: &[u8], options: Option<&Value>) -> Result<bool, ScanError> {
    let Some(options) = options.filter(|value| value.kind == Kind::Object) else { return Ok(false) };
    let mut members = Members::of(body, options)?;
    let mut asks = false;
    while let Some(member) = members.next()? {
        if member.key.decode(body).is_some_and(|key| key == "include_usage") {
            asks = !matches!(member.value.kind, Kind::Null | Kind::False);
        }
    }
    Ok(asks)
}

fn read_string(body: &[u8], value: Option<&Value>) -> Option<String> {
    Some(value?.as_text()?.decode(body)?.into_owned())
}

/// The salt. One that is no text (half of a surrogate pair) is kept in its escaped spelling, so that it still
/// differs from every other salt.
fn read_salt(body: &[u8], value: Option<&Value>) -> Option<Arc<str>> {
    let text = value?.as_text()?;
    let salt: Arc<str> = match text.decode(body) {
        Some(salt) => Arc::from(salt.as_ref()),
        None => Arc::from(std::str::from_utf8(text.raw(body)).ok()?),
    };
    Some(salt).filter(|salt| !salt.is_empty())
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
