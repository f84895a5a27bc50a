//! The flags of `kvasir probe`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value};

use crate::config::Api;
use crate::text::DEFAULT_TOKENS_PER_WORD;
use crate::verdict::Verdict;

const PROBE_EXIT_CODES: &str = "\
Exit codes: 0 the verdict is the expected one, 1 it is the other one, 2 it cannot be told or something failed.";

const LOAD_EXIT_CODES: &str = "\
Exit codes: 0 every request ended well, 1 some failed, 2 all failed or the run could not start.";

/// Sends requests that share one long prefix, and says whether they were pinned to the engine that holds it.
/// With `load`, plays a workload and measures it.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = PROBE_EXIT_CODES)]
pub struct ProbeArgs {
    /// What to do instead of probing.
    #[command(subcommand)]
    pub(crate) mode: Option<ModeArgs>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// Requests sent one after the other.
    #[arg(long, short = 'n', default_value_t = 4, env = "KVASIR_PROBE_REQUESTS")]
    pub(crate) requests: u32,
    /// Requests sent at once after those; 0 for none.
    #[arg(long, default_value_t = 0, env = "KVASIR_PROBE_CONCURRENT")]
    pub(crate) concurrent: u32,
    /// Tokens that all requests share.
    #[arg(long, default_value_t = 19_400, env = "KVASIR_PROBE_PREFIX_TOKENS")]
    pub(crate) prefix_tokens: u32,
    /// Tokens of each request's own end.
    #[arg(long, default_value_t = 32, env = "KVASIR_PROBE_TAIL_TOKENS")]
    pub(crate) tail_tokens: u32,
    /// The verdict that makes the exit code 0.
    #[arg(long, value_enum, default_value_t = Expect::Pinned, env = "KVASIR_PROBE_EXPECT")]
    pub(crate) expect: Expect,
}

/// Other things than probing.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ModeArgs {
    /// Plays a workload and measures latency, throughput, cache hits and their spread over endpoints.
    #[command(after_help = LOAD_EXIT_CODES)]
    Load(Box<LoadArgs>),
}

/// Where requests go and what each carries.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// Base URL of the router or engine, with or without /v1.
    #[arg(long, default_value = "http://127.0.0.1:8080", env = "KVASIR_PROBE_URL")]
    pub(crate) url: String,
    /// Model; without it the first one of /v1/models.
    #[arg(long, short = 'm', env = "KVASIR_PROBE_MODEL")]
    pub(crate) model: Option<String>,
    /// Which endpoint is called.
    #[arg(long, value_enum, default_value_t = Api::Chat, env = "KVASIR_PROBE_API")]
    pub(crate) api: Api,
    /// Ask for whole answers instead of streams; there is no time to the first token then.
    #[arg(long, env = "KVASIR_PROBE_NO_STREAM")]
    pub(crate) no_stream: bool,
    /// Most tokens to generate for each request [default: 8 for a probe, 64 for load].
    #[arg(long, env = "KVASIR_PROBE_MAX_TOKENS")]
    pub(crate) max_tokens: Option<u32>,
    /// Time for one whole request, such as 90s, 500ms or 10m.
    #[arg(long, value_parser = parse_duration, default_value = "10m", env = "KVASIR_PROBE_TIMEOUT")]
    pub(crate) timeout: Duration,
    /// Extra header, `Name: value`; may be given several times.
    #[arg(
        long = "header", short = 'H', value_name = "HEADER", value_parser = parse_header, hide_env_values = true,
        env = "KVASIR_PROBE_HEADER"
    )]
    pub(crate) headers: Vec<(String, String)>,
    /// JSON object whose fields are merged into every body.
    #[arg(long, value_name = "JSON", value_parser = parse_object, default_value = "{}", env = "KVASIR_PROBE_EXTRA_BODY")]
    pub(crate) extra_body: JsonObject,
    /// Base URL of an engine, whose /metrics tell what it served; may be given several times.
    #[arg(long = "engine", value_name = "URL", value_delimiter = ',', env = "KVASIR_PROBE_ENGINES")]
    pub(crate) engines: Vec<String>,
    /// Write one JSON object instead of a table.
    #[arg(long, env = "KVASIR_PROBE_JSON")]
    pub(crate) json: bool,
}

