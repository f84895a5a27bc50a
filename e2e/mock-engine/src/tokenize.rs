//! From a request's body to token ids: the seam, and the tokenizer that is built in.

mod huggingface;
mod word;

use std::fmt::Debug;

use bytes::Bytes;
use kvasir_core::RequestKind;

pub use huggingface::HuggingFace;
pub use word::WordTokenizer;

/// Turns a request into the ids that the engine computes.
///
/// Called once for each prompt, on the request's task or, for large bodies, on a blocking thread.
pub trait Tokenize: Send + Sync + Debug {
    /// The ids of the whole prompt of `body`, which is a request of `kind`.
    fn encode(&self, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, EncodeError>;

    /// The text of `ids`, where that can be told.
    fn decode(&self, ids: &[u32]) -> Option<String> {
        let _ = ids;
        None
    }
}

/// Why there are no ids.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EncodeError {
    /// The engine would refuse the request; it is answered 400 with this text.
    #[error("{0}")]
    Invalid(String),
    /// The tokenizer does not know this construct; the built-in one takes its place.
    #[error("unsupported: {0}")]
    Unsupported(String),
}
