//! What an engine is told at its start.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::EngineKind;

use crate::part::Part;
use crate::tokenize::{Tokenize, WordTokenizer};

/// One engine's settings. `EngineConfig::default()` is a vLLM 0.32 with events, on a free port of 127.0.0.1.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where HTTP listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Which engine it plays.
    pub kind: EngineKind,
    /// Served model name.
    pub model: String,
    /// LoRA adapters, listed and accepted as models; the first has `lora_id` 1.
    pub adapters: Vec<String>,
    /// Adapters that can be in use at once (vLLM's `max_loras`); 0 is as many as there are.
    pub adapter_places: usize,
    /// How long an adapter that was not in use takes until its first request can run.
    pub adapter_load: Duration,
    /// Tokens in one block.
    pub block_size: usize,
    /// Blocks of the KV cache. One of them is never used, as in vLLM, which keeps it as the null block.
    pub kv_blocks: usize,
    /// Longest prompt plus answer, in tokens; never more than the cache holds.
    pub max_model_len: usize,
    /// Microseconds of prefill for one uncached token.
    pub prefill_us_per_token: f64,
    /// Prompts that are prefilled at the same time, each at the full speed; the others wait in order of arrival.
    pub prefill_slots: usize,
    /// Most prompt tokens computed between two event batches (vLLM's chunked prefill budget).
    pub prefill_chunk_tokens: usize,
    /// Microseconds from one output token to the next, for each stream, however many run.
    pub decode_us_per_token: f64,
    /// Sequences that run at the same time (prefill and decode); the others wait.
    pub max_running: usize,
    /// Waiting sequences above which a request is answered 503; `None` queues without end.
    pub max_queued: Option<usize>,
    /// All model times are multiplied by this: 0.1 is ten times as fast.
    pub time_scale: f64,
    /// Turns requests into token ids.
    pub tokenizer: Arc<dyn Tokenize>,
    /// KV events; `None` publishes nothing.
    pub events: Option<EventsConfig>,
    /// Where the chain of block hashes starts.
    pub hash_root: HashRoot,
    /// What is answered.
    pub answer: Answer,
    /// Answer length in tokens when the request sets no lower limit.
    pub answer_tokens: usize,
    /// Whether usage tells `prompt_tokens_details.cached_tokens` (vLLM: `--enable-prompt-tokens-details`).
    pub report_cached_tokens: bool,
    /// Requests kept for [`crate::Engine::requests`]; the oldest leave first, and all together stay under 32 MiB.
    pub record_requests: usize,
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// Its part in prefill/decode serving; `None` serves whole requests.
    pub part: Option<Part>,
    /// Seed of the answers and of random hash roots: equal seeds, equal behaviour.
    pub seed: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            kind: EngineKind::Vllm,
            model: "mock-model".to_owned(),
            adapters: Vec::new(),
            adapter_places: 0,
            adapter_load: Duration::ZERO,
            block_size: 16,
            kv_blocks: 4096,
            max_model_len: 131_072,
            prefill_us_per_token: 20.0,
            prefill_slots: 1,
            prefill_chunk_tokens: 2048,
            decode_us_per_token: 5_000.0,
            max_running: 256,
            max_queued: None,
            time_scale: 1.0,
            tokenizer: Arc::new(WordTokenizer),
            events: Some(EventsConfig::default()),
            hash_root: HashRoot::Fixed,
            answer: Answer::Words,
            answer_tokens: 16,
            report_cached_tokens: true,
            record_requests: 256,
            max_body_bytes: 64 << 20,
            part: None,
            seed: 0,
        }
    }
}

