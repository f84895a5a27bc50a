//! The flags of `kvasir router`, with their environment twins, as they were typed.

use clap::Args;

use crate::defaults;

pub(crate) mod admission;
mod klog;
mod kthena;
pub(crate) mod kubernetes;
mod pairs;
pub(crate) mod redis;

pub use admission::AdmissionArgs;
pub use klog::KlogFlags;
pub use kthena::KthenaFlags;
pub use kubernetes::KubernetesArgs;
pub use redis::RedisArgs;

pub(crate) use pairs::{KvEventsFlag, ModelFlag, TokenizerFlag};

/// What `kvasir router` was told. The texts are worked out by [`crate::resolve()`], so that every problem of every
/// flag and file is reported at once.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct RouterArgs {
    /// Address of the inference API, with /healthz and /readyz. The host `[::]` is every interface, of IPv4 as of IPv6;
    /// 0.0.0.0 is those of IPv4 alone
    #[arg(long, env = "KVASIR_LISTEN", value_name = "HOST:PORT", default_value = defaults::LISTEN, help_heading = LISTENERS)]
    pub listen: String,
    /// Address of /metrics; nothing else is served there
    #[arg(long, env = "KVASIR_METRICS_LISTEN", value_name = "HOST:PORT", default_value = defaults::METRICS_LISTEN, help_heading = LISTENERS)]
    pub metrics_listen: String,
    /// Address of explain and debug; it shows how requests are placed, so keep it on loopback
    #[arg(long, env = "KVASIR_ADMIN_LISTEN", value_name = "HOST:PORT", default_value = defaults::ADMIN_LISTEN, help_heading = LISTENERS)]
    pub admin_listen: String,

    /// A model and the URLs of its engines; may be repeated. The variable separates models with `;`
    #[arg(long = "model", env = "KVASIR_MODEL", value_name = "NAME=URL[,URL...]", value_delimiter = ';', help_heading = MODELS)]
    pub model: Vec<String>,
    /// A YAML file of models, for what --model cannot say: engines, adapters, aliases (docs/models-file.md)
    #[arg(long, env = "KVASIR_MODELS", value_name = "FILE", help_heading = MODELS)]
    pub models: Option<String>,
    /// A model's directory with tokenizer.json and chat template; prompts are then tokenized in this process; may be
    /// repeated. Wins over the models file. With Kubernetes objects NAME is a served model, there already or not. The
    /// variable separates entries with `;`
    #[arg(long, env = "KVASIR_TOKENIZER", value_name = "NAME=DIR", value_delimiter = ';', help_heading = MODELS)]
    pub tokenizer: Vec<String>,
    /// Where the engine at URL publishes its KV-cache events; may be repeated, once for each data-parallel rank.
    /// `bind`, or `*` for HOST, listens there for the engine to connect. Without it, the engine is asked. The
    /// variable separates entries with `;`
    #[arg(long, env = "KVASIR_KV_EVENTS", value_name = "URL=tcp://HOST:PORT[,replay=tcp://HOST:PORT][,topic=PREFIX][,rank=N][,bind]", value_delimiter = ';', help_heading = MODELS)]
    pub kv_events: Vec<String>,

    /// A router document as kthena's ConfigMap holds it: plugins, weights, arguments. Read once [default: none; with
    /// Kubernetes objects /etc/config/routerConfiguration.yaml, where that file exists]
    #[arg(long, env = "KVASIR_CONFIG", value_name = "FILE", help_heading = ROUTING)]
    pub config: Option<String>,
    /// How endpoints are chosen when there is no router document: kv-aware, random or least-request [default: kv-aware]
    #[arg(long, env = "KVASIR_ROUTING", value_name = "PROFILE", help_heading = ROUTING)]
    pub routing: Option<String>,
    /// Most endpoints tried for one request, 1 to 100; a request moves on before its first byte only
    #[arg(long, env = "KVASIR_MAX_ATTEMPTS", value_name = "COUNT", default_value = defaults::MAX_ATTEMPTS, help_heading = ROUTING)]
    pub max_attempts: String,
    /// Retries as a share of requests, 0 to 1
    #[arg(long, env = "KVASIR_RETRY_BUDGET", value_name = "SHARE", default_value = defaults::RETRY_BUDGET, help_heading = ROUTING)]
    pub retry_budget: String,
    /// What becomes of a request where prefill and decode are apart and no prefill endpoint computes its prompt: off (it
    /// fails) or aggregated (a decode endpoint gets all of it)
    #[arg(long, env = "KVASIR_PD_FALLBACK", value_name = "MODE", default_value = defaults::PD_FALLBACK, help_heading = ROUTING)]
    pub pd_fallback: String,
    /// Longest wait for token ids from engines and tokenizer services together, 1ms to 10s; then the next source is asked
    /// or the request goes on without. Wins over the document's tokenization.deadline [default: 50ms, or a tenth of the
    /// estimated prefill time where that is more, at most 250ms]
    #[arg(long, env = "KVASIR_TOKENIZE_DEADLINE", value_name = "DURATION", help_heading = ROUTING)]
    pub tokenize_deadline: Option<String>,
    /// How often an engine's metrics are read [default: 1s, or METRICS_SCRAPE_INTERVAL]
    #[arg(long, env = "KVASIR_SCRAPE_INTERVAL", value_name = "DURATION", help_heading = ROUTING)]
    pub scrape_interval: Option<String>,
    /// Decisions kept for explain, 0 to 1000000
    #[arg(long, env = "KVASIR_DECISION_RING", value_name = "COUNT", default_value = defaults::DECISION_RING, help_heading = ROUTING)]
    pub decision_ring: String,

    /// The queue before placement.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Redis.
    #[command(flatten)]
    pub redis: RedisArgs,
    /// How replicas tell each other what they have in flight, so that they do not all choose the same idle endpoint:
    /// native (our own vectors in Redis), kthena (the counters of kthena's routers), off, or auto: native, and kthena
    /// where its routers are found
    #[arg(long, env = "KVASIR_SHARED_LOAD", value_name = "MODE", default_value = defaults::SHARED_LOAD, help_heading = REPLICAS)]
    pub shared_load: String,
    /// How long what Redis told is believed in full while Redis is out of reach, at least 2s; after ten times as long it
    /// is forgotten
    #[arg(long, env = "KVASIR_MIRROR_GRACE", value_name = "DURATION", default_value = defaults::MIRROR_GRACE, help_heading = REPLICAS)]
    pub mirror_grace: String,
    /// This replica's name among the others: letters, digits, `-`, `.` and `_`; unlike every other's [default: the host's
    /// name and a random part]
    #[arg(long, env = "KVASIR_REPLICA_NAME", value_name = "NAME", help_heading = REPLICAS)]
    pub replica_name: Option<String>,

    /// Tell clients which endpoint answered, in x-kvasir-endpoint [default: false]
    #[arg(long, env = "KVASIR_ENDPOINT_HEADER", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADERS)]
    pub endpoint_header: Option<String>,
    /// Pass the client's Authorization, Cookie and x-api-key on to the engines [default: false]
    #[arg(long, env = "KVASIR_FORWARD_CREDENTIALS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADERS)]
    pub forward_credentials: Option<String>,

    /// Largest request body, in bytes or with a unit (32MiB, 64M)
    #[arg(long, env = "KVASIR_MAX_BODY_BYTES", value_name = "SIZE", default_value = defaults::MAX_BODY_BYTES, help_heading = LIMITS)]
    pub max_body_bytes: String,
    /// Sum of all request bodies held at once; above it reading pauses, then clients get 503 [default: a quarter of
    /// the memory limit]
    #[arg(long, env = "KVASIR_MAX_BUFFERED_BYTES", value_name = "SIZE", help_heading = LIMITS)]
    pub max_buffered_bytes: Option<String>,
    /// Longest wait for a connection to an engine
    #[arg(long, env = "KVASIR_CONNECT_TIMEOUT", value_name = "DURATION", default_value = defaults::CONNECT_TIMEOUT, help_heading = LIMITS)]
    pub connect_timeout: String,
    /// Longest wait for an engine's answer to begin, from the last byte of the request
    #[arg(long, env = "KVASIR_FIRST_BYTE_TIMEOUT", value_name = "DURATION", default_value = defaults::FIRST_BYTE_TIMEOUT, help_heading = LIMITS)]
    pub first_byte_timeout: String,
    /// Longest silence inside an engine's answer
    #[arg(long, env = "KVASIR_STREAM_IDLE_TIMEOUT", value_name = "DURATION", default_value = defaults::STREAM_IDLE_TIMEOUT, help_heading = LIMITS)]
    pub stream_idle_timeout: String,
    /// Longest wait for the header of a client's request
    #[arg(long, env = "KVASIR_HEADER_TIMEOUT", value_name = "DURATION", default_value = defaults::HEADER_TIMEOUT, help_heading = LIMITS)]
    pub header_timeout: String,
    /// Longest silence inside the body of a client's request
    #[arg(long, env = "KVASIR_BODY_TIMEOUT", value_name = "DURATION", default_value = defaults::BODY_TIMEOUT, help_heading = LIMITS)]
    pub body_timeout: String,
    /// Idle client connections are closed after this
    #[arg(long, env = "KVASIR_KEEPALIVE_TIMEOUT", value_name = "DURATION", default_value = defaults::KEEPALIVE_TIMEOUT, help_heading = LIMITS)]
    pub keepalive_timeout: String,
    /// Idle connections kept to each endpoint, 0 to 65536
    #[arg(long, env = "KVASIR_POOL_SIZE", value_name = "COUNT", default_value = defaults::POOL_SIZE, help_heading = LIMITS)]
    pub pool_size: String,

    /// Threads that serve requests, up to 1024; 0 is one for each core
    #[arg(long, env = "KVASIR_THREADS", value_name = "COUNT", default_value = defaults::THREADS, help_heading = PROCESS)]
    pub threads: String,
    /// Longest wait for requests in flight after SIGTERM [default: 5m, or DRAIN_TIMEOUT]
    #[arg(long, env = "KVASIR_DRAIN_TIMEOUT", value_name = "DURATION", help_heading = PROCESS)]
    pub drain_timeout: Option<String>,
    /// How long after SIGTERM new requests are still taken while /readyz already fails
    #[arg(long, env = "KVASIR_DRAIN_SETTLE", value_name = "DURATION", default_value = defaults::DRAIN_SETTLE, help_heading = PROCESS)]
    pub drain_settle: String,
    /// error, warn, info, debug or trace; or directives for single parts, as in info,kvasir_gateway=debug [default: info]
    #[arg(long, env = "KVASIR_LOG_LEVEL", value_name = "LEVEL", help_heading = PROCESS)]
    pub log_level: Option<String>,
    /// Write one line for each request [default: true, or ACCESS_LOG_ENABLED]
    #[arg(long, env = "KVASIR_ACCESS_LOG", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = PROCESS)]
    pub access_log: Option<String>,
    /// text or json [default: text, or ACCESS_LOG_FORMAT]
    #[arg(long, env = "KVASIR_ACCESS_LOG_FORMAT", value_name = "FORMAT", help_heading = PROCESS)]
    pub access_log_format: Option<String>,
    /// stdout, stderr, or the path of a file that is appended to [default: stdout, or ACCESS_LOG_OUTPUT]
    #[arg(long, env = "KVASIR_ACCESS_LOG_OUTPUT", value_name = "WHERE", help_heading = PROCESS)]
    pub access_log_output: Option<String>,

    /// The cluster.
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,

    /// Flags of kthena's manifests.
    #[command(flatten)]
    pub kthena: KthenaFlags,
    /// Flags of kthena's log.
    #[command(flatten)]
    pub klog: KlogFlags,
}

