//! A pod of the run: its engine, what is on its way to it, and its metrics page.

use kvasir_core::EngineSample;

use crate::clock::Nanos;
use crate::engine::{Engine, EngineShape, EngineSums, Work};

/// A pod with what is on its way to it.
pub(super) struct Pod {
    pub(super) engine: Engine,
    pub(super) step_ends: Nanos,
    /// Sent, and not yet through the front end.
    pub(super) coming: Vec<(Nanos, Work)>,
    pub(super) batches: u64,
    /// First tokens since the last scrape: seconds in all, and how many.
    pub(super) first_tokens: (f64, u32),
    /// As the last scrape found them.
    scraped: EngineSums,
}

impl Pod {
    /// An idle pod.
    pub(super) fn new(shape: EngineShape) -> Self {
        Self {
            engine: Engine::new(shape),
            step_ends: 0,
            coming: Vec::new(),
            batches: 0,
            first_tokens: (0.0, 0),
            scraped: EngineSums::default(),
        }
    }

    /// What its metrics page says, with means since the last time.
    pub(super) fn sample(&mut self) -> EngineSample {
        let sums = self.engine.sums();
        let tokens = sums.tokens - self.scraped.tokens;
        let token_seconds = sums.token_seconds - self.scraped.token_seconds;
        self.scraped = sums;
        let (waited, first_tokens) = std::mem::take(&mut self.first_tokens);
        let shape = self.engine.shape();
        EngineSample {
            running: self.engine.running() as u32,
            waiting: self.engine.waiting() as u32,
            kv_usage: f64::from(self.engine.pool().used()) / f64::from(shape.kv_blocks.max(1)),
            ttft_seconds: if first_tokens > 0 { waited / f64::from(first_tokens) } else { 0.0 },
            tpot_seconds: if tokens > 0 { token_seconds / tokens as f64 } else { 0.0 },
            kv_blocks: shape.kv_blocks,
            block_size: shape.block_size,
            ..EngineSample::default()
        }
    }
}