impl EngineConfig {
    /// Says what cannot work.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.block_size == 0 {
            return Err(ConfigError::Zero("block_size"));
        }
        if self.kv_blocks < 2 {
            return Err(ConfigError::TooFewBlocks(self.kv_blocks));
        }
        for (name, value) in [
            ("prefill_slots", self.prefill_slots),
            ("prefill_chunk_tokens", self.prefill_chunk_tokens),
            ("max_running", self.max_running),
            ("answer_tokens", self.answer_tokens),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero(name));
            }
        }
        for (name, value) in [
            ("prefill_us_per_token", self.prefill_us_per_token),
            ("decode_us_per_token", self.decode_us_per_token),
            ("time_scale", self.time_scale),
        ] {
            if !value.is_finite() || value < 0.0 {
                return Err(ConfigError::NotATime(name));
            }
        }
        Ok(())
    }

    /// Tokens a sequence may hold: the model's length or the cache's, whichever is shorter.
    pub(crate) fn context_tokens(&self) -> usize {
        self.max_model_len.min((self.kv_blocks - 1) * self.block_size)
    }

    /// How long `tokens` uncached prompt tokens take.
    pub(crate) fn prefill_time(&self, tokens: usize) -> Duration {
        self.scaled(self.prefill_us_per_token * tokens as f64)
    }

    /// How long `tokens` steps of decode take.
    pub(crate) fn decode_time(&self, tokens: usize) -> Duration {
        self.scaled(self.decode_us_per_token * tokens as f64)
    }

    fn scaled(&self, micros: f64) -> Duration {
        Duration::try_from_secs_f64(micros * self.time_scale / 1e6).unwrap_or(Duration::MAX)
    }

    /// The version it claims: the array encoding is that of vLLM 0.18, the map encoding that of 0.32.
    pub(crate) fn version(&self) -> &'static str {
        match (self.kind, self.events.as_ref().map(|events| events.encoding)) {
            (EngineKind::Sglang, _) => "0.5.23",
            (EngineKind::Vllm, Some(Encoding::Array)) => "0.18.0",
            (EngineKind::Vllm, _) => "0.32.0",
        }
    }

    /// Whether unfilled blocks are reused first: 0.32 does, 0.18 does not (seen in captures of both).
    pub(crate) fn reuses_empty_blocks_first(&self) -> bool {
        self.version() != "0.18.0"
    }
}

/// How KV events leave the engine.
#[derive(Clone, Debug)]
pub struct EventsConfig {
    /// Shape of an event on the wire, and with it the shape of replay answers.
    pub encoding: Encoding,
    /// Type of the block hashes.
    pub hash: HashForm,
    /// First frame of each message.
    pub topic: String,
    /// Third element of each batch.
    pub rank: u32,
    /// Whether a replay socket is bound beside the publisher (on a free port of the same address).
    pub replay: bool,
    /// Batches kept for replay.
    pub replay_buffer: usize,
    /// Bind or connect.
    pub endpoint: EventsEndpoint,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            encoding: Encoding::Map,
            hash: HashForm::U64,
            topic: "kv-events".to_owned(),
            rank: 0,
            replay: true,
            replay_buffer: 10_000,
            endpoint: EventsEndpoint::default(),
        }
    }
}

/// The two encodings that vLLM has had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Encoding {
    /// Tagged arrays, up to 0.23; replay answers carry no topic.
    Array,
    /// Maps with a `type` key, from 0.24; replay answers carry the topic (0.26 and later).
    Map,
}

/// How a block hash is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashForm {
    /// Unsigned 64-bit integer over the whole range: vLLM's default.
    U64,
    /// 32 raw bytes: vLLM with `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`.
    Bytes,
    /// Signed 64-bit integer: SGLang.
    I64,
}

/// Where the publisher is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventsEndpoint {
    /// Binds here; port 0 takes a free one.
    Bind(SocketAddr),
    /// Connects to a subscriber that has bound, as vLLM does for an endpoint without a wildcard
    /// (`tcp://127.0.0.1:5557`).
    Connect(String),
}

impl Default for EventsEndpoint {
    fn default() -> Self {
        Self::Bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

/// Where a chain of block hashes starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashRoot {
    /// The same for every engine and every start (vLLM 0.32).
    Fixed,
    /// Another one at every start (vLLM 0.18 without `PYTHONHASHSEED`).
    Random,
}

/// What an engine says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Words from a fixed list, chosen by the prompt and the seed: equal prompts get equal answers.
    Words,
    /// The last text of the prompt, piece by piece.
    Echo,
}

/// Why an engine cannot be started with these settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Must be at least 1.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// One block is the null block.
    #[error("kv_blocks must be at least 2, not {0}")]
    TooFewBlocks(usize),
    /// Negative, infinite or not a number.
    #[error("{0} must be a number of at least 0")]
    NotATime(&'static str),
}
