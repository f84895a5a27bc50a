//! From what was typed to what is meant; every problem is reported at once.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{Address, EngineKind, ModelName};
use kvasir_settings::duration::{format_duration, parse_duration};
use kvasir_settings::redis::{RedisSettings, resolve_sidecar};
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_settings::{Problem, Problems, parse_event_source};

use crate::cli::AgentArgs;

mod engines_file;
mod layout;

pub use layout::Layout;

#[cfg(test)]
mod tests;

/// Engines of one agent.
const MOST_ENGINES: usize = 1024;

/// kthena's port, and ours.
const PORT: u16 = 9000;

/// Shortest and longest lease. With less, a slow Redis ends it; with more, a dead agent is believed for too long.
const LEASES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Shortest and longest interval of anything that is done again and again.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// One engine, with all its data-parallel ranks.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// What it is.
    pub kind: EngineKind,
    /// Where it serves HTTP.
    pub address: Address,
    /// Path of its metrics, with the leading slash.
    pub metrics_path: String,
    /// Its pod.
    pub pod: Arc<str>,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The model's name as it was given.
    pub model: Option<ModelName>,
    /// Where its ranks publish; empty asks the engine.
    pub kv_events: Vec<KvEventsSettings>,
}

impl EngineConfig {
    /// The pod as kthena writes it: `NAME.NAMESPACE`.
    pub fn pod_name(&self) -> String {
        format!("{}.{}", self.pod, self.namespace)
    }
}

/// Everything the agent needs to know.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where to listen.
    pub listen: (String, u16),
    /// The engines; at least one.
    pub engines: Vec<EngineConfig>,
    /// Where to publish.
    pub redis: RedisSettings,
    /// What to publish.
    pub layout: Layout,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How often resume states are saved.
    pub resume_interval: Duration,
    /// How often engines' metrics are read.
    pub scrape_interval: Duration,
    /// What the user should know and nothing else tells.
    pub warnings: Vec<String>,
    /// Level of the log.
    pub log_level: String,
}

impl AgentConfig {
    /// Works out what was typed. Reads the engines file and the files of the Redis flags.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn of(args: &AgentArgs) -> Result<Self, Problems> {
        let mut reader = Reader::default();
        let redis = reader.redis(args);
        let engines = match said(&args.engines) {
            Some(file) => reader.engines_file(args, file),
            None => reader.engine_of_flags(args).into_iter().collect(),
        };
        reader.check_apart(&engines);
        let config = Self {
            listen: (args.host.trim().to_owned(), reader.port(&args.port)),
            engines,
            layout: reader.layout(args),
            lease: reader.duration("--lease", &args.lease, LEASES),
            resume_interval: reader.duration("--resume-interval", &args.resume_interval, INTERVALS),
            scrape_interval: reader.duration("--scrape-interval", &args.scrape_interval, INTERVALS),
            redis: match redis {
                Some(redis) => redis,
                None => return Err(Problems(reader.problems)),
            },
            warnings: reader.warnings,
            log_level: args.log_level.clone(),
        };
        if reader.problems.is_empty() { Ok(config) } else { Err(Problems(reader.problems)) }
    }
}