const LISTENERS: &str = "Listeners";
const MODELS: &str = "Models";
const ROUTING: &str = "Routing";
const REPLICAS: &str = "Replicas";
const HEADERS: &str = "Headers";
const LIMITS: &str = "Limits and time-outs";
const PROCESS: &str = "Process and logs";

impl Default for RouterArgs {
    /// What an empty command line and an empty environment say.
    fn default() -> Self {
        Self {
            listen: defaults::LISTEN.to_owned(),
            metrics_listen: defaults::METRICS_LISTEN.to_owned(),
            admin_listen: defaults::ADMIN_LISTEN.to_owned(),
            model: Vec::new(),
            models: None,
            tokenizer: Vec::new(),
            kv_events: Vec::new(),
            config: None,
            routing: None,
            max_attempts: defaults::MAX_ATTEMPTS.to_owned(),
            retry_budget: defaults::RETRY_BUDGET.to_owned(),
            pd_fallback: defaults::PD_FALLBACK.to_owned(),
            tokenize_deadline: None,
            scrape_interval: None,
            decision_ring: defaults::DECISION_RING.to_owned(),
            admission: AdmissionArgs::default(),
            redis: RedisArgs::default(),
            shared_load: defaults::SHARED_LOAD.to_owned(),
            mirror_grace: defaults::MIRROR_GRACE.to_owned(),
            replica_name: None,
            endpoint_header: None,
            forward_credentials: None,
            max_body_bytes: defaults::MAX_BODY_BYTES.to_owned(),
            max_buffered_bytes: None,
            connect_timeout: defaults::CONNECT_TIMEOUT.to_owned(),
            first_byte_timeout: defaults::FIRST_BYTE_TIMEOUT.to_owned(),
            stream_idle_timeout: defaults::STREAM_IDLE_TIMEOUT.to_owned(),
            header_timeout: defaults::HEADER_TIMEOUT.to_owned(),
            body_timeout: defaults::BODY_TIMEOUT.to_owned(),
            keepalive_timeout: defaults::KEEPALIVE_TIMEOUT.to_owned(),
            pool_size: defaults::POOL_SIZE.to_owned(),
            threads: defaults::THREADS.to_owned(),
            drain_timeout: None,
            drain_settle: defaults::DRAIN_SETTLE.to_owned(),
            log_level: None,
            access_log: None,
            access_log_format: None,
            access_log_output: None,
            kubernetes: KubernetesArgs::default(),
            kthena: KthenaFlags::default(),
            klog: KlogFlags::default(),
        }
    }
}

