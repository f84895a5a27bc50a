//! What an engine tells about its cache.

use std::sync::Arc;

use smallvec::SmallVec;

/// An engine's own block hash: opaque, compared by value, meaningful for one owner only.
///
/// vLLM sends unsigned 64-bit integers or 32 raw bytes, SGLang signed 64-bit integers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EngineHash {
    /// An integer; negative ones are kept by their two's-complement bits with `negative` set apart from them.
    Int {
        /// The 64 bits.
        bits: u64,
        /// Whether the wire carried a negative number.
        negative: bool,
    },
    /// Raw bytes.
    Bytes(SmallVec<[u8; 32]>),
}

/// The tier a block lives on.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Medium {
    /// GPU memory; also what an event without a medium means.
    #[default]
    Gpu,
    /// Anything else (`CPU`, `CPU_PINNED`, `DISK`, `EXTERNAL`, ...), upper-cased as sent.
    Other(Arc<str>),
}

/// Blocks became reusable.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stored {
    /// One for each block, in order.
    pub hashes: Vec<EngineHash>,
    /// The block before the first one; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// `hashes.len() x block_size` token ids where the group covers whole blocks.
    pub token_ids: Vec<u32>,
    /// Tokens in a block.
    pub block_size: u32,
    /// Adapter name, from `lora_name` or (older engines) the id as text.
    pub adapter: Option<Arc<str>>,
    /// Per block: what beside the tokens is in its hash (salt, multimodal ids), each list in the wire's order.
    /// Empty when the event has none.
    pub extra_keys: Vec<Option<Vec<Arc<str>>>>,
    /// KV-cache group, 0 when not said.
    pub group: u32,
    /// `full_attention`, `sliding_window`, ...; `None` when not said.
    pub spec_kind: Option<Arc<str>>,
    /// Tier.
    pub medium: Medium,
}

/// One event, in engine terms.
#[derive(Clone, PartialEq, Debug)]
pub enum KvEvent {
    /// Blocks became reusable.
    Stored(Stored),
    /// Blocks were evicted from a tier.
    Removed {
        /// Which ones.
        hashes: Vec<EngineHash>,
        /// KV-cache group, 0 when not said.
        group: u32,
        /// Tier.
        medium: Medium,
    },
    /// The whole cache was emptied.
    AllCleared,
}
