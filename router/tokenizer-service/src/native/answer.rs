//! The answers of `/tokenize` and `/detokenize`, in vLLM's form.

use bytes::Bytes;
use http::StatusCode;
use kvasir_core::{RequestKind, TokenizeError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::NativeModel;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NativeCall {
    /// Text or conversation to ids.
    Tokenize,
    /// Ids to text.
    Detokenize,
}

/// Why there is no answer: a status and a sentence, never with text of the prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Status.
    pub status: StatusCode,
    /// Sentence.
    pub message: String,
}

#[derive(Deserialize)]
struct TokenizeAsk<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(default = "yes")]
    add_special_tokens: bool,
    #[serde(default)]
    return_token_strs: Option<bool>,
}

/// The fields that a conversation shares with a prompt, other defaults apart.
fn yes() -> bool {
    true
}

#[derive(Serialize)]
struct Tokenized<'a> {
    count: usize,
    max_model_len: u64,
    tokens: &'a [u32],
    token_strs: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct DetokenizeAsk {
    tokens: Vec<u64>,
}

#[derive(Serialize)]
struct Detokenized {
    prompt: String,
}

impl NativeModel {
    /// Answers a body. Takes CPU time in proportion to it: not for an event loop.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn answer(&self, call: NativeCall, body: &Bytes) -> Result<Bytes, Refused> {
        match call {
            NativeCall::Tokenize => self.tokenize(body),
            NativeCall::Detokenize => self.detokenize(body),
        }
    }

    fn tokenize(&self, body: &Bytes) -> Result<Bytes, Refused> {
        let ask: TokenizeAsk<'_> = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
        let ids = match (ask.prompt, ask.messages) {
            (Some(prompt), None) => {
                let prompt: String = serde_json::from_str(prompt.get())
                    .map_err(|_| refused(StatusCode::BAD_REQUEST, "prompt must be one text"))?;
                // vLLM takes an empty prompt here and answers with what the tokenizer adds by itself.
                self.tokenizer.encode_text(&prompt, ask.add_special_tokens)
            }
            (None, Some(_)) => self.tokenizer.encode_body(RequestKind::Chat, body),
            (None, None) => return Err(refused(StatusCode::BAD_REQUEST, "prompt or messages is required")),
            (Some(_), Some(_)) => {
                return Err(refused(StatusCode::BAD_REQUEST, "prompt and messages are one too many"));
            }
        };
        let ids = ids.map_err(|error| refusal(&error))?;
        let name = |id: &u32| self.tokenizer.token(*id).unwrap_or_default();
        let names = (ask.return_token_strs == Some(true)).then(|| ids.iter().map(name).collect());
        written(&Tokenized { count: ids.len(), max_model_len: self.context, tokens: &ids, token_strs: names })
    }

    fn detokenize(&self, body: &Bytes) -> Result<Bytes, Refused> {
        let ask: DetokenizeAsk = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
        let ids: Option<Vec<u32>> = ask.tokens.iter().map(|id| u32::try_from(*id).ok()).collect();
        let ids = ids.ok_or_else(|| refused(StatusCode::BAD_REQUEST, "an id beyond the vocabulary"))?;
        let prompt = self.tokenizer.decode(&ids).map_err(|error| refusal(&error))?;
        written(&Detokenized { prompt })
    }
}

fn written(answer: &impl Serialize) -> Result<Bytes, Refused> {
    serde_json::to_vec(answer)
        .map(Bytes::from)
        .map_err(|error| refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
}

/// Only the place is told: serde quotes what it did not expect.
fn malformed(error: &serde_json::Error) -> Refused {
    let (line, column) = (error.line(), error.column());
    refused(StatusCode::BAD_REQUEST, &format!("the body is not understood at line {line} column {column}"))
}

fn refused(status: StatusCode, message: &str) -> Refused {
    Refused { status, message: message.to_owned() }
}

/// What the request itself is the reason for is 400, as at the engine; what cannot be told exactly is 422, so that
/// nobody takes near ids for true ones.
fn refusal(error: &TokenizeError) -> Refused {
    let status = match error {
        TokenizeError::Invalid(_) | TokenizeError::Template(_) | TokenizeError::NotTokenizable => {
            StatusCode::BAD_REQUEST
        }
        TokenizeError::Inexact(_) => StatusCode::UNPROCESSABLE_ENTITY,
        TokenizeError::QueueFull => StatusCode::SERVICE_UNAVAILABLE,
        TokenizeError::NoBackend
        | TokenizeError::Tokenizer(_)
        | TokenizeError::Remote { .. }
        | TokenizeError::Deadline => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refused(status, &error.to_string())
}