/// The router's command with nothing but its flags, for `--help` and the reference page.
pub fn command() -> clap::Command {
    RouterArgs::augment_args(clap::Command::new("router"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parse(words: &[&str]) -> Result<RouterArgs, clap::Error> {
        let command = command().mut_args(|arg| arg.env(None::<&str>));
        let matches = command.try_get_matches_from(std::iter::once("router").chain(words.iter().copied()))?;
        RouterArgs::from_arg_matches(&matches)
    }

    #[test]
    fn an_empty_command_line_is_the_default() {
        assert_eq!(parse(&[]).ok(), Some(RouterArgs::default()));
    }

    #[test]
    fn every_flag_has_a_twin_in_the_environment_and_a_help_text() {
        for arg in command().get_arguments() {
            let long = arg.get_long().unwrap_or_else(|| panic!("{} has no long form", arg.get_id()));
            let twin = format!("KVASIR_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(twin.as_str()), "--{long}");
            assert!(arg.get_help().is_some_and(|help| help.to_string().len() > 10), "--{long}");
        }
        command().debug_assert();
    }

    #[test]
    fn repeated_flags_and_go_booleans_are_taken() {
        let args = parse(&[
            "--model",
            "a=http://a:1,http://b:1",
            "--model=b=http://c:1",
            "--endpoint-header",
            "--forward-credentials=false",
            "--port",
            "80",
            "--enable-webhook=false",
            "--enable-gateway-api",
        ]);
        let args = args.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(args.model, ["a=http://a:1,http://b:1", "b=http://c:1"]);
        assert_eq!(args.endpoint_header.as_deref(), Some("true"));
        assert_eq!(args.forward_credentials.as_deref(), Some("false"));
        assert_eq!(args.kthena.enable_webhook.as_deref(), Some("false"));
        assert_eq!(args.kthena.enable_gateway_api.as_deref(), Some("true"));
        assert!(parse(&["--no-such-flag"]).is_err());
    }

    #[test]
    fn the_verbosity_is_taken_in_every_spelling() {
        for words in [&["-v", "4"][..], &["-v=4"], &["-v4"], &["--v=4"], &["--v", "4"]] {
            let args = parse(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            assert_eq!(args.klog.verbosity.as_deref(), Some("4"), "{words:?}");
        }
        let args = parse(&["--logtostderr", "--log_dir=/a", "--alsologtostderr=false"]);
        let klog = args.map(|args| (args.klog.logtostderr, args.klog.log_dir, args.klog.alsologtostderr));
        assert_eq!(klog.ok(), Some((Some("true".into()), Some("/a".into()), Some("false".into()))));
    }
}
