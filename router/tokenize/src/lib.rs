//! From a request to token ids: the backend chain and the prefix-token memory.
//!
//! [`Chain`] asks each model's sources in order. [`LocalTokenizer`] is the source in this process: `request` reads and
//! normalises the body, `template` renders it, `local` encodes, `memory` keeps the ids of earlier turns, `pool` has the
//! threads. `remote` asks a tokenizer service or a pod. `probe` compares with an engine.

pub mod chain;
pub mod json;
pub mod local;
pub mod memory;
pub mod pool;
pub mod probe;
pub mod remote;
pub mod request;
pub mod template;
#[cfg(test)]
mod testing;

pub use chain::{
    Chain, LoadState, ModelStatus, ModelTokens, ProbeDifference, ProbeStatus, Proof, SourceStatus,
    VersionStatus,
};
pub use local::{EncodedPrompt, EncoderChoice, LoadError, LoadOptions, LocalTokenizer, SharedTokenizer};
pub use memory::{MemoryUse, PrefixMemory};
pub use pool::Pool;
