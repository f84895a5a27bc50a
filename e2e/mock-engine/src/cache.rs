//! The prefix cache: what a sequence may reuse, which blocks it gets, and the events that tell about it.

use std::sync::Arc;

use crate::blocks::{BlockId, Blocks};
use crate::event::{Event, Stored};
use crate::hash::{Hash, Scope};

/// The prefix cache of one start of one engine.
#[derive(Debug)]
pub(crate) struct Cache {
    blocks: Blocks,
    block_size: usize,
    /// Blocks that running sequences will still take. Never more than are free, so that a running sequence never
    /// waits for memory.
    promised: usize,
    pending: Vec<Event>,
}

/// One running sequence's hold on the cache. Must be given back with [`Cache::free`].
#[derive(Debug, Default)]
pub(crate) struct Lease {
    blocks: Vec<BlockId>,
    /// Leading blocks whose content is known to the cache.
    known: usize,
    promised: usize,
}

impl Lease {
    /// Blocks that were found at the start, until more are stored.
    pub(crate) fn known_blocks(&self) -> usize {
        self.known
    }
}

/// A sequence's content as the cache needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) chain: &'a [Hash],
    pub(crate) scope: &'a Scope,
    pub(crate) adapter_id: Option<u32>,
}

impl Cache {
    /// An empty cache of `kv_blocks`, one of which stays unused. For `empty_first` see [`Blocks`].
    pub(crate) fn new(kv_blocks: usize, block_size: usize, empty_first: bool) -> Self {
        Self { blocks: Blocks::new(kv_blocks - 1, empty_first), block_size, promised: 0, pending: Vec::new() }
    }

    /// Leading blocks that a prompt of `prompt_tokens` may reuse now. The last token is never reused: its output
    /// is needed, so a fully cached prompt computes its last block again.
    pub(crate) fn reusable(&self, chain: &[Hash], prompt_tokens: usize) -> usize {
        let most = prompt_tokens.saturating_sub(1) / self.block_size;
        chain.iter().take(most).take_while(|hash| self.blocks.holds(**hash)).count()
    }

    /// Starts a sequence whose prompt and answer will be `total_tokens` long, holding `hits` blocks (see
    /// [`reusable`](Self::reusable)). `None` while there is not enough room beside what already runs.
    pub(crate) fn admit(&mut self, chain: &[Hash], hits: usize, total_tokens: usize) -> Option<Lease> {
        let found: Vec<(BlockId, bool)> =
            chain.iter().take(hits).map_while(|hash| self.blocks.find(*hash)).collect();
        let newly_used = found.iter().filter(|(_, free)| *free).count();
        let promised = total_tokens.div_ceil(self.block_size).saturating_sub(found.len());
        if self.promised + promised + newly_used > self.blocks.free() {
            return None;
        }
        self.promised += promised;
        let blocks: Vec<BlockId> = found.into_iter().map(|(id, _)| id).collect();
        blocks.iter().for_each(|id| self.blocks.pin(*id));
        Some(Lease { known: blocks.len(), blocks, promised })
    }

    /// Takes blocks until the lease has room for `tokens`; what they held is evicted.
    pub(crate) fn grow(&mut self, lease: &mut Lease, tokens: usize) {
        while lease.blocks.len() * self.block_size < tokens {
            let Some((id, evicted)) = self.blocks.take() else {
                // Promises keep this from happening.
                tracing::error!("the mock engine's cache ran out of promised blocks");
                return;
            };
            lease.blocks.push(id);
            if lease.promised > 0 {
                lease.promised -= 1;
                self.promised -= 1;
            }
            self.pending.extend(evicted.map(Event::Removed));
        }
    }

    /// The first `computed` tokens are computed: full blocks among them become reusable.
    pub(crate) fn store(&mut self, lease: &mut Lease, content: Content<'_>, computed: usize) {
        let full = (computed / self.block_size).min(content.chain.len()).min(lease.blocks.len());
        if full <= lease.known {
            return;
        }
        let new = lease.known..full;
        let (Some(hashes), Some(ids)) = (content.chain.get(new.clone()), lease.blocks.get(new.clone()))
        else {
            return;
        };
        for (id, hash) in ids.iter().zip(hashes) {
            self.blocks.fill(*id, *hash);
        }
        let tokens = new.start * self.block_size..new.end * self.block_size;
        self.pending.push(Event::Stored(Stored {
            hashes: hashes.to_vec(),
            parent: new.start.checked_sub(1).and_then(|parent| content.chain.get(parent).copied()),
            token_ids: content.tokens.get(tokens).unwrap_or_default().to_vec(),
            block_size: self.block_size,
            adapter: content.adapter_id.zip(content.scope.adapter.clone()),
            salt: if new.start == 0 { content.scope.salt.clone() } else { None },
        }));
        lease.known = full;
    }

    /// Ends a sequence. Its last blocks are evicted first later on, so that a shared beginning lives longest.
    pub(crate) fn free(&mut self, lease: Lease) {
        self.promised -= lease.promised;
        lease.blocks.iter().rev().for_each(|id| self.blocks.release(*id));
    }

    /// Empties the cache; refused (false) while a sequence runs. The event leaves with the next batch.
    pub(crate) fn reset(&mut self) -> bool {
        let cleared = self.blocks.clear();
        if cleared {
            self.pending.push(Event::Cleared);
        }
        cleared
    }

    /// Empties the cache, and nobody is told; refused (false) while a sequence runs.
    pub(crate) fn give_up(&mut self) -> bool {
        self.blocks.clear()
    }

    /// What happened since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.pending)
    }

    /// Share of the blocks in use, 0 to 1.
    pub(crate) fn usage(&self) -> f64 {
        1.0 - self.blocks.free() as f64 / self.blocks.count() as f64
    }

    /// Blocks in use.
    pub(crate) fn used_blocks(&self) -> usize {
        self.blocks.count() - self.blocks.free()
    }

    /// Distinct block contents that can be reused.
    pub(crate) fn contents(&self) -> usize {
        self.blocks.contents()
    }
}

/// The salt or adapter of a request, absent when empty, as the engine treats it.
pub(crate) fn scope_part(text: Option<&str>) -> Option<Arc<str>> {
    text.filter(|text| !text.is_empty()).map(Arc::from)
}

#[cfg(test)]
mod tests;