/// What prompts are made of.
#[derive(Clone, Debug, Args)]
pub(crate) struct TextArgs {
    /// Text at the very start of every prefix [default: random, so that every run finds cold caches].
    #[arg(long, env = "KVASIR_PROBE_SALT")]
    pub(crate) salt: Option<String>,
    /// Seed of texts and choices.
    #[arg(long, default_value_t = 1, env = "KVASIR_PROBE_SEED")]
    pub(crate) seed: u64,
    /// Tokens that one word makes with the model's tokenizer.
    #[arg(long, default_value_t = DEFAULT_TOKENS_PER_WORD, env = "KVASIR_PROBE_TOKENS_PER_WORD")]
    pub(crate) tokens_per_word: f64,
    /// Take prompts from this text file.
    #[arg(long, value_name = "FILE", env = "KVASIR_PROBE_PROMPT_FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
}

/// Flags of `kvasir probe load`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    /// What is sent.
    #[arg(long, short = 'w', value_enum, default_value_t = WorkloadKind::SharedPrefix, env = "KVASIR_PROBE_LOAD_WORKLOAD")]
    pub(crate) workload: WorkloadKind,
    /// Clients of a closed loop [default: 8; the number of users for multi-turn].
    #[arg(long, short = 'c', conflicts_with = "rate", env = "KVASIR_PROBE_LOAD_CONCURRENCY")]
    pub(crate) concurrency: Option<usize>,
    /// Requests a second of an open loop, at random times that do not wait for answers.
    #[arg(long, short = 'r', env = "KVASIR_PROBE_LOAD_RATE")]
    pub(crate) rate: Option<f64>,
    /// Open loop: requests in flight at most; those above it wait, and their wait counts.
    #[arg(long, default_value_t = 4096, env = "KVASIR_PROBE_LOAD_MAX_IN_FLIGHT")]
    pub(crate) max_in_flight: usize,
    /// Requests in all [default: 200; users x turns for multi-turn].
    #[arg(long, short = 'n', conflicts_with = "duration", env = "KVASIR_PROBE_LOAD_REQUESTS")]
    pub(crate) requests: Option<u64>,
    /// Time to start requests in, such as 30s or 5m, instead of a number of requests.
    #[arg(long, short = 'd', value_parser = parse_duration, env = "KVASIR_PROBE_LOAD_DURATION")]
    pub(crate) duration: Option<Duration>,
    /// shared-prefix: groups, each with a prefix of its own.
    #[arg(long, default_value_t = 8, env = "KVASIR_PROBE_LOAD_GROUPS")]
    pub(crate) groups: u32,
    /// shared-prefix: tokens that a group shares.
    #[arg(long, default_value_t = 4000, env = "KVASIR_PROBE_LOAD_PREFIX_TOKENS")]
    pub(crate) prefix_tokens: u32,
    /// shared-prefix: tokens of each request's own end.
    #[arg(long, default_value_t = 64, env = "KVASIR_PROBE_LOAD_TAIL_TOKENS")]
    pub(crate) tail_tokens: u32,
    /// multi-turn: users.
    #[arg(long, default_value_t = 32, env = "KVASIR_PROBE_LOAD_USERS")]
    pub(crate) users: u32,
    /// multi-turn: turns of a conversation.
    #[arg(long, default_value_t = 6, env = "KVASIR_PROBE_LOAD_TURNS")]
    pub(crate) turns: u32,
    /// multi-turn: different system prompts; 0 for none.
    #[arg(long, default_value_t = 4, env = "KVASIR_PROBE_LOAD_SYSTEM_PROMPTS")]
    pub(crate) system_prompts: u32,
    /// multi-turn: tokens of a system prompt.
    #[arg(long, default_value_t = 1000, env = "KVASIR_PROBE_LOAD_SYSTEM_TOKENS")]
    pub(crate) system_tokens: u32,
    /// multi-turn: tokens that a user adds each turn.
    #[arg(long, default_value_t = 200, env = "KVASIR_PROBE_LOAD_TURN_TOKENS")]
    pub(crate) turn_tokens: u32,
    /// multi-turn: time between an answer and the next turn.
    #[arg(long, value_parser = parse_duration, default_value = "0s", env = "KVASIR_PROBE_LOAD_THINK_TIME")]
    pub(crate) think_time: Duration,
    /// unique: tokens of a prompt.
    #[arg(long, default_value_t = 1000, env = "KVASIR_PROBE_LOAD_PROMPT_TOKENS")]
    pub(crate) prompt_tokens: u32,
}

