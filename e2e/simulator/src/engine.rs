//! One simulated engine: a queue, a batch that grows and shrinks with every step, and KV blocks.
//!
//! The scheduler is vLLM's in what matters for placement: running sequences come first, prompts are computed in chunks
//! within a step's token budget, waiting ones enter in order while there is memory and a place, whole cached blocks are
//! reused except for the last token, and when a generating sequence finds no memory, the one that came last starts
//! over. Nothing in here knows how requests are placed.

pub mod blocks;
mod forecast;
mod rates;
pub(crate) mod rehearsal;
mod sequence;

use std::collections::VecDeque;

use kvasir_core::{BlockHash, EngineHash, KvEvent, Medium, Stored};

use blocks::BlockPool;
pub use forecast::Forecast;
pub use rates::{EngineShape, Rates};
use sequence::Sequence;
pub use sequence::Work;

/// What a step brought about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepOutcome {
    /// A request's first token is there.
    FirstToken {
        /// Which request.
        request: u32,
        /// Its prompt tokens that came out of the cache.
        cached: u32,
    },
    /// A request has its last token.
    Ended {
        /// Which request.
        request: u32,
    },
}

/// Sums since the engine started, as a metrics page has them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct EngineSums {
    /// Prompt tokens computed.
    pub prefilled: u64,
    /// Seconds between two tokens of a sequence.
    pub token_seconds: f64,
    /// How many such pairs.
    pub tokens: u64,
    /// Sequences that had to start over.
    pub preempted: u64,
}

/// One engine.
#[derive(Clone, Debug)]
pub struct Engine {
    shape: EngineShape,
    pool: BlockPool,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    /// Tokens that the step under way computes for each of `running`.
    batch: Vec<u32>,
    /// How long it takes, seconds; `None` between steps.
    step: Option<f64>,
    /// What changed in the cache since it was last asked.
    told: Vec<KvEvent>,
    sums: EngineSums,
}

impl Engine {
    /// An idle engine with an empty cache.
    pub fn new(shape: EngineShape) -> Self {
        Self {
            shape,
            pool: BlockPool::new(shape.kv_blocks),
            waiting: VecDeque::new(),
            running: Vec::new(),
            batch: Vec::new(),
            step: None,
            told: Vec::new(),
            sums: EngineSums::default(),
        }
    }

    /// What it is.
    pub fn shape(&self) -> &EngineShape {
        &self.shape
    }

    /// Its memory.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Sequences that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether a step is under way.
    pub fn is_stepping(&self) -> bool {
        self.step.is_some()
    }

    /// Sums for a metrics page.
    pub fn sums(&self) -> EngineSums {
        self.sums
    }

    /// Whether a request fits into the engine at all.
    pub fn can_hold(&self, prompt: u32, answer: u32) -> bool {
        (prompt + answer).div_ceil(self.shape.block_size) <= self.shape.kv_blocks
    }

    /// Leading prompt tokens of `work` that are cached now and could be reused.
    pub fn cached_tokens(&self, work: &Work) -> u32 {
        let most = (work.prompt.saturating_sub(1) / self.shape.block_size) as usize;
        let chain = &work.chain[..most.min(work.chain.len())];
        self.pool.cached_blocks(chain) as u32 * self.shape.block_size
    }

    /// A request has passed the front end and waits for its first step.
    pub fn enqueue(&mut self, work: Work) {
        self.waiting.push_back(Sequence::new(work));
    }

    /// Begins a step if there is anything to do; how long it takes, seconds.
    pub fn begin_step(&mut self) -> Option<f64> {
        if self.step.is_some() {
            return self.step;
        }
        self.batch.clear();
        let mut budget = self.shape.step_tokens;
        let preempted = self.schedule_running(&mut budget);
        if !preempted {
            self.admit(&mut budget);
        }
        if self.batch.iter().all(|tokens| *tokens == 0) {
            return None;
        }
        let rates = &self.shape.rates;
        let work = self.running.iter().zip(&self.batch).filter(|(_, tokens)| **tokens > 0);
        let took = work.fold(rates.step, |sum, (sequence, tokens)| {
            sum + if sequence.decodes() {
                rates.decode(sequence.computed)
            } else {
                rates.prefill(*tokens, sequence.computed)
            }
        });
        self.step = Some(took);
        self.step
    }

    /// Ends the step under way and says what it brought.
    pub fn end_step(&mut self, outcomes: &mut Vec<StepOutcome>) {
        let Some(took) = self.step.take() else { return };
        for (sequence, tokens) in self.running.iter_mut().zip(&self.batch) {
            if *tokens == 0 {
                continue;
            }
            if sequence.decodes() {
                self.sums.token_seconds += took;
                self.sums.tokens += 1;
            } else {
                self.sums.prefilled += u64::from(*tokens);
            }
            sequence.computed += tokens;
            if sequence.computed < sequence.known() {
                continue;
            }
            sequence.generated += 1;
            let request = sequence.work.request;
            if sequence.generated == 1 {
                let cached = sequence.cached.unwrap_or_default();
                outcomes.push(StepOutcome::FirstToken { request, cached });
            }
            if sequence.generated >= sequence.work.answer {
                outcomes.push(StepOutcome::Ended { request });
            }
        }
        let pool = &mut self.pool;
        self.running.retain(|sequence| {
            let ends = sequence.generated >= sequence.work.answer;
            if ends {
                pool.release(&sequence.blocks);
            }
            !ends
        });
    }

