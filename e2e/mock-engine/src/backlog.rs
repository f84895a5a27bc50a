//! Who waits, who is computed and who answers: the truth that routers try to guess.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::cache::Cache;
use crate::hash::Hash;

/// The work an engine has now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Backlog {
    /// Sequences that wait for their turn.
    pub queued: usize,
    /// Prompt tokens of the waiting sequences that the cache, as it is now, does not hold.
    pub queued_prefill_tokens: usize,
    /// Sequences whose prompt is being computed.
    pub prefilling: usize,
    /// Prompt tokens of those that are still to be computed.
    pub running_prefill_tokens: usize,
    /// Sequences that produce output.
    pub decoding: usize,
}

/// Keeps the books of one engine.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    queued: HashMap<u64, Queued>,
    prefilling: usize,
    running_prefill_tokens: usize,
    decoding: usize,
}

/// What a waiting sequence will need.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) chain: Arc<[Hash]>,
    pub(crate) prompt_tokens: usize,
    pub(crate) reads_cache: bool,
}

impl Ledger {
    pub(crate) fn enqueue(&mut self, sequence: u64, needs: Queued) {
        self.queued.insert(sequence, needs);
    }

    pub(crate) fn leave_queue(&mut self, sequence: u64) {
        self.queued.remove(&sequence);
    }

    /// From the queue to prefill, with `uncached` tokens to compute.
    pub(crate) fn begin_prefill(&mut self, sequence: u64, uncached: usize) {
        self.queued.remove(&sequence);
        self.prefilling += 1;
        self.running_prefill_tokens += uncached;
    }

    /// `tokens` less to compute.
    pub(crate) fn computed(&mut self, tokens: usize) {
        self.running_prefill_tokens = self.running_prefill_tokens.saturating_sub(tokens);
    }

    /// Prefill is over, with `left` tokens not computed (0 unless it was cancelled).
    pub(crate) fn end_prefill(&mut self, left: usize) {
        self.prefilling = self.prefilling.saturating_sub(1);
        self.computed(left);
    }

    pub(crate) fn begin_decode(&mut self) {
        self.decoding += 1;
    }

    pub(crate) fn end_decode(&mut self) {
        self.decoding = self.decoding.saturating_sub(1);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queued.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.prefilling + self.decoding
    }

    /// The books against the cache as it is now.
    pub(crate) fn backlog(&self, cache: &Cache, block_size: usize) -> Backlog {
        let uncached = |needs: &Queued| {
            let blocks =
                if needs.reads_cache { cache.reusable(&needs.chain, needs.prompt_tokens) } else { 0 };
            needs.prompt_tokens - blocks * block_size
        };
        Backlog {
            queued: self.queued.len(),
            queued_prefill_tokens: self.queued.values().map(uncached).sum(),
            prefilling: self.prefilling,
            running_prefill_tokens: self.running_prefill_tokens,
            decoding: self.decoding,
        }
    }
}