/// What a load run sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WorkloadKind {
    /// Groups of single requests that share a prefix.
    SharedPrefix,
    /// Conversations that grow by the real answers.
    MultiTurn,
    /// Single requests that share nothing.
    Unique,
    /// Tiny single requests that share nothing.
    Short,
}

/// The verdict that is success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Expect {
    /// One engine.
    Pinned,
    /// Not one engine.
    Scattered,
    /// Whatever, as long as no request fails.
    Any,
}

/// A JSON object given as a flag.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct JsonObject(pub(crate) Map<String, Value>);

/// How the process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// 0: as it should be.
    Good,
    /// 1: not as it should be.
    Bad,
    /// 2: it cannot be told, or something failed.
    Failed,
}

impl Expect {
    /// The exit code for a verdict; `failed` says that a request did.
    pub(crate) fn exit(self, verdict: Verdict, failed: bool) -> Exit {
        match (self, verdict) {
            _ if failed => Exit::Failed,
            (Self::Any, _) | (Self::Pinned, Verdict::Pinned) | (Self::Scattered, Verdict::Scattered) => {
                Exit::Good
            }
            (_, Verdict::Unknown) => Exit::Failed,
            _ => Exit::Bad,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Good => 0,
            Exit::Bad => 1,
            Exit::Failed => 2,
        })
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn parse_object(text: &str) -> Result<JsonObject, String> {
    serde_json::from_str(text).map(JsonObject).map_err(|error| format!("not a JSON object: {error}"))
}

/// `90`, `90s`, `500ms`, `10m`, `1.5h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be ms, s, m or h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "a time is written as 90s, 500ms or 10m".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_headers_and_objects() {
        for (text, millis) in
            [("90", 90_000), ("1.5s", 1500), ("500ms", 500), ("10m", 600_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "5 years", "-1s", "1e9", "..s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_header("a: b:c").unwrap(), ("a".to_owned(), "b:c".to_owned()));
        assert!(parse_header("a b").is_err());
        assert!(parse_object("{\"a\":1}").is_ok() && parse_object("[1]").is_err());
    }

    #[test]
    fn the_table_of_exit_codes() {
        use Verdict::{Pinned, Scattered, Unknown};
        for (expect, verdict, exit) in [
            (Expect::Pinned, Pinned, Exit::Good),
            (Expect::Pinned, Scattered, Exit::Bad),
            (Expect::Pinned, Unknown, Exit::Failed),
            (Expect::Scattered, Pinned, Exit::Bad),
            (Expect::Scattered, Scattered, Exit::Good),
            (Expect::Scattered, Unknown, Exit::Failed),
            (Expect::Any, Pinned, Exit::Good),
            (Expect::Any, Scattered, Exit::Good),
            (Expect::Any, Unknown, Exit::Good),
        ] {
            assert_eq!(expect.exit(verdict, false), exit, "{expect:?} {verdict}");
            assert_eq!(expect.exit(verdict, true), Exit::Failed);
        }
    }
}
