//! What an engine says a request used.

use serde::Serialize;

/// Token counts of one answer, the last value seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub completion_tokens: u64,
    /// Prompt tokens that came out of the engine's cache; `None` when the engine does not say.
    pub cached_tokens: Option<u64>,
}
