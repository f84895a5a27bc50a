//! What a probe or a load run is told to do.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{ProbeError, in_range};
use crate::text::DEFAULT_TOKENS_PER_WORD;
use crate::workload::Workload;

/// Most requests in flight at once. Above it the tester's own sockets and memory would be what is measured.
pub(crate) const MAX_CONCURRENCY: usize = 10_000;

/// The face of the server that is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// `/v1/chat/completions`.
    #[default]
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// Where requests go and what every one of them carries.
#[derive(Clone, Debug)]
pub struct Target {
    /// `http://host:port`, with or without `/v1`.
    pub base_url: String,
    /// Model name for the body.
    pub model: String,
    /// Chat or completions.
    pub api: Api,
    /// Ask for a stream. Without one there is no time to the first token.
    pub stream: bool,
    /// `max_tokens` of every request.
    pub max_tokens: u32,
    /// For one whole request, connecting included.
    pub timeout: Duration,
    /// Extra request headers.
    pub headers: Vec<(String, String)>,
    /// Fields merged into every body; they win over the ones written here, but cannot replace the prompt.
    pub extra_body: Map<String, Value>,
    /// Base URLs of engines whose `/metrics` tell who served.
    pub engines: Vec<String>,
}

/// How requests are started.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LoadMode {
    /// A fixed number of clients, each of which waits for its answer. For multi-turn conversations a client is a
    /// user.
    Closed {
        /// Clients at once.
        concurrency: usize,
    },
    /// Requests at random times that do not wait for answers; latency counts from the time a request was due.
    Open {
        /// Mean requests a second. Conversations begin at this rate over their number of turns.
        rate_per_s: f64,
        /// Seed of the gaps between them (exponential, so arrivals are Poisson).
        seed: u64,
    },
}

/// When a load run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// After so many requests.
    Requests(u64),
    /// No request starts after this long; those in flight finish.
    Duration(Duration),
}

/// A load run.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// Where to, and what every request carries.
    pub target: Target,
    /// What is sent.
    pub workload: Workload,
    /// How requests are started.
    pub mode: LoadMode,
    /// When it ends.
    pub amount: Amount,
    /// Seed of all texts and choices.
    pub seed: u64,
    /// Put at the very start of every shared prefix (and of every prompt without one), so that a new salt finds
    /// cold caches. Empty for none.
    pub salt: String,
    /// Tokens that a word makes; turns token lengths into word counts.
    pub tokens_per_word: f64,
    /// Text to take prompts from, instead of the word list.
    pub prompt_text: Option<String>,
    /// Open loop: requests (of conversations: conversations) in flight at most. Those above it wait, and their
    /// wait counts as latency.
    pub max_in_flight: usize,
}

/// A probe run.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Where to, and what every request carries.
    pub target: Target,
    /// Requests sent one after the other, at least 2.
    pub requests: u32,
    /// Requests sent at once after them; 0 leaves this part out.
    pub concurrent: u32,
    /// Tokens that all requests share.
    pub prefix_tokens: u32,
    /// Tokens of each request's own end.
    pub tail_tokens: u32,
    /// Seed of the text.
    pub seed: u64,
    /// Put at the very start of the prefix.
    pub salt: String,
    /// Tokens that a word makes.
    pub tokens_per_word: f64,
    /// Text to take the prefix from, instead of the word list.
    pub prompt_text: Option<String>,
    /// How long an engine's counters may lag behind its answers.
    pub metrics_wait: Duration,
}

impl Target {
    /// A streaming chat target with a 10 minute time-out and 64 output tokens.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api: Api::Chat,
            stream: true,
            max_tokens: 64,
            timeout: Duration::from_secs(600),
            headers: Vec::new(),
            extra_body: Map::new(),
            engines: Vec::new(),
        }
    }

    /// The extra headers, checked.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, ProbeError> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            let bad = || ProbeError::BadHeader(name.clone());
            let header_name = HeaderName::try_from(name.trim()).map_err(|_| bad())?;
            let header_value = HeaderValue::try_from(value.trim()).map_err(|_| bad())?;
            map.append(header_name, header_value);
        }
        Ok(map)
    }
}

impl LoadConfig {
    /// A closed loop of 8 clients and 200 requests; every field can be changed.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>, workload: Workload) -> Self {
        Self {
            target: Target::new(base_url, model),
            workload,
            mode: LoadMode::Closed { concurrency: 8 },
            amount: Amount::Requests(200),
            seed: 1,
            salt: String::new(),
            tokens_per_word: DEFAULT_TOKENS_PER_WORD,
            prompt_text: None,
            max_in_flight: 4096,
        }
    }

    /// Checks the numbers that nothing else checks.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        match self.mode {
            LoadMode::Closed { concurrency } => {
                in_range("the concurrency", "1 to 10000", (1..=MAX_CONCURRENCY).contains(&concurrency))?;
            }
            LoadMode::Open { rate_per_s, .. } => {
                in_range(
                    "the rate",
                    "above 0 and at most 100000 a second",
                    rate_per_s > 0.0 && rate_per_s <= 1e5,
                )?;
            }
        }
        in_range(
            "the requests in flight",
            "1 to 10000",
            (1..=MAX_CONCURRENCY).contains(&self.max_in_flight),
        )?;
        in_range("the number of requests", "at least 1", self.amount != Amount::Requests(0))?;
        in_range("the duration", "above 0", self.amount != Amount::Duration(Duration::ZERO))
    }
}

impl ProbeConfig {
    /// The shape of public end-to-end checks of KV routing: 4 requests that share 19,400 tokens.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>, salt: impl Into<String>) -> Self {
        let mut target = Target::new(base_url, model);
        target.max_tokens = 8;
        Self {
            target,
            requests: 4,
            concurrent: 0,
            prefix_tokens: 19_400,
            tail_tokens: 32,
            seed: 1,
            salt: salt.into(),
            tokens_per_word: DEFAULT_TOKENS_PER_WORD,
            prompt_text: None,
            metrics_wait: Duration::from_secs(2),
        }
    }

    /// Checks the numbers that nothing else checks.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        in_range("the number of requests", "2 to 1000", (2..=1000).contains(&self.requests))?;
        in_range("the number of concurrent requests", "0 to 1000", self.concurrent <= 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_range_are_named() {
        let good = LoadConfig::new("http://a", "m", Workload::Short);
        assert_eq!(good.check(), Ok(()));
        for (name, config) in [
            ("concurrency", LoadConfig { mode: LoadMode::Closed { concurrency: 0 }, ..good.clone() }),
            ("rate", LoadConfig { mode: LoadMode::Open { rate_per_s: 0.0, seed: 1 }, ..good.clone() }),
            ("rate", LoadConfig { mode: LoadMode::Open { rate_per_s: f64::NAN, seed: 1 }, ..good.clone() }),
            ("requests", LoadConfig { amount: Amount::Requests(0), ..good.clone() }),
            ("flight", LoadConfig { max_in_flight: 0, ..good.clone() }),
            ("duration", LoadConfig { amount: Amount::Duration(Duration::ZERO), ..good.clone() }),
        ] {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        let one = ProbeConfig { requests: 1, ..ProbeConfig::new("http://a", "m", "s") };
        assert!(one.check().is_err());
    }

    #[test]
    fn a_bad_header_is_named_without_its_value() {
        let mut target = Target::new("http://a", "m");
        target.headers = vec![("authorization".to_owned(), "secret\n".to_owned() + "x")];
        let error = target.header_map().unwrap_err().to_string();
        assert!(error.contains("authorization") && !error.contains("secret"), "{error}");
    }
}
