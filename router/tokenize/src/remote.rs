//! Ids from someone else: a tokenizer service, or a pod of the model.

pub(crate) mod answer;
mod blame;
pub(crate) mod body;
mod breaker;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::{
    Clock, Endpoint, EndpointDirectory, EngineKind, InferenceRequest, ModelName, SideClient, SideError,
    SideRequest, SideResponse, TokenSource, TokenizeError, UpstreamTls,
};

use crate::pool::{Lane, Pool, PoolError};

use blame::{Admitted, Breakers};
use breaker::Verdict;

/// Tokens that an engine prefills in a second, for the budget: a large model on one accelerator.
const PREFILL_TOKENS_PER_SECOND: u64 = 10_000;

/// Bytes of a body for each token, for the budget.
const BYTES_PER_TOKEN: u64 = 4;

/// Bounds of the budget: below the first a call over the network rarely comes back, beyond the second a client
/// notices.
const BUDGET: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// How long a source that says 503 or 429 is not asked again, unless it names a time: it loads its tokenizer, or has
/// too much to do.
const LOADING_PAUSE: Duration = Duration::from_secs(5);

/// Longest pause that a source may ask for with `Retry-After`.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(60);

/// Bytes of an answer beyond those that grow with the prompt.
const ANSWER_BASE_BYTES: usize = 64 << 10;

/// Bytes of an answer for each byte of the request: an id takes up to eight with its comma, and a byte of text is at
/// most one id.
const ANSWER_BYTES_PER_BYTE: usize = 8;

/// A call that has less than this part of its time left when it is built is not made: it could not succeed, and the
/// source would be blamed for it.
const LEAST_SHARE: u32 = 2;

/// Where the calls go.
#[derive(Clone)]
pub enum Remote {
    /// A tokenizer service's base URL.
    Service(String),
    /// The model's pods.
    Engine {
        /// Who they are.
        directory: Arc<dyn EndpointDirectory>,
        /// Port of `/tokenize` at vLLM pods, when it is not the inference port.
        vllm_port: Option<u16>,
        /// The same at SGLang pods.
        sglang_port: Option<u16>,
    },
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(url) => f.debug_tuple("Service").field(url).finish(),
            Self::Engine { vllm_port, sglang_port, .. } => f
                .debug_struct("Engine")
                .field("vllm_port", vllm_port)
                .field("sglang_port", sglang_port)
                .finish_non_exhaustive(),
        }
    }
}

/// Why a remote source gave no ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteError {
    /// It answered that the request cannot be tokenized. It may be alone with that: another one should be asked.
    Refused {
        /// Its status.
        status: u16,
    },
    /// It has no call for such a request, so it was not asked. Others may know the ids.
    Unasked,
    /// Anything else.
    Failed(TokenizeError),
}

impl From<RemoteError> for TokenizeError {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Refused { .. } => Self::Invalid("refused by the tokenizer"),
            RemoteError::Unasked => Self::NotTokenizable,
            RemoteError::Failed(error) => error,
        }
    }
}

impl From<TokenizeError> for RemoteError {
    fn from(error: TokenizeError) -> Self {
        Self::Failed(error)
    }
}

/// One remote source of one model.
pub struct RemoteSource {
    remote: Remote,
    client: Arc<dyn SideClient>,
    clock: Arc<dyn Clock>,
    breakers: Breakers,
    turn: AtomicUsize,
}

/// How long one remote call may take: a tenth of the estimated prefill time, within bounds.
pub fn budget(body_bytes: usize) -> Duration {
    let tokens = body_bytes as u64 / BYTES_PER_TOKEN;
    let prefill = Duration::from_millis(tokens * 1_000 / PREFILL_TOKENS_PER_SECOND);
    (prefill / 10).clamp(BUDGET.0, BUDGET.1)
}

impl RemoteSource {
    /// A source that has not been asked yet.
    pub fn new(remote: Remote, client: Arc<dyn SideClient>, clock: Arc<dyn Clock>) -> Self {
        let breakers = Breakers::new(&clock);
        Self { remote, client, clock, breakers, turn: AtomicUsize::new(0) }
    }

