//! What the settings mean: checked, typed, ready for the rooms.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kvasir_core::{AdapterName, Address, ConnectorKind, EngineKind, ModelName, Role, TokenSource};

use crate::coordination::{CoordinationMode, SharedLoadMode};
use crate::defaults;
use crate::kubernetes::KubernetesSettings;
use crate::redis::RedisSettings;

mod admission;
mod scoring;
mod tokens;

pub use admission::{AdmissionSettings, FairnessSettings, SessionBoostSettings};
pub use scoring::{KvasirCostArgs, SessionAffinityArgs};
pub use tokens::TokenSettings;

/// Everything `kvasir router` needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Inference, health and readiness.
    pub listen: SocketAddr,
    /// `/metrics` only.
    pub metrics_listen: SocketAddr,
    /// Explain and debug.
    pub admin_listen: SocketAddr,
    /// Limits and time-outs of the request path.
    pub limits: Limits,
    /// What clients see of the choice, and what engines see of the client.
    pub headers: HeaderRules,
    /// Who may begin now.
    pub admission: AdmissionSettings,
    /// Who takes a request.
    pub scheduler: SchedulerSettings,
    /// The models, in the order they were named.
    pub models: Vec<ModelSettings>,
    /// How often engines are scraped.
    pub scrape_interval: Duration,
    /// Access log.
    pub access_log: AccessLog,
    /// Worker threads of the request path; 0 is one for each core.
    pub threads: usize,
    /// Decisions kept for `explain`.
    pub decision_ring: usize,
    /// How long a SIGTERM waits for requests in flight.
    pub drain_timeout: Duration,
    /// How long after SIGTERM new requests are still taken while readiness already fails.
    pub drain_settle: Duration,
    /// What was noticed that is no error: one sentence each, for the log.
    pub warnings: Vec<String>,
    /// Log level, or directives for single parts.
    pub log_level: String,
    /// Whether the scheduler's part came from a router document.
    pub from_document: bool,
    /// The Redis that is shared with other replicas, agents and kthena's programs.
    pub redis: Option<RedisSettings>,
    /// Where blocks are looked up; `None` is decided by what is found in Redis. Only where `kvcache-aware` is enabled.
    pub coordination: Option<CoordinationMode>,
    /// How replicas tell each other what they have in flight.
    pub shared_load: SharedLoadMode,
    /// How long what Redis told is believed in full while Redis is out of reach.
    pub mirror_grace: Duration,
    /// This replica's name among the others; `None` leaves it to whoever needs one.
    pub replica_name: Option<String>,
    /// The cluster that is watched; `None` leaves it at `models`, of which there are some then.
    pub kubernetes: Option<KubernetesSettings>,
    /// Whether `/metrics` is served on the inference port too.
    pub metrics_on_router_port: bool,
    /// Tokenizer directories that were named by flag, for models that are there and such as may appear.
    pub tokenizers: BTreeMap<ModelName, PathBuf>,
    /// The flag's deadline of the remote token sources, which wins over that of every document.
    pub token_deadline: Option<Duration>,
    /// The Redis that is tried where a document enables `kvcache-aware` and nobody names one; `None` where one is named,
    /// or none is wanted.
    pub implied_redis: Option<RedisSettings>,
}

/// Limits and time-outs of the request path.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Largest request body, bytes.
    pub max_body_bytes: usize,
    /// Sum of all bodies held at once, bytes.
    pub max_buffered_bytes: usize,
    /// To establish a connection.
    pub connect_timeout: Duration,
    /// From the request's last byte to the answer's header.
    pub first_byte_timeout: Duration,
    /// Longest silence inside an answer.
    pub stream_idle_timeout: Duration,
    /// To receive a request's header.
    pub header_timeout: Duration,
    /// Longest silence inside a request's body.
    pub body_timeout: Duration,
    /// Idle client connections are closed after this.
    pub keepalive_timeout: Duration,
    /// Most endpoints tried for one request.
    pub max_attempts: usize,
    /// Retries as a share of requests, 0 to 1.
    pub retry_budget: f64,
    /// Connections kept idle to each endpoint.
    pub pool_size: usize,
    /// What becomes of a request whose prompt no prefill endpoint computes.
    pub pd_fallback: PdFallback,
}

