//! Owners full of blocks: the batches that fill and change an index as engines would.

use std::time::{Duration, Instant};

use kvasir_core::{
    BlockChain, BlockSize, CacheScope, Completeness, EngineHash, KvEvent, Medium, ModelName, OwnerSlot,
    Stored,
};
use kvasir_kvcache::{Batch, Index, hash};

/// Tokens in a block, vLLM's default.
pub const BLOCK: BlockSize = BlockSize::DEFAULT;

/// Blocks of one prompt: 20,000 tokens.
pub const PROMPT_BLOCKS: usize = 1250;

/// Blocks in one event: what a prefill step of 2,048 tokens publishes.
const EVENT_BLOCKS: usize = 128;

/// Every fifth prompt of an owner is one that all owners of its group have, too.
const SHARED_EVERY: u64 = 5;

/// Groups of owners that share prompts.
const GROUPS: u64 = 8;

/// One owner's side of the index: sends the batches that its engine would.
#[derive(Debug)]
pub struct Feeder {
    /// The owner.
    pub slot: OwnerSlot,
    seq: u64,
    /// Prompts it holds, oldest first.
    prompts: std::collections::VecDeque<u64>,
    made: u64,
}

impl Feeder {
    /// Registers an owner of which everything will be known.
    ///
    /// # Errors
    /// The index takes no such owner.
    pub fn register(index: &Index, slot: u32, model: &ModelName, prompts: usize) -> anyhow::Result<Self> {
        let slot = OwnerSlot(slot);
        index.register(slot, model, "bench")?;
        index.set_capacity(slot, 2 * prompts * PROMPT_BLOCKS, BLOCK);
        index.set_completeness(slot, Completeness::Exact);
        Ok(Self { slot, seq: 0, prompts: std::collections::VecDeque::new(), made: 0 })
    }

    /// Computes one more prompt. Gives the time that applying took.
    pub fn store(&mut self, index: &Index) -> Duration {
        let prompt = self.next_prompt();
        self.prompts.push_back(prompt);
        let batches = self.stored(prompt, EVENT_BLOCKS);
        apply(index, self.slot, &batches)
    }

    /// Gives the oldest prompt up. Gives the time that applying took.
    pub fn evict(&mut self, index: &Index) -> Duration {
        let Some(prompt) = self.prompts.pop_front() else { return Duration::ZERO };
        let hashes: Vec<EngineHash> =
            (0..PROMPT_BLOCKS).rev().map(|block| engine_hash(prompt, block)).collect();
        let batches: Vec<Batch> = hashes
            .chunks(EVENT_BLOCKS)
            .map(|hashes| {
                self.batch(KvEvent::Removed { hashes: hashes.to_vec(), group: 0, medium: Medium::Gpu })
            })
            .collect();
        apply(index, self.slot, &batches)
    }

    /// As [`store`](Self::store), block after block, as decoding publishes them.
    pub fn decode(&mut self, index: &Index) -> Duration {
        let prompt = self.next_prompt();
        self.prompts.push_back(prompt);
        let batches = self.stored(prompt, 1);
        apply(index, self.slot, &batches)
    }

    /// Stores ids of the caller's.
    pub fn store_ids(&mut self, index: &Index, prompt: u64, ids: &[u32]) {
        let blocks = ids.len() / BLOCK.tokens();
        let hashes = (0..blocks).map(|block| engine_hash(prompt, block)).collect();
        let event = KvEvent::Stored(Stored {
            hashes,
            token_ids: ids.get(..blocks * BLOCK.tokens()).unwrap_or_default().to_vec(),
            block_size: u32::from(BLOCK),
            ..Stored::default()
        });
        let batch = self.batch(event);
        index.apply(self.slot, &batch);
    }

    fn next_prompt(&mut self) -> u64 {
        let number = self.made;
        self.made += 1;
        let owner = u64::from(self.slot.0);
        match number % SHARED_EVERY {
            0 => number / SHARED_EVERY * GROUPS + owner % GROUPS,
            _ => 1 << 40 | owner << 20 | number,
        }
    }

