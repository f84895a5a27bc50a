//! The requests of a run: when they come, and what they are made of. Every policy gets the same ones.

use std::collections::HashSet;
use std::sync::Arc;

use kvasir_core::{BlockSize, CacheScope};
use kvasir_kvcache::hash;
use smallvec::SmallVec;

use crate::clock::Nanos;
use crate::engine::{EngineShape, Work};

/// Token ids are below this.
const VOCABULARY: u64 = 150_000;

/// Sequences that share one step of an engine, for the cost of a step to a request: an engine under load.
const TYPICAL_BATCH: f64 = 16.0;

/// A piece of text: equal seeds and lengths mean equal tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// What it says.
    pub seed: u64,
    /// How long it is.
    pub tokens: u32,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Planned {
    /// When it comes, at the earliest.
    pub at: Nanos,
    /// The request whose answer it continues: it comes after that one's end.
    pub after: Option<u32>,
    /// The prompt.
    pub prompt: SmallVec<[Segment; 4]>,
    /// The answer that it will get.
    pub answer: Segment,
    /// The conversation, user or task that it belongs to.
    pub session: u64,
}

impl Planned {
    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt.iter().map(|segment| segment.tokens).sum()
    }

    /// The request as an engine sees it.
    pub fn work(&self, request: u32, block_size: u32) -> Work {
        let prompt = self.prompt_tokens();
        let answer = self.answer.tokens.max(1);
        let mut ids = Vec::with_capacity((prompt + answer) as usize);
        for segment in self.prompt.iter().chain([&self.answer]) {
            ids.extend((0..u64::from(segment.tokens)).map(|at| token(segment.seed, at)));
        }
        let size = BlockSize::new(block_size).unwrap_or(BlockSize::DEFAULT);
        let chain = hash::chain(&CacheScope::default(), size, &ids, None).hashes;
        Work { request, ids: Arc::from(ids), chain, prompt, answer }
    }
}

/// Token number `at` of a text.
fn token(seed: u64, at: u64) -> u32 {
    (mix(seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % VOCABULARY) as u32
}

/// A number that looks random (the finaliser of `SplitMix64`).
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// All requests of a run, in the order they come.
#[derive(Clone, Debug)]
pub struct Trace {
    /// In order of [`Planned::at`].
    pub requests: Vec<Planned>,
    /// The first so many warm the caches and are not counted.
    pub warm_up: usize,
    /// Tokens that are worth keeping at one time: shared prefixes and live conversations.
    pub working_set: u64,
}

impl Trace {
    /// What one boundless cache shared by everybody would spare: for each request, the prompt tokens seen before.
    pub fn ideal_reuse(&self) -> Vec<u32> {
        let mut seen = HashSet::new();
        self.requests
            .iter()
            .map(|request| {
                let mut key = 0;
                let mut known = true;
                let mut reused = 0;
                for segment in request.prompt.iter().chain([&request.answer]) {
                    key = mix(key ^ segment.seed.wrapping_add(u64::from(segment.tokens)));
                    known &= !seen.insert(key);
                    reused += if known { segment.tokens } else { 0 };
                }
                reused.min(request.prompt_tokens().saturating_sub(1))
            })
            .collect()
    }

    /// Mean seconds of an engine's time that a request needs where everything seen before is reused. A step's own cost is
    /// shared by [`TYPICAL_BATCH`] sequences.
    pub fn mean_work(&self, shape: &EngineShape) -> f64 {
        let works = self.requests.iter().zip(self.ideal_reuse()).map(|(request, reused)| {
            let prompt = request.prompt_tokens();
            let rates = &shape.rates;
            let decode = rates.step / TYPICAL_BATCH + rates.decode(prompt);
            rates.prefill(prompt - reused, reused) + f64::from(request.answer.tokens) * decode
        });
        works.sum::<f64>() / self.requests.len().max(1) as f64
    }

    /// Prompt tokens of the requests that count.
    pub fn counted_tokens(&self) -> u64 {
        self.requests.iter().skip(self.warm_up).map(|request| u64::from(request.prompt_tokens())).sum()
    }

    /// Hit rate of the boundless cache over the requests that count.
    pub fn ideal_hit_rate(&self) -> f64 {
        let reused: u64 = self.ideal_reuse().into_iter().skip(self.warm_up).map(u64::from).sum();
        reused as f64 / self.counted_tokens().max(1) as f64
    }
}
