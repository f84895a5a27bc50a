//! Token ids, where they came from, and why they could not be had.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::BoxFuture;
use crate::request::InferenceRequest;

/// The token ids of a prompt, shared.
pub type TokenIds = Arc<[u32]>;

/// Which backend of the chain gave the ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenSource {
    /// The request carried token ids.
    Given,
    /// In this process.
    Local,
    /// A tokenizer service.
    Service,
    /// A pod of the model.
    Engine,
}

impl TokenSource {
    /// Lower-case name, as in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Local => "local",
            Self::Service => "service",
            Self::Engine => "engine",
        }
    }
}

/// The ids of one request's prompt.
#[derive(Clone, Debug)]
pub struct Tokenized {
    /// All ids of the prompt, special ones included.
    pub ids: TokenIds,
    /// Who gave them.
    pub source: TokenSource,
    /// How long it took, waiting included.
    pub took: Duration,
    /// False when the ids are a true prefix of the prompt only (for example up to the first image).
    pub whole: bool,
}

/// Why a request goes on without tokens. The label is a metric's; the text never holds prompt text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenizeError {
    /// This kind of request is routed by load (embeddings, audio, unknown paths).
    #[error("requests of this kind are not tokenized")]
    NotTokenizable,
    /// The request uses a construct whose ids would not be exact.
    #[error("not exact: {0}")]
    Inexact(&'static str),
    /// No backend is configured for the model.
    #[error("no tokenizer for the model")]
    NoBackend,
    /// The template refused the request or threw.
    #[error("chat template: {0}")]
    Template(String),
    /// The tokenizer could not be loaded, or failed.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A remote source failed.
    #[error("{source_name}: {reason}")]
    Remote {
        /// `service` or `engine`.
        source_name: &'static str,
        /// What happened.
        reason: String,
    },
    /// Every place in the queue is taken.
    #[error("the tokenizer queue is full")]
    QueueFull,
    /// Not ready within the budget.
    #[error("not ready within the budget")]
    Deadline,
    /// The request itself is one that the engine will refuse.
    #[error("the request is invalid: {0}")]
    Invalid(&'static str),
}

impl TokenizeError {
    /// A metric label: one of a fixed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotTokenizable => "not_tokenizable",
            Self::Inexact(_) => "inexact",
            Self::NoBackend => "no_backend",
            Self::Template(_) => "template",
            Self::Tokenizer(_) => "tokenizer",
            Self::Remote { .. } => "remote",
            Self::QueueFull => "queue_full",
            Self::Deadline => "deadline",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// Turns a request into the ids that the engine will compute for it.
///
/// Called once per request by the `tokens` producer. May wait, within the caller's deadline; must not block the
/// thread. Every failure means "route by load", never an error to the client.
pub trait Tokenizer: Send + Sync {
    /// The ids of `request`, for `request.model` and `request.adapter`.
    fn encode<'a>(&'a self, request: &'a InferenceRequest)
    -> BoxFuture<'a, Result<Tokenized, TokenizeError>>;
}
