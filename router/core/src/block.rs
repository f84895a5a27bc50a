//! Blocks of tokens: their size, their chained hash, and what else decides whether an engine may reuse them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::AdapterName;

/// Tokens in one block, as the engine counts them; never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct BlockSize(u32);

impl BlockSize {
    /// vLLM's default, used for owners that have not told theirs.
    pub const DEFAULT: Self = Self(16);

    /// The size, or `None` for 0.
    pub const fn new(tokens: u32) -> Option<Self> {
        if tokens == 0 { None } else { Some(Self(tokens)) }
    }

    /// Tokens in a block.
    pub const fn tokens(self) -> usize {
        self.0 as usize
    }
}

impl TryFrom<u32> for BlockSize {
    type Error = &'static str;

    fn try_from(tokens: u32) -> Result<Self, Self::Error> {
        Self::new(tokens).ok_or("a block size must be at least 1 token")
    }
}

impl From<BlockSize> for u32 {
    fn from(size: BlockSize) -> Self {
        size.0
    }
}

/// The chained hash of one block: it covers the model, the block size, the scope, every earlier block and this
/// block's tokens, so equal hashes mean an equal reusable prefix.
///
/// Ours, computed from token ids; an engine's own hash never becomes one of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct BlockHash(pub u64);

/// What beside the tokens decides reuse: adapter, cache salt, multimodal identity.
///
/// The salt and the multimodal identities take part in the first block they touch and, through the chain, in
/// every block after it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize)]
pub struct CacheScope {
    /// LoRA adapter, if the request or the block uses one.
    pub adapter: Option<AdapterName>,
    /// `cache_salt` of the request (a secret: never logged or exported).
    #[serde(skip)]
    pub salt: Option<Arc<str>>,
}

/// The chained hashes of a prompt's full blocks, for one block size.
#[derive(Clone, Debug)]
pub struct BlockChain {
    /// The size these hashes were made for.
    pub block_size: BlockSize,
    /// One hash for each full block, first block first. A partial last block has none.
    pub hashes: Arc<[BlockHash]>,
}

impl BlockChain {
    /// Tokens covered by the chain.
    pub fn tokens(&self) -> usize {
        self.hashes.len() * self.block_size.tokens()
    }
}