    /// Which source it is.
    pub fn source(&self) -> TokenSource {
        match self.remote {
            Remote::Service(_) => TokenSource::Service,
            Remote::Engine { .. } => TokenSource::Engine,
        }
    }

    /// Whether it would be asked now.
    pub fn is_open(&self) -> bool {
        self.breakers.allow()
    }

    /// The ids of a request's prompt, within `time`, the building of the call included.
    ///
    /// # Errors
    /// Why there are none. After a failure the source is left alone for a while, and says so at once. Time that was
    /// lost before the call is not its failure, and a long prompt that takes it too long counts for long ones only.
    pub async fn encode(
        &self,
        request: &InferenceRequest,
        pool: &Pool,
        time: Duration,
    ) -> Result<Vec<u32>, RemoteError> {
        if !body::speaks(request.kind) {
            return Err(RemoteError::Unasked);
        }
        let Some(attempt) = self.breakers.admit(Lane::of(request.body.len())) else {
            return Err(self.failed("not asked after earlier failures"));
        };
        let mut targets = self.targets(request).into_iter();
        let Some(first) = targets.next() else {
            attempt.unused();
            return Err(self.failed("no endpoint"));
        };
        let ends = self.clock.now() + time;
        let body = match build(first.dialect, request, pool, time).await {
            Ok(body) => body,
            Err(error) => {
                attempt.unused();
                return Err(error);
            }
        };
        if ends.saturating_duration_since(self.clock.now()) < time / LEAST_SHARE {
            attempt.unused();
            return Err(TokenizeError::Deadline.into());
        }
        let mut answer = self.call(&first, body.clone(), ends).await;
        if matches!(answer, Err(SideError::Connect(_)))
            && let Some(second) =
                targets.find(|other| other.url != first.url && other.dialect == first.dialect)
        {
            answer = self.call(&second, body, ends).await;
        }
        match answer {
            Ok(response) => self.read(&response, attempt, &request.model),
            Err(error) => {
                let (verdict, reason) = match error {
                    SideError::Connect(_) => (attempt.failed(), "connection failed"),
                    SideError::Timeout => (attempt.timed_out(), "timed out"),
                    SideError::TooLarge(_) => (attempt.failed(), "the answer is too large"),
                    SideError::Bad(_) => (attempt.failed(), "the address cannot be used"),
                };
                self.tell(verdict, &request.model, reason);
                Err(self.failed(reason))
            }
        }
    }

    async fn call(&self, target: &Target, body: Bytes, ends: Instant) -> Result<SideResponse, SideError> {
        let max_bytes = ANSWER_BASE_BYTES + body.len().saturating_mul(ANSWER_BYTES_PER_BYTE);
        self.client
            .call(SideRequest {
                method: http::Method::POST,
                url: target.url.clone(),
                tls: target.tls.clone(),
                body,
                timeout: ends.saturating_duration_since(self.clock.now()),
                max_bytes,
            })
            .await
    }

    fn read(
        &self,
        response: &SideResponse,
        attempt: Admitted<'_>,
        model: &ModelName,
    ) -> Result<Vec<u32>, RemoteError> {
        let status = response.status.as_u16();
        match status {
            200..=299 => match answer::ids(&response.body) {
                Ok(ids) => {
                    self.absolve(attempt, model);
                    Ok(ids)
                }
                Err(reason) => {
                    self.blame(attempt, model, reason);
                    Err(self.failed(reason))
                }
            },
            400 | 413 | 422 => {
                self.absolve(attempt, model);
                Err(RemoteError::Refused { status })
            }
            429 | 503 => {
                attempt.paused(asked_pause(&response.headers).unwrap_or(LOADING_PAUSE));
                Err(self.failed(if status == 503 { "loading" } else { "too busy" }))
            }
            _ => {
                let reason = format!("status {status}");
                self.blame(attempt, model, &reason);
                Err(self.failed(&reason))
            }
        }
    }