    /// What changed in the cache since the last call, in order.
    pub fn take_events(&mut self) -> Vec<KvEvent> {
        std::mem::take(&mut self.told)
    }

    /// Gives each running sequence its tokens; true when one had to start over for lack of memory.
    fn schedule_running(&mut self, budget: &mut u32) -> bool {
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() {
            let sequence = &self.running[at];
            let tokens = (sequence.known() - sequence.computed).min(*budget);
            let blocks = (sequence.computed + tokens).div_ceil(self.shape.block_size) as usize;
            while at < self.running.len() && !self.has_room_for(at, blocks) {
                self.preempt_last();
                preempted = true;
            }
            if at < self.running.len() {
                self.grow(at, blocks, tokens);
                self.batch.push(tokens);
                *budget -= tokens;
            }
            at += 1;
        }
        preempted
    }

    fn has_room_for(&self, at: usize, blocks: usize) -> bool {
        blocks.saturating_sub(self.running[at].blocks.len()) <= self.pool.free() as usize
    }

    /// The sequence that came last starts over when there is room again; what it computed stays cached as long as it
    /// lasts.
    fn preempt_last(&mut self) {
        let Some(mut sequence) = self.running.pop() else { return };
        self.pool.release(&sequence.blocks);
        sequence.blocks.clear();
        (sequence.computed, sequence.filled) = (0, 0);
        self.sums.preempted += 1;
        self.waiting.push_front(sequence);
    }

    /// Takes in waiting sequences, in order, while a place, memory and tokens of the step are left.
    fn admit(&mut self, budget: &mut u32) {
        let size = self.shape.block_size;
        while *budget > 0 && self.running.len() < self.shape.most_running as usize {
            let Some(sequence) = self.waiting.front() else { return };
            let reusable = sequence.reusable(size);
            let hit = self.pool.cached_blocks(reusable);
            let blocks = sequence.known().div_ceil(size) as usize;
            let needed = (blocks - hit) as u32 + self.pool.idle_among(reusable, hit);
            if needed > self.pool.free() {
                return;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { return };
            for hash in &sequence.work.chain[..hit] {
                sequence.blocks.extend(self.pool.share(*hash));
            }
            sequence.computed = hit as u32 * size;
            sequence.filled = hit;
            sequence.cached.get_or_insert(sequence.computed);
            let tokens = (sequence.known() - sequence.computed).min(*budget);
            *budget -= tokens;
            self.running.push(sequence);
            self.grow(self.running.len() - 1, blocks, tokens);
            self.batch.push(tokens);
        }
    }

    /// Gives sequence `at` memory for `blocks` blocks, and makes known those that its next `tokens` fill.
    fn grow(&mut self, at: usize, blocks: usize, tokens: u32) {
        let Self { shape, pool, running, told, .. } = self;
        let Some(sequence) = running.get_mut(at) else { return };
        let mut evicted = Vec::new();
        while sequence.blocks.len() < blocks {
            let Some((block, gone)) = pool.take() else { break };
            sequence.blocks.push(block);
            evicted.extend(gone);
        }
        // One event for each, as vLLM does; they stand before the blocks that they made room for.
        told.extend(evicted.into_iter().map(removed));
        let size = shape.block_size as usize;
        let full = (sequence.computed + tokens) as usize / size;
        let full = full.min(sequence.work.chain.len());
        if full <= sequence.filled {
            return;
        }
        let from = sequence.filled;
        for number in from..full {
            pool.fill(sequence.blocks[number], sequence.work.chain[number]);
        }
        sequence.filled = full;
        told.push(stored(&sequence.work, from, full, size));
    }
}

/// Our own chained hashes stand for the engine's: all that matters is that equal ones mean equal content.
fn engine_hash(hash: BlockHash) -> EngineHash {
    EngineHash::Int { bits: hash.0, negative: false }
}

fn removed(hash: BlockHash) -> KvEvent {
    KvEvent::Removed { hashes: vec![engine_hash(hash)], group: 0, medium: Medium::Gpu }
}

fn stored(work: &Work, from: usize, to: usize, size: usize) -> KvEvent {
    KvEvent::Stored(Stored {
        hashes: work.chain[from..to].iter().copied().map(engine_hash).collect(),
        parent: from.checked_sub(1).map(|before| engine_hash(work.chain[before])),
        token_ids: work.ids[from * size..to * size].to_vec(),
        block_size: size as u32,
        ..Stored::default()
    })
}

#[cfg(test)]
mod tests;
