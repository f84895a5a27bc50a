//! The face of `kvasir mock-engine`.

mod parts;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use kvasir_core::EngineKind;
use tokio_util::sync::CancellationToken;

use crate::config::{Answer, Encoding, EngineConfig, EventsConfig, EventsEndpoint, HashForm, HashRoot};
use crate::engine::Engine;
use crate::fleet::Fleet;
use crate::tokenize::{HuggingFace, Tokenize, WordTokenizer};

pub use parts::{ConnectorArg, PartArgs, RoleArg};

/// Runs simulated engines: OpenAI endpoints, a KV cache with prefix reuse, KV events, metrics, faults to order.
#[derive(Clone, Debug, Args)]
pub struct MockEngineArgs {
    /// How many engines
    #[arg(long, env = "KVASIR_MOCK_ENGINES", default_value_t = 1)]
    pub engines: usize,
    /// Where the first engine listens; the others take the ports after it (port 0: free ports)
    #[arg(
        long,
        env = "KVASIR_MOCK_LISTEN_BASE",
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:18001"
    )]
    pub listen_base: SocketAddr,
    /// Which engine they play
    #[arg(long, env = "KVASIR_MOCK_KIND", value_enum, default_value_t = Kind::Vllm)]
    pub kind: Kind,
    /// Served model name
    #[arg(long, env = "KVASIR_MOCK_MODEL", default_value = "mock-model")]
    pub model: String,
    /// LoRA adapters, comma-separated
    #[arg(long, env = "KVASIR_MOCK_ADAPTERS", value_delimiter = ',')]
    pub adapters: Vec<String>,
    /// Tokens in one KV block
    #[arg(long, env = "KVASIR_MOCK_BLOCK_SIZE", default_value_t = 16)]
    pub block_size: usize,
    /// KV blocks of each engine
    #[arg(long, env = "KVASIR_MOCK_KV_BLOCKS", default_value_t = 4096)]
    pub kv_blocks: usize,
    /// Microseconds of prefill for one uncached prompt token
    #[arg(long, env = "KVASIR_MOCK_PREFILL_US_PER_TOKEN", default_value_t = 20.0)]
    pub prefill_us_per_token: f64,
    /// Prompts prefilled at the same time
    #[arg(long, env = "KVASIR_MOCK_PREFILL_SLOTS", default_value_t = 1)]
    pub prefill_slots: usize,
    /// Microseconds from one output token to the next
    #[arg(long, env = "KVASIR_MOCK_DECODE_US_PER_TOKEN", default_value_t = 5000.0)]
    pub decode_us_per_token: f64,
    /// Sequences that run at the same time
    #[arg(long, env = "KVASIR_MOCK_MAX_RUNNING", default_value_t = 256)]
    pub max_running: usize,
    /// Waiting sequences above which a request is answered 503
    #[arg(long, env = "KVASIR_MOCK_MAX_QUEUED")]
    pub max_queued: Option<usize>,
    /// Output tokens of an answer when the request sets no lower limit
    #[arg(long, env = "KVASIR_MOCK_ANSWER_TOKENS", default_value_t = 16)]
    pub answer_tokens: usize,
    /// Repeat the prompt's last text in place of words
    #[arg(long, env = "KVASIR_MOCK_ECHO")]
    pub echo: bool,
    /// Directory with tokenizer.json and tokenizer_config.json; without it a built-in tokenizer is used
    #[arg(long, env = "KVASIR_MOCK_TOKENIZER", value_name = "DIR")]
    pub tokenizer: Option<PathBuf>,
    /// KV events: encoding of vLLM up to 0.23 (array), from 0.24 (map), or none
    #[arg(long, env = "KVASIR_MOCK_EVENTS", value_enum, default_value_t = Events::Map)]
    pub events: Events,
    /// Batches of KV events kept for replay; 0 is without replay
    #[arg(long, env = "KVASIR_MOCK_REPLAY_BUFFER", default_value_t = 10_000)]
    pub replay_buffer: usize,
    /// Leave `prompt_tokens_details` out of the usage
    #[arg(long, env = "KVASIR_MOCK_HIDE_CACHED_TOKENS")]
    pub hide_cached_tokens: bool,
    /// Multiply all simulated times by this
    #[arg(long, env = "KVASIR_MOCK_TIME_SCALE", default_value_t = 1.0)]
    pub time_scale: f64,
    /// Prefill and decode apart
    #[command(flatten)]
    pub parts: PartArgs,
    /// Seed of the answers and of random hash roots
    #[arg(long, env = "KVASIR_MOCK_SEED", default_value_t = 0)]
    pub seed: u64,
}

