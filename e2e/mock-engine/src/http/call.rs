//! What a request asks for: the few fields the engine acts on, and its prompts as token ids.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::RequestKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Desk;
use super::failure::Failure;
use crate::cache::scope_part;
use crate::hash::Scope;
use crate::tokenize::{EncodeError, Tokenize, WordTokenizer};

/// Bodies above this are tokenized on a blocking thread, so that short requests are not stuck behind long ones.
const INLINE_BYTES: usize = 32 << 10;
/// Most sequences of one request: prompts times `n`.
const MOST_SEQUENCES: usize = 128;

/// The fields of an OpenAI or Anthropic body that matter here; the others are skipped.
#[derive(Debug, Deserialize)]
pub(crate) struct Call<'a> {
    #[serde(borrow)]
    pub(crate) model: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    max_output_tokens: Option<i64>,
    ignore_eos: Option<bool>,
    n: Option<usize>,
    #[serde(borrow)]
    cache_salt: Option<Cow<'a, str>>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    add_special_tokens: Option<bool>,
    echo: Option<bool>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    prompt_logprobs: Option<i64>,
}

/// `stream_options`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: Option<bool>,
}

impl<'a> Call<'a> {
    /// Reads a body.
    pub(crate) fn parse(body: &'a Bytes) -> Result<Self, Failure> {
        serde_json::from_slice(body).map_err(|error| Failure::malformed(&error))
    }

    /// Whether a stream is asked for.
    pub(crate) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// Whether a stream is to end with the usage.
    pub(crate) fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage == Some(true))
    }

    /// The most output tokens asked for, checked.
    pub(crate) fn limit(&self) -> Result<Option<usize>, Failure> {
        let asked = self.max_completion_tokens.or(self.max_tokens).or(self.max_output_tokens);
        match asked {
            None => Ok(None),
            Some(limit) if limit >= 1 => Ok(usize::try_from(limit).ok()),
            Some(_) => Err(Failure::bad_request("max_tokens must be at least 1")),
        }
    }

    /// Whether the answer goes on to its limit.
    pub(crate) fn ignores_end(&self) -> bool {
        self.ignore_eos == Some(true)
    }

    /// Answers for each prompt.
    pub(crate) fn choices(&self) -> usize {
        self.n.unwrap_or(1)
    }

    /// Whether the engine may use its prefix cache: not when it must give log probabilities for the prompt.
    pub(crate) fn reads_cache(&self) -> bool {
        let echo_logprobs = self.echo == Some(true) && self.logprobs.is_some_and(|raw| raw.get() != "null");
        self.prompt_logprobs.is_none() && !echo_logprobs
    }

    /// The served name, and what else decides reuse.
    pub(crate) fn resolve(&self, desk: &Desk) -> Result<(String, Scope), Failure> {
        let (name, adapter) = resolve_model(desk, self.model.as_deref())?;
        let scope = Scope { adapter, salt: scope_part(self.cache_salt.as_deref()) };
        Ok((name, scope))
    }

    /// The ids of every prompt.
    pub(crate) async fn prompts(
        &self,
        desk: &Desk,
        kind: RequestKind,
        body: &Bytes,
    ) -> Result<Vec<Vec<u32>>, Failure> {
        let prompts = match kind {
            RequestKind::Completions => self.text_prompts(desk, self.prompt, "prompt", body).await?,
            RequestKind::Embeddings => self.text_prompts(desk, self.input, "input", body).await?,
            RequestKind::Responses if self.input.is_none() => {
                return Err(Failure::bad_request("input is required"));
            }
            RequestKind::Chat | RequestKind::Messages if !self.has_messages() => {
                return Err(Failure::bad_request("messages must be a list with at least one message"));
            }
            _ => vec![encode(desk, kind, body).await?],
        };
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(Failure::bad_request("the prompt is empty"));
        }
        if self.choices() == 0 || prompts.len().saturating_mul(self.choices()) > MOST_SEQUENCES {
            return Err(Failure::bad_request(format!("n times prompts must be 1 to {MOST_SEQUENCES}")));
        }
        Ok(prompts)
    }

    /// The text that an echo repeats: the last one in the prompt.
    pub(crate) fn last_text(&self) -> String {
        let Some(raw) = self.messages.or(self.prompt).or(self.input) else { return String::new() };
        serde_json::from_str(raw.get()).map_or_else(|_| String::new(), |value| last_text(&value))
    }

    fn has_messages(&self) -> bool {
        self.messages.is_some_and(|raw| {
            raw.get().strip_prefix('[').is_some_and(|rest| !rest.trim_start().starts_with(']'))
        })
    }

    async fn text_prompts(
        &self,
        desk: &Desk,
        raw: Option<&RawValue>,
        field: &str,
        body: &Bytes,
    ) -> Result<Vec<Vec<u32>>, Failure> {
        let raw = raw.ok_or_else(|| Failure::bad_request(format!("{field} is required")))?.get();
        if raw.starts_with('"') && field == "prompt" {
            return Ok(vec![encode(desk, RequestKind::Completions, body).await?]);
        }
        let forms: Forms = serde_json::from_str(raw).map_err(|_| {
            Failure::bad_request(format!("{field} must be text, token ids, or a list of those"))
        })?;
        let texts = match forms {
            Forms::Ids(ids) if ids.is_empty() => return Ok(Vec::new()),
            Forms::Ids(ids) => return Ok(vec![ids]),
            Forms::ManyIds(many) => return Ok(many),
            Forms::Text(text) => vec![text],
            Forms::Texts(texts) => texts,
        };
        let mut prompts = Vec::with_capacity(texts.len());
        for text in texts {
            let mut alone = serde_json::json!({ "model": desk.config.model, "prompt": text });
            if let Some(special) = self.add_special_tokens {
                alone["add_special_tokens"] = special.into();
            }
            prompts.push(encode(desk, RequestKind::Completions, &Bytes::from(alone.to_string())).await?);
        }
        Ok(prompts)
    }
}