/// What becomes of a request where prefill and decode are apart, and no prefill endpoint can take its prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PdFallback {
    /// It fails, as with kthena: decode endpoints may lack the memory, or the time, for prompts.
    #[default]
    Off,
    /// A decode endpoint gets all of it.
    Aggregated,
}

impl PdFallback {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Off, Self::Aggregated];

    /// The name that settings use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Aggregated => "aggregated",
        }
    }
}

/// What is shown and what is passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// Answer with `x-kvasir-endpoint`.
    pub endpoint_header: bool,
    /// Pass `Authorization`, `Cookie` and `x-api-key` on to the engines.
    pub forward_credentials: bool,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Off entirely when false.
    pub enabled: bool,
    /// JSON or kthena's text form.
    pub json: bool,
    /// `stdout`, `stderr`, or a file path.
    pub output: String,
}

/// One model.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// The name clients use.
    pub name: ModelName,
    /// The name the engines list, when it differs.
    pub served_name: Option<ModelName>,
    /// Other names clients may use.
    pub aliases: Vec<ModelName>,
    /// Engine behind every endpoint of the model.
    pub engine: EngineKind,
    /// A directory with `tokenizer.json` and the template.
    pub tokenizer: Option<PathBuf>,
    /// A chat template file that overrides the directory's.
    pub chat_template: Option<PathBuf>,
    /// Adapters served by the endpoints.
    pub adapters: Vec<AdapterName>,
    /// How the KV cache moves from prefill to decode endpoints; `None` where every endpoint does both.
    pub connector: Option<ConnectorKind>,
    /// The endpoints.
    pub endpoints: Vec<EndpointSettings>,
}

/// One endpoint URL with its event sources.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Where it listens.
    pub address: Address,
    /// Event sources, one for each data-parallel rank; empty asks the engine.
    pub kv_events: Vec<KvEventsSettings>,
    /// Data-parallel ranks served behind the URL; 1 without data parallelism.
    pub ranks: u32,
    /// Whether a request's rank is chosen by header; `None` leaves it to what is known of the engine.
    pub pin_ranks: Option<bool>,
    /// Its part in prefill/decode serving.
    pub role: Role,
    /// The group that it prefills or decodes in; `None` where all endpoints of the model are one group.
    pub group: Option<String>,
    /// The port of a prefill engine's bootstrap server; `None` leaves it to the engines.
    pub bootstrap_port: Option<u16>,
}

impl EndpointSettings {
    /// An engine of one rank that serves whole requests, of which nothing else was said.
    pub fn new(address: Address) -> Self {
        let (kv_events, ranks, role) = (Vec::new(), 1, Role::Both);
        Self { address, kv_events, ranks, pin_ranks: None, role, group: None, bootstrap_port: None }
    }
}

/// Where one rank publishes its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventsSettings {
    /// `tcp://HOST:PORT`: connected to; with a `*` host: bound, and the engine connects to us.
    pub endpoint: String,
    /// `tcp://HOST:PORT` of the replay socket.
    pub replay: Option<String>,
    /// Subscription prefix; empty takes everything.
    pub topic: String,
    /// The rank.
    pub rank: u32,
}

/// The scheduler's part.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerSettings {
    /// Filters, in order.
    pub filters: Vec<String>,
    /// Scorers with weights.
    pub scorers: Vec<(String, f64)>,
    /// Typed arguments of every plugin.
    pub args: PluginArgs,
    /// Ranked picks kept for retries.
    pub top_n: usize,
    /// Longest time spent gathering.
    pub gather_deadline: Duration,
}

