//! Engines under load: a batch of events for each step, as vLLM publishes them.

use std::collections::VecDeque;

use kvasir_core::{BlockHash, Completeness, EngineHash, KvEvent, Medium, OwnerSlot, Stored};
use kvasir_kvcache::hash::{Chainer, root};
use kvasir_kvcache::{Batch, Index};

use super::model;
use crate::resident::{BLOCK, engine_hash, token_id};

/// Sequences that fill a block in a step.
const OPEN: usize = 7;

/// Blocks of a new sequence's prompt: a prefill step of 2,048 tokens.
const PREFILL: usize = 128;

/// Steps after which the oldest open sequence ends and another begins.
const STEPS_OF_ONE: u64 = 20;

/// Block events in a step, on average, once the cache is full: as many leave as come.
pub const EVENTS_IN_STEP: f64 = 2.0 * (OPEN as f64 + PREFILL as f64 / STEPS_OF_ONE as f64);

/// One engine with a full cache.
#[derive(Debug)]
pub struct Stepping {
    /// Its number in the index.
    pub slot: OwnerSlot,
    capacity: usize,
    held: usize,
    seq: u64,
    steps: u64,
    made: u64,
    open: VecDeque<Sequence>,
    /// Sequences that ended, oldest first; their last blocks leave first.
    ended: VecDeque<Sequence>,
    chainer: Chainer,
}

#[derive(Debug)]
struct Sequence {
    prompt: u64,
    blocks: usize,
    /// Our own hash of its last block.
    last: BlockHash,
}

impl Stepping {
    /// Registers the engine with an index and fills its cache.
    ///
    /// # Errors
    /// The index takes no such owner.
    pub fn start(index: &Index, slot: OwnerSlot, capacity: usize) -> anyhow::Result<Self> {
        index.register(slot, &model(), "bench")?;
        index.set_capacity(slot, 2 * capacity, BLOCK);
        index.set_completeness(slot, Completeness::Exact);
        let mut engine = Self {
            slot,
            capacity,
            held: 0,
            seq: 0,
            steps: 0,
            made: 0,
            open: VecDeque::new(),
            ended: VecDeque::new(),
            chainer: Chainer::new(BLOCK),
        };
        while engine.held + PREFILL <= capacity {
            let (sequence, event) = engine.prefill();
            if engine.open.len() < OPEN {
                engine.open.push_back(sequence);
            } else {
                engine.ended.push_back(sequence);
            }
            index.apply(slot, &engine.batch(vec![event]));
        }
        Ok(engine)
    }

    /// Blocks it holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// The events of its next step, how many blocks they are about, and the newest of those that came.
    pub fn step(&mut self) -> (Batch, usize, BlockHash) {
        self.steps += 1;
        let mut stored = Vec::with_capacity(OPEN + 1);
        let before = self.held;
        let mut newest = BlockHash(0);
        for mut sequence in std::mem::take(&mut self.open) {
            stored.push(self.extend(&mut sequence, 1));
            newest = sequence.last;
            self.open.push_back(sequence);
        }
        // Engines do not all begin a prompt in the same step.
        if (self.steps + u64::from(self.slot.0)).is_multiple_of(STEPS_OF_ONE) {
            let (sequence, event) = self.prefill();
            stored.push(event);
            newest = sequence.last;
            self.open.push_back(sequence);
            self.ended.extend(self.open.pop_front());
        }
        let came = self.held - before;
        let left = self.evict();
        let gone = left.len();
        // Room is made before it is used.
        let mut events = Vec::with_capacity(stored.len() + 1);
        if gone > 0 {
            events.push(KvEvent::Removed { hashes: left, group: 0, medium: Medium::Gpu });
        }
        events.append(&mut stored);
        (self.batch(events), came + gone, newest)
    }

    /// What is above the capacity leaves: of the oldest sequence, the last blocks first.
    fn evict(&mut self) -> Vec<EngineHash> {
        let mut left = Vec::new();
        while self.held > self.capacity {
            let Some(oldest) = self.ended.front_mut() else { break };
            if oldest.blocks == 0 {
                self.ended.pop_front();
                continue;
            }
            oldest.blocks -= 1;
            self.held -= 1;
            left.push(engine_hash(oldest.prompt, oldest.blocks));
        }
        left
    }

    fn prefill(&mut self) -> (Sequence, KvEvent) {
        self.made += 1;
        let prompt = 1 << 40 | u64::from(self.slot.0) << 20 | self.made;
        let mut sequence = Sequence { prompt, blocks: 0, last: root(BLOCK, None) };
        let event = self.extend(&mut sequence, PREFILL);
        (sequence, event)
    }

    fn extend(&mut self, sequence: &mut Sequence, blocks: usize) -> KvEvent {
        let (from, to) = (sequence.blocks, sequence.blocks + blocks);
        let tokens = from * BLOCK.tokens()..to * BLOCK.tokens();
        let token_ids: Vec<u32> = tokens.map(|token| token_id(sequence.prompt, token)).collect();
        for ids in token_ids.chunks_exact(BLOCK.tokens()) {
            sequence.last = self.chainer.next(sequence.last, ids);
        }
        sequence.blocks = to;
        self.held += blocks;
        KvEvent::Stored(Stored {
            hashes: (from..to).map(|block| engine_hash(sequence.prompt, block)).collect(),
            parent: from.checked_sub(1).map(|block| engine_hash(sequence.prompt, block)),
            token_ids,
            block_size: u32::from(BLOCK),
            ..Stored::default()
        })
    }

    fn batch(&mut self, events: Vec<KvEvent>) -> Batch {
        self.seq += 1;
        Batch { seq: self.seq, events, ..Batch::default() }
    }
}

#[cfg(test)]
mod tests {
    use kvasir_core::OwnerJournal as _;

    use super::*;

    #[test]
    fn a_full_cache_stays_full_and_its_newest_block_is_there() {
        let index = Index::default();
        let mut engine = Stepping::start(&index, OwnerSlot(3), 2000).unwrap();
        assert!(engine.held() > 2000 - PREFILL);
        let mut events = 0;
        for _ in 0..400 {
            let (batch, blocks, newest) = engine.step();
            events += blocks;
            assert!(index.apply(engine.slot, &batch));
            let content = index.content(engine.slot).unwrap();
            assert!(content.gpu.contains(&newest));
            assert_eq!(content.gpu.len(), engine.held());
        }
        assert_eq!(engine.held(), 2000);
        assert!((f64::from(events as u32) / 400.0 - EVENTS_IN_STEP).abs() < 1.0, "{events}");
        assert_eq!(index.stats()[0].unknown_removals, 0);
    }
}