/// A value that was given; charts set variables to the empty text for "not set".
fn said(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// A problem of a flag.
fn of_flag(flag: &str, message: impl Into<String>, fix: impl Into<String>) -> Problem {
    Problem {
        file: String::new(),
        line: None,
        column: None,
        path: flag.to_owned(),
        message: message.into(),
        fix: fix.into(),
    }
}

/// Which engine a word means. kthena's names are taken, and the case does not matter, as there.
fn engine_kind(text: &str) -> Option<EngineKind> {
    match text.trim().to_ascii_lowercase().as_str() {
        "vllm" | "vllmdisaggregated" => Some(EngineKind::Vllm),
        "sglang" => Some(EngineKind::Sglang),
        _ => None,
    }
}

/// `NAME.NAMESPACE`. A name may have dots (a host does), a namespace has none.
fn split_pod(text: &str) -> Result<(&str, &str), String> {
    match text.rsplit_once('.') {
        Some((name, namespace)) if is_name(name) && is_name(namespace) => Ok((name, namespace)),
        _ => Err(format!("{text:?} is no NAME.NAMESPACE")),
    }
}

/// What owners may be called: these characters have a meaning in keys.
fn is_name(text: &str) -> bool {
    let apart = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'#' | b'@' | b'{' | b'}');
    !text.is_empty() && text.len() <= 253 && text.bytes().all(apart)
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Reader {
    fn error(&mut self, flag: &str, message: impl Into<String>, fix: impl Into<String>) {
        self.problems.push(of_flag(flag, message, fix));
    }

    fn redis(&mut self, args: &AgentArgs) -> Option<RedisSettings> {
        match resolve_sidecar(&args.redis) {
            Ok(sidecar) => {
                self.warnings.extend(sidecar.warnings);
                if sidecar.redis.is_none() {
                    self.error("--redis", "an agent without a Redis has nothing to do", "name one");
                }
                sidecar.redis
            }
            Err(problems) => {
                self.problems.extend(problems.0);
                None
            }
        }
    }

    /// A fleet that names its Redis as kthena does has kthena's readers until all of its routers are replaced.
    fn layout(&mut self, args: &AgentArgs) -> Layout {
        let by_url = args.redis.redis.as_ref().is_some_and(|url| !url.reveal().trim().is_empty());
        match said(&args.layout) {
            None if by_url => Layout::Native,
            None => Layout::Both,
            Some(text) => Layout::parse(text).unwrap_or_else(|| {
                self.error(
                    "--layout",
                    format!("there is no layout {text:?}"),
                    "write native, kthena or both",
                );
                Layout::Native
            }),
        }
    }

    fn port(&mut self, text: &str) -> u16 {
        match text.trim().parse::<u16>() {
            Ok(port) => port,
            // Kubernetes sets it so in every pod beside a Service that is called kvasir-agent.
            Err(_) if text.contains("://") => {
                self.warnings.push(format!(
                    "KVASIR_AGENT_PORT {text:?} is no port; Kubernetes sets it so for a Service called kvasir-agent; {PORT} is used"
                ));
                PORT
            }
            Err(_) => {
                self.error("--port", format!("{text:?} is no port"), "write a number from 0 to 65535");
                PORT
            }
        }
    }

    fn duration(&mut self, flag: &str, text: &str, (least, most): (Duration, Duration)) -> Duration {
        match parse_duration(text.trim()) {
            Ok(duration) if (least..=most).contains(&duration) => duration,
            read => {
                let message = read.err().unwrap_or_else(|| format!("{text} is out of range"));
                let range = format!("from {} to {}", format_duration(least), format_duration(most));
                self.error(flag, message, format!("write a duration {range}"));
                least
            }
        }
    }

    fn engine_of_flags(&mut self, args: &AgentArgs) -> Option<EngineConfig> {
        let kind = engine_kind(&args.engine);
        if kind.is_none() {
            self.error(
                "--engine",
                format!("{:?} is not supported", args.engine),
                "write vllm, sglang or vllmdisaggregated",
            );
        }
        let address = Address::parse(args.engine_base_url.trim());
        if let Err(error) = &address {
            self.error("--engine-base-url", error.clone(), "");
        }
        let metrics_path = self.metrics_path(&args.engine_metrics_path);
        let pod = self.pod(args, address.as_ref().ok());
        let kv_events = self.kv_events(args, kind.unwrap_or_default());
        let (namespace, pod) = pod?;
        Some(EngineConfig {
            kind: kind?,
            address: address.ok()?,
            metrics_path,
            pod,
            namespace,
            model: said(&args.model).map(ModelName::from),
            kv_events,
        })
    }

    fn metrics_path(&mut self, text: &str) -> String {
        let text = text.trim();
        if !text.starts_with('/') || text.contains(['?', '#', ' ']) {
            self.error("--engine-metrics-path", format!("{text:?} is no path"), "write it as in /metrics");
        }
        text.to_owned()
    }

    /// Namespace and pod.
    fn pod(&mut self, args: &AgentArgs, address: Option<&Address>) -> Option<(Arc<str>, Arc<str>)> {
        let split = match (said(&args.pod), said(&args.pod_name), said(&args.pod_namespace)) {
            (Some(pod), ..) => split_pod(pod).map(|(pod, namespace)| (namespace.to_owned(), pod.to_owned())),
            (None, Some(pod), Some(namespace)) if is_name(pod) && is_name(namespace) => {
                Ok((namespace.to_owned(), pod.to_owned()))
            }
            (None, Some(pod), Some(namespace)) => {
                Err(format!("POD_NAME {pod:?} and POD_NAMESPACE {namespace:?} are no names"))
            }
            (None, Some(_), None) => Err("POD_NAME is set, but POD_NAMESPACE is not".to_owned()),
            (None, None, _) => match address?.host.as_ref() {
                // Nobody else knows an engine by the name that it has for itself.
                "localhost" | "127.0.0.1" | "::1" => Err("is missing".to_owned()),
                host => Ok(("default".to_owned(), host.to_owned())),
            },
        };
        match split {
            Ok((namespace, pod)) => Some((namespace.into(), pod.into())),
            Err(message) => {
                let fix = "write NAME.NAMESPACE; without Kubernetes, HOST.default with the host of the URL that \
                           routers have for the engine";
                self.error("--pod", message, fix);
                None
            }
        }
    }

    /// Where events come from, as far as it was said.
    fn kv_events(&mut self, args: &AgentArgs, kind: EngineKind) -> Vec<KvEventsSettings> {
        let given: Vec<&str> =
            args.kv_events.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        let mut sources = Vec::new();
        for text in &given {
            match parse_event_source(text) {
                Ok(source) => sources.push(source),
                Err(message) => self.error("--kv-events", message, ""),
            }
        }
        let (endpoint, topic, variable) = match kind {
            EngineKind::Vllm => (&args.vllm_zmq_endpoint, &args.vllm_zmq_topic_filter, "VLLM_ZMQ_ENDPOINT"),
            EngineKind::Sglang => {
                (&args.sglang_zmq_endpoint, &args.sglang_zmq_topic_filter, "SGLANG_ZMQ_ENDPOINT")
            }
        };
        if given.is_empty()
            && let Some(endpoint) = said(endpoint)
        {
            match parse_event_source(endpoint) {
                Ok(source) => {
                    let topic = said(topic).unwrap_or_default().to_owned();
                    sources.push(KvEventsSettings { topic, ..source });
                }
                Err(message) => self.error(variable, message, ""),
            }
        }
        if let Some(message) = twice(&sources) {
            self.error("--kv-events", message, "give each rank once, with rank=N");
        }
        sources
    }

    fn engines_file(&mut self, args: &AgentArgs, file: &str) -> Vec<EngineConfig> {
        let one = [
            ("--pod", said(&args.pod).is_some()),
            ("--model", said(&args.model).is_some()),
            ("--kv-events", !args.kv_events.iter().all(|text| text.trim().is_empty())),
        ];
        for (flag, is_set) in one {
            if is_set {
                let fix = "write it into the file, or leave --engines out";
                self.error(flag, "is of one engine, and --engines names a file of many", fix);
            }
        }
        let metrics_path = self.metrics_path(&args.engine_metrics_path);
        match engines_file::read(file, &metrics_path) {
            Ok(engines) => engines,
            Err(problems) => {
                self.problems.extend(problems);
                Vec::new()
            }
        }
    }

    /// Two engines must not be one owner, and kthena's layout has one line for a pod.
    fn check_apart(&mut self, engines: &[EngineConfig]) {
        if engines.len() > MOST_ENGINES {
            self.error("--engines", format!("names more than {MOST_ENGINES} engines"), "run several agents");
            return;
        }
        let mut seen = std::collections::BTreeSet::new();
        for engine in engines {
            if !seen.insert((engine.pod_name(), engine.address.port)) {
                let message =
                    format!("{} with port {} is named twice", engine.pod_name(), engine.address.port);
                self.error("--engines", message, "name each engine once");
            }
        }
    }
}

/// What is wrong when two sources are of one rank.
fn twice(sources: &[KvEventsSettings]) -> Option<String> {
    let mut ranks: Vec<u32> = sources.iter().map(|source| source.rank).collect();
    ranks.sort_unstable();
    let double = ranks.windows(2).find(|pair| pair.first() == pair.get(1))?;
    Some(format!("rank {} has two sources", double.first().copied().unwrap_or_default()))
}
