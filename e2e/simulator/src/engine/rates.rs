//! How fast a simulated engine is, and how large.

use serde::{Deserialize, Serialize};

/// Costs in seconds. One step of an engine costs the sum of what is in it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rates {
    /// A step, whatever is in it: the weights are read, kernels are launched.
    pub step: f64,
    /// One prompt token computed.
    pub prefill_token: f64,
    /// One prompt token's attention to one token before it.
    pub attention_pair: f64,
    /// One generating sequence in a step.
    pub decode_sequence: f64,
    /// One token of context that a generating sequence reads in a step.
    pub context_token: f64,
    /// A request's way through the engine's front end, before it can be in a step.
    pub request: f64,
    /// The same for each of its prompt tokens, cached ones included: they are tokenized and hashed.
    pub request_token: f64,
}

impl Rates {
    /// Computing `tokens` prompt tokens after `before` others, without the step.
    pub fn prefill(&self, tokens: u32, before: u32) -> f64 {
        let (tokens, before) = (f64::from(tokens), f64::from(before));
        tokens * (self.prefill_token + self.attention_pair * (before + tokens / 2.0))
    }

    /// One token of a sequence with `context` tokens before it, without the step.
    pub fn decode(&self, context: u32) -> f64 {
        self.decode_sequence + self.context_token * f64::from(context)
    }

    /// The way in of a prompt of `tokens`.
    pub fn way_in(&self, tokens: u32) -> f64 {
        self.request + self.request_token * f64::from(tokens)
    }

    /// The same engine at `factor` times the speed.
    pub fn faster(&self, factor: f64) -> Self {
        Self {
            step: self.step / factor,
            prefill_token: self.prefill_token / factor,
            attention_pair: self.attention_pair / factor,
            decode_sequence: self.decode_sequence / factor,
            context_token: self.context_token / factor,
            request: self.request,
            request_token: self.request_token,
        }
    }
}

/// One engine: its rates and its bounds, by the names that vLLM has for them.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct EngineShape {
    /// Costs.
    pub rates: Rates,
    /// KV capacity in blocks (`num_gpu_blocks`).
    pub kv_blocks: u32,
    /// Tokens in a block (`block_size`).
    pub block_size: u32,
    /// Most tokens in a step (`max_num_batched_tokens`).
    pub step_tokens: u32,
    /// Most sequences that run at once (`max_num_seqs`).
    pub most_running: u32,
}

impl EngineShape {
    /// KV capacity in tokens.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.kv_blocks) * u64::from(self.block_size)
    }

    /// Prefilling `tokens` after `before` others with nothing else to do, steps included.
    pub fn prefill_alone(&self, tokens: u32, before: u32) -> f64 {
        let steps = tokens.div_ceil(self.step_tokens.max(1));
        self.rates.prefill(tokens, before) + f64::from(steps) * self.rates.step
    }
}
