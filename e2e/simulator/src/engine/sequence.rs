//! One request inside an engine.

use std::sync::Arc;

use kvasir_core::BlockHash;

/// What a request is made of, for an engine.
#[derive(Clone, Debug)]
pub struct Work {
    /// Its number in the run.
    pub request: u32,
    /// Token ids of the prompt and of the answer that it will get.
    pub ids: Arc<[u32]>,
    /// Chained hashes of the full blocks of `ids`.
    pub chain: Arc<[BlockHash]>,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens of the answer, at least 1.
    pub answer: u32,
}

impl Work {
    /// Leading full blocks that both have.
    pub fn shared_blocks(&self, other: &Self) -> usize {
        // Chained hashes that are equal at one place are equal before it.
        let most = self.chain.len().min(other.chain.len());
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.chain[middle - 1] == other.chain[middle - 1] {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

/// A sequence that waits or runs.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) work: Work,
    /// Tokens whose keys and values are there.
    pub(crate) computed: u32,
    /// Tokens of the answer that were given out.
    pub(crate) generated: u32,
    /// Prompt tokens that came out of the cache when it first ran; `None` before.
    pub(crate) cached: Option<u32>,
    /// Its memory, in order.
    pub(crate) blocks: Vec<u32>,
    /// Leading blocks whose content is known to others.
    pub(crate) filled: usize,
}

impl Sequence {
    pub(crate) fn new(work: Work) -> Self {
        Self { work, computed: 0, generated: 0, cached: None, blocks: Vec::new(), filled: 0 }
    }

    /// Tokens that are known: the prompt, and what was generated.
    pub(crate) fn known(&self) -> u32 {
        self.work.prompt + self.generated
    }

    /// Whether its next token is an answer's, beyond the first.
    pub(crate) fn decodes(&self) -> bool {
        self.generated > 0 && self.computed + 1 == self.known()
    }

    /// The blocks that may be reused: whole ones, and never the last token.
    pub(crate) fn reusable(&self, block_size: u32) -> &[BlockHash] {
        let most = (self.known().saturating_sub(1) / block_size) as usize;
        &self.work.chain[..most.min(self.work.chain.len())]
    }
}
