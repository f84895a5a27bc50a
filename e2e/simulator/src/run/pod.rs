//! A pod of the run: its engine, what is on its way to it, and its metrics page.

use kvasir_core::EngineSample;

use crate::clock::Nanos;
use crate::engine::{Engine, EngineShape, EngineSums, Work};

/// A mean over no observations is the last one for so many scrapes, as the router keeps it.
const MEAN_STANDS: u32 = 30;

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
    ttft: Held,
    tpot: Held,
}

/// The mean of what was observed between two scrapes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Held {
    mean: f64,
    silent: u32,
}

impl Held {
    /// Takes in the observations since the last scrape; 0 when there were none for long.
    fn update(&mut self, sum: f64, count: u64) -> f64 {
        if count > 0 {
            *self = Self { mean: sum / count as f64, silent: 0 };
        } else {
            self.silent = self.silent.saturating_add(1);
        }
        if self.silent > MEAN_STANDS {
            self.mean = 0.0;
        }
        self.mean
    }
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
            ttft: Held::default(),
            tpot: Held::default(),
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
            ttft_seconds: self.ttft.update(waited, u64::from(first_tokens)),
            tpot_seconds: self.tpot.update(token_seconds, tokens),
            kv_blocks: shape.kv_blocks,
            block_size: shape.block_size,
            ..EngineSample::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_stands_while_nothing_is_observed_and_not_for_ever() {
        let mut held = Held::default();
        assert_eq!(held.update(0.0, 0), 0.0);
        assert_eq!(held.update(3.0, 2), 1.5);
        assert!((0..MEAN_STANDS).all(|_| held.update(0.0, 0) == 1.5));
        assert_eq!(held.update(0.0, 0), 0.0);
        assert_eq!(held.update(1.0, 2), 0.5);
    }
}