/// `--kind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
}

/// `--events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Events {
    /// Tagged arrays, random hash root
    Array,
    /// Maps, the same hash root everywhere
    Map,
    /// No events
    Off,
}

impl MockEngineArgs {
    /// The settings of the first engine.
    fn config(&self) -> anyhow::Result<EngineConfig> {
        let tokenizer: Arc<dyn Tokenize> = match &self.tokenizer {
            Some(directory) => Arc::new(HuggingFace::load(directory)?),
            None => Arc::new(WordTokenizer),
        };
        let encoding = match self.events {
            Events::Array => Some(Encoding::Array),
            Events::Map => Some(Encoding::Map),
            Events::Off => None,
        };
        let kind = match self.kind {
            Kind::Vllm => EngineKind::Vllm,
            Kind::Sglang => EngineKind::Sglang,
        };
        let events = encoding.map(|encoding| EventsConfig {
            encoding,
            hash: if kind == EngineKind::Sglang { HashForm::I64 } else { HashForm::U64 },
            replay: self.replay_buffer > 0,
            replay_buffer: self.replay_buffer,
            endpoint: EventsEndpoint::Bind(SocketAddr::new(self.listen_base.ip(), 0)),
            ..EventsConfig::default()
        });
        Ok(EngineConfig {
            listen: self.listen_base,
            kind,
            model: self.model.clone(),
            adapters: self.adapters.clone(),
            block_size: self.block_size,
            kv_blocks: self.kv_blocks,
            prefill_us_per_token: self.prefill_us_per_token,
            prefill_slots: self.prefill_slots,
            decode_us_per_token: self.decode_us_per_token,
            max_running: self.max_running,
            max_queued: self.max_queued,
            time_scale: self.time_scale,
            tokenizer,
            events,
            hash_root: if encoding == Some(Encoding::Array) { HashRoot::Random } else { HashRoot::Fixed },
            answer: if self.echo { Answer::Echo } else { Answer::Words },
            answer_tokens: self.answer_tokens,
            report_cached_tokens: !self.hide_cached_tokens,
            record_requests: 0,
            seed: self.seed,
            ..EngineConfig::default()
        })
    }
}

/// Runs the engines until `stop`, after printing where they are.
pub async fn run(args: MockEngineArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let fleet = Fleet::start_parts(args.engines, &args.config()?, args.parts.parts()).await?;
    std::io::stdout().write_all(table(fleet.engines()).as_bytes())?;
    stop.cancelled().await;
    fleet.stop().await;
    Ok(())
}

/// One line for each engine.
fn table(engines: &[Engine]) -> String {
    let rows: Vec<[String; 5]> = engines
        .iter()
        .enumerate()
        .map(|(index, engine)| {
            let events = engine.kv_events();
            let replay = events.as_ref().and_then(|events| events.replay.clone());
            [
                index.to_string(),
                engine.url(),
                events.map_or_else(|| "-".to_owned(), |events| events.events),
                replay.unwrap_or_else(|| "-".to_owned()),
                engine
                    .config()
                    .part
                    .as_ref()
                    .map_or_else(|| "both".to_owned(), |part| format!("{:?}", part.role).to_lowercase()),
            ]
        })
        .collect();
    let heads = ["engine", "url", "kv events", "replay", "role"].map(str::to_owned);
    let width = |column: usize| {
        std::iter::once(&heads).chain(&rows).map(|row| row[column].len()).max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2), width(3), width(4)];
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(&rows) {
        let line: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Face {
        #[command(flatten)]
        args: MockEngineArgs,
    }

    #[tokio::test]
    async fn flags_become_engines_and_a_table() {
        let face = Face::try_parse_from([
            "mock-engine",
            "--engines=2",
            "--listen-base=127.0.0.1:0",
            "--events=array",
            "--adapters=a,b",
            "--block-size=32",
        ])
        .expect("parses");
        let config = face.args.config().expect("resolves");
        assert_eq!(config.adapters, ["a", "b"]);
        assert_eq!(config.hash_root, HashRoot::Random, "as the engines with this encoding");
        let fleet = Fleet::start(face.args.engines, &config).await.expect("starts");
        let table = table(fleet.engines());
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("engine  url"));
        for (line, url) in lines[1..].iter().zip(fleet.urls()) {
            assert!(line.contains(&url) && line.contains("tcp://127.0.0.1:"), "{line}");
        }
        fleet.stop().await;
    }

    #[test]
    fn without_events_there_is_no_replay() {
        let face = Face::try_parse_from(["mock-engine", "--events=off"]).expect("parses");
        assert!(face.args.config().expect("resolves").events.is_none());
    }
}