    fn stored(&mut self, prompt: u64, per_event: usize) -> Vec<Batch> {
        let starts: Vec<usize> = (0..PROMPT_BLOCKS).step_by(per_event).collect();
        starts
            .into_iter()
            .map(|start| {
                let blocks = start..(start + per_event).min(PROMPT_BLOCKS);
                let tokens = blocks.start * BLOCK.tokens()..blocks.end * BLOCK.tokens();
                self.batch(KvEvent::Stored(Stored {
                    hashes: blocks.map(|block| engine_hash(prompt, block)).collect(),
                    parent: start.checked_sub(1).map(|block| engine_hash(prompt, block)),
                    token_ids: tokens.map(|token| token_id(prompt, token)).collect(),
                    block_size: u32::from(BLOCK),
                    ..Stored::default()
                }))
            })
            .collect()
    }

    fn batch(&mut self, event: KvEvent) -> Batch {
        self.seq += 1;
        Batch { seq: self.seq, events: vec![event], ..Batch::default() }
    }

    /// The chains of the prompts it holds, as requests for them would carry.
    pub fn chains(&self) -> Vec<BlockChain> {
        self.prompts
            .iter()
            .map(|prompt| {
                let ids: Vec<u32> =
                    (0..PROMPT_BLOCKS * BLOCK.tokens()).map(|token| token_id(*prompt, token)).collect();
                hash::chain(&CacheScope::default(), BLOCK, &ids, None)
            })
            .collect()
    }
}

fn apply(index: &Index, slot: OwnerSlot, batches: &[Batch]) -> Duration {
    let started = Instant::now();
    for batch in batches {
        index.apply(slot, batch);
    }
    started.elapsed()
}

/// The engine's name of a block. All engines name a block of a prompt alike, as vLLM does from 0.24 on.
pub(crate) fn engine_hash(prompt: u64, block: usize) -> EngineHash {
    EngineHash::Int { bits: scatter(prompt.wrapping_mul(1 << 16) ^ block as u64), negative: false }
}

/// A token of a prompt.
pub(crate) fn token_id(prompt: u64, token: usize) -> u32 {
    // The size of Qwen2.5's vocabulary.
    (scatter(prompt ^ (token as u64) << 24) % 151_665) as u32
}

/// The finalizer of SplitMix64: neighbouring numbers become unrelated ones.
fn scatter(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_core::{BlockIndex as _, PrefixHit};

    fn held(index: &Index, model: &ModelName, chain: &BlockChain, slots: &[OwnerSlot]) -> Vec<u32> {
        let mut hits = vec![PrefixHit::default(); slots.len()];
        index.walk(model, std::slice::from_ref(chain), slots, &mut hits);
        hits.iter().map(|hit| hit.tokens).collect()
    }

    #[test]
    fn what_is_stored_is_found_and_what_is_evicted_is_not() {
        let (index, model) = (Index::default(), ModelName::from("m"));
        let mut one = Feeder::register(&index, 0, &model, 10).unwrap();
        let mut peer = Feeder::register(&index, 8, &model, 10).unwrap();
        for _ in 0..3 {
            one.store(&index);
            peer.decode(&index);
        }
        let (slots, all) = ([one.slot, peer.slot], (PROMPT_BLOCKS * BLOCK.tokens()) as u32);
        let chains = one.chains();
        assert_eq!(held(&index, &model, &chains[0], &slots), [all, all], "the first one is the group's");
        assert_eq!(held(&index, &model, &chains[1], &slots), [all, 0]);
        one.evict(&index);
        assert_eq!(held(&index, &model, &chains[0], &slots), [0, all]);
        assert_eq!(one.chains().len(), 2);
        assert_eq!(index.size().blocks, 5 * PROMPT_BLOCKS);
    }
}
