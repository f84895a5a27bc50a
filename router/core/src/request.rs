//! One parsed call.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::ids::{AdapterName, ModelName, RequestId};

/// Which API a request speaks; decides how its prompt is found and where its usage is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestKind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages` (Anthropic)
    Messages,
    /// `/v1/embeddings` and its kin: prefill only, no prefix reuse assumed
    Embeddings,
    /// Any other `/v1/*` path whose body names a model
    Other,
}

impl RequestKind {
    /// Metric label for the path: a fixed set, whatever clients send.
    pub fn path_label(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::Embeddings => "/v1/embeddings",
            Self::Other => "other",
        }
    }
}

/// Where the prompt is in the body. The bytes stay where they are (decision D7).
#[derive(Clone, Debug, Default)]
pub enum Prompt {
    /// The body holds no prompt we know how to read.
    #[default]
    None,
    /// `messages`: the byte range of the JSON list in the body.
    Messages(Range<usize>),
    /// `prompt`: the byte range of the JSON value in the body (a string or one of the list forms).
    Text(Range<usize>),
    /// `prompt` was a flat list of token ids.
    TokenIds(Arc<[u32]>),
    /// `input` of the Responses API: the byte range of the JSON value.
    Input(Range<usize>),
}

/// A conversation, by a hash of what the client calls it: the name itself is the client's business.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SessionKey(pub u64);

/// One inference call as the router sees it: what was scanned, and the body as received.
#[derive(Clone, Debug)]
pub struct InferenceRequest {
    /// Id of the request.
    pub id: RequestId,
    /// Which API it speaks.
    pub kind: RequestKind,
    /// The model name as the client wrote it.
    pub requested_model: Arc<str>,
    /// The engine's served name (base model), after the route was matched.
    pub model: ModelName,
    /// The adapter, when the client asked for one.
    pub adapter: Option<AdapterName>,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// Where the prompt is.
    pub prompt: Prompt,
    /// `cache_salt`: a secret, never logged.
    pub cache_salt: Option<Arc<str>>,
    /// Whether the engine skips its prefix cache for this request (`prompt_logprobs`, `echo` with `logprobs`).
    pub skips_cache: bool,
    /// Most output tokens the client asked for, when it said.
    pub max_tokens: Option<u32>,
    /// The conversation that the request belongs to, when it says so in a way that settings ask for.
    pub session: Option<SessionKey>,
    /// The body, whole, as the client sent it (decoded if it was compressed).
    pub body: Bytes,
}

impl InferenceRequest {
    /// The bytes of a range of the body; empty for a range outside it.
    pub fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.body.get(range.clone()).unwrap_or_default()
    }
}