/// Arguments of every plugin, defaults where nothing was said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginArgs {
    /// `least-request`
    pub least_request: LeastRequestArgs,
    /// `least-latency`
    pub least_latency: LeastLatencyArgs,
    /// `prefix-cache`
    pub prefix_cache: PrefixCacheArgs,
    /// `kvcache-aware`
    pub kvcache_aware: KvCacheAwareArgs,
    /// `kvasir-cost`
    pub kvasir_cost: KvasirCostArgs,
    /// `session-affinity`
    pub session_affinity: SessionAffinityArgs,
}

/// Arguments of `least-request`.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastRequestArgs {
    /// An endpoint with this many waiting requests is dropped.
    pub max_waiting_requests: i64,
}

impl Default for LeastRequestArgs {
    fn default() -> Self {
        Self { max_waiting_requests: 10 }
    }
}

/// Arguments of `least-latency`.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastLatencyArgs {
    /// Share of TTFT, 0 to 1; the rest is TPOT.
    pub ttft_tpot_weight_factor: f64,
}

impl Default for LeastLatencyArgs {
    fn default() -> Self {
        Self { ttft_tpot_weight_factor: 0.5 }
    }
}

/// Arguments of `prefix-cache`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixCacheArgs {
    /// Bytes in a block of the flat prompt.
    pub block_size_to_hash: usize,
    /// Blocks looked at.
    pub max_blocks_to_match: usize,
    /// Hashes remembered for each endpoint.
    pub max_hash_cache_size: usize,
    /// Endpoints that may get a non-zero match.
    pub top_k_matches: usize,
}

impl Default for PrefixCacheArgs {
    fn default() -> Self {
        Self {
            block_size_to_hash: 64,
            max_blocks_to_match: 128,
            max_hash_cache_size: 50_000,
            top_k_matches: 5,
        }
    }
}

/// Arguments of `kvcache-aware`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvCacheAwareArgs {
    /// Block size of kthena's Redis layout; the mirror uses the engine's own.
    pub block_size_to_hash: u32,
    /// Blocks looked at; `None` is the whole prompt in the mirror, [`defaults::QUERY_BLOCKS`] in Redis.
    pub max_blocks_to_match: Option<u32>,
    /// Where blocks are looked up, as said; [`Settings::coordination`] is what counts.
    pub coordination: Option<CoordinationMode>,
    /// Longest time of one lookup in Redis.
    pub query_budget: Duration,
    /// Port of vLLM's `/tokenize`; `None` uses the endpoint's own port.
    pub vllm_tokenizer_port: Option<u16>,
    /// Port of SGLang's `/tokenize`; `None` uses the endpoint's own port.
    pub sglang_tokenizer_port: Option<u16>,
    /// The tokenizer service.
    pub tokenizer_service: TokenizerServiceArgs,
    /// The chain's order; empty is the default order of the mode.
    pub order: Vec<TokenSource>,
    /// Tokenizer directories by served model name.
    pub local: BTreeMap<String, PathBuf>,
    /// What all remote calls for one request's tokens may take together; `None` is 50 ms, or a tenth of the estimated
    /// prefill time where that is more.
    pub deadline: Option<Duration>,
}

impl Default for KvCacheAwareArgs {
    fn default() -> Self {
        Self {
            block_size_to_hash: 16,
            max_blocks_to_match: None,
            coordination: None,
            query_budget: defaults::QUERY_BUDGET,
            vllm_tokenizer_port: None,
            sglang_tokenizer_port: None,
            tokenizer_service: TokenizerServiceArgs::default(),
            order: Vec::new(),
            local: BTreeMap::new(),
            deadline: None,
        }
    }
}

/// The tokenizer service as kthena names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerServiceArgs {
    /// Whether it is asked.
    pub enabled: bool,
    /// Base URL.
    pub endpoint: String,
    /// Whether the engine is asked when the service fails.
    pub fallback_to_engine: bool,
}

impl Default for TokenizerServiceArgs {
    fn default() -> Self {
        Self { enabled: false, endpoint: String::new(), fallback_to_engine: true }
    }
}