    /// Counts a failure.
    fn blame(&self, attempt: Admitted<'_>, model: &ModelName, reason: &str) {
        self.tell(attempt.failed(), model, reason);
    }

    /// Counts an answer, whatever it says.
    fn absolve(&self, attempt: Admitted<'_>, model: &ModelName) {
        self.tell(attempt.succeeded(), model, "");
    }

    /// Says once when the source has failed for some seconds and not just hiccupped, and once when it is back.
    fn tell(&self, verdict: Verdict, model: &ModelName, reason: &str) {
        let source = self.source().as_str();
        match verdict {
            Verdict::Unchanged => {}
            Verdict::Out => tracing::warn!(
                %model,
                source,
                reason,
                "a source of tokens keeps failing; it is tried again with growing pauses of up to a minute"
            ),
            Verdict::Back => tracing::info!(%model, source, "a source of tokens answers again"),
        }
    }

    /// Who may be asked, a different one first each time.
    fn targets(&self, request: &InferenceRequest) -> Vec<Target> {
        match &self.remote {
            Remote::Service(url) => {
                vec![Target {
                    url: format!("{}/tokenize", url.trim_end_matches('/')),
                    tls: None,
                    dialect: EngineKind::Vllm,
                }]
            }
            Remote::Engine { directory, vllm_port, sglang_port } => {
                let endpoints = directory.endpoints_of(&request.model);
                let first = self.turn.fetch_add(1, Ordering::Relaxed) % endpoints.len().max(1);
                let (before, after) = endpoints.split_at(first);
                let port = |endpoint: &Endpoint| match endpoint.engine {
                    EngineKind::Vllm => *vllm_port,
                    EngineKind::Sglang => *sglang_port,
                };
                after.iter().chain(before).map(|endpoint| Target::of(endpoint, port(endpoint))).collect()
            }
        }
    }

    fn failed(&self, reason: &str) -> RemoteError {
        let reason = reason.to_owned();
        RemoteError::Failed(TokenizeError::Remote { source_name: self.source().as_str(), reason })
    }
}

impl fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSource").field("source", &self.source()).finish_non_exhaustive()
    }
}

/// Builds a call's body. That reads the client's whole body: not a task for the event loop.
async fn build(
    dialect: EngineKind,
    request: &InferenceRequest,
    pool: &Pool,
    time: Duration,
) -> Result<Bytes, RemoteError> {
    let owned = request.clone();
    let built = pool.run_for(request.body.len(), move || body::build(dialect, &owned));
    let failed = match tokio::time::timeout(time, built).await {
        Ok(Ok(built)) => return built,
        Ok(Err(PoolError::Full)) => TokenizeError::QueueFull,
        Ok(Err(PoolError::Lost)) => TokenizeError::Tokenizer("the job was lost".to_owned()),
        Err(_) => TokenizeError::Deadline,
    };
    Err(failed.into())
}

/// The pause that `Retry-After` asks for, in seconds; a date is not understood.
fn asked_pause(headers: &http::HeaderMap) -> Option<Duration> {
    let seconds = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).clamp(Duration::from_secs(1), LONGEST_ASKED_PAUSE))
}

#[derive(Debug)]
struct Target {
    url: String,
    tls: Option<UpstreamTls>,
    dialect: EngineKind,
}

impl Target {
    fn of(endpoint: &Endpoint, port: Option<u16>) -> Self {
        let tls = endpoint.address.tls.clone();
        Self { url: tokenize_url(endpoint, port), tls, dialect: endpoint.engine }
    }
}

/// Where an endpoint's `/tokenize` is: on its inference port, unless another one is configured, which speaks plain HTTP.
pub(crate) fn tokenize_url(endpoint: &Endpoint, port: Option<u16>) -> String {
    let address = &endpoint.address;
    match port {
        None => format!("{}/tokenize", address.url()),
        Some(port) if address.host.contains(':') => format!("http://[{}]:{port}/tokenize", address.host),
        Some(port) => format!("http://{}:{port}/tokenize", address.host),
    }
}

#[cfg(test)]
mod tests;