/// The forms of a prompt.
#[derive(Deserialize)]
#[serde(untagged)]
enum Forms {
    Ids(Vec<u32>),
    Text(String),
    Texts(Vec<String>),
    ManyIds(Vec<Vec<u32>>),
}

/// The served name for what the client calls the model, and the adapter if it is one.
pub(crate) fn resolve_model(desk: &Desk, name: Option<&str>) -> Result<(String, Option<Arc<str>>), Failure> {
    match name {
        None => Ok((desk.config.model.clone(), None)),
        Some(name) if name == desk.config.model => Ok((name.to_owned(), None)),
        Some(name) if desk.core.adapters.serves(name) => Ok((name.to_owned(), scope_part(Some(name)))),
        Some(name) => Err(Failure::unknown_model(name)),
    }
}

/// The ids of one body, by the engine's tokenizer or, for what it does not know, the built-in one.
pub(crate) async fn encode(desk: &Desk, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, Failure> {
    if body.len() <= INLINE_BYTES {
        return Ok(encode_now(&*desk.config.tokenizer, kind, body)?);
    }
    let tokenizer = Arc::clone(&desk.config.tokenizer);
    let body = body.clone();
    let ids = tokio::task::spawn_blocking(move || encode_now(&*tokenizer, kind, &body)).await;
    Ok(ids.map_err(|_| Failure::new(http::StatusCode::INTERNAL_SERVER_ERROR, "the tokenizer failed"))??)
}

fn encode_now(tokenizer: &dyn Tokenize, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, EncodeError> {
    match tokenizer.encode(kind, body) {
        Err(EncodeError::Unsupported(_)) => WordTokenizer.encode(kind, body),
        other => other,
    }
}

fn last_text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(parts) => parts.last().map_or_else(String::new, last_text),
        serde_json::Value::Object(part) => {
            part.get("content").or_else(|| part.get("text")).map_or_else(String::new, last_text)
        }
        _ => String::new(),
    }
}
