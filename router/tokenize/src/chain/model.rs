//! One model's sources, asked in order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::{
    Clock, EndpointDirectory, InferenceRequest, ModelName, SideClient, TokenSource, TokenizeError,
};
use parking_lot::Mutex;

use tokio::sync::Notify;

use super::ModelTokens;
use super::budget::{LOCAL_BUDGET, RemoteTime};
use super::local_slot::LocalSlot;
use super::proof::{Record, Verdict};
use super::second_chance::Suspicion;
use super::status::{ModelStatus, SourceStatus};
use super::verify::Verification;
use crate::local::{EncodedPrompt, SharedTokenizer};
use crate::pool::{Lane, Pool, PoolError};
use crate::remote::{Remote, RemoteError, RemoteSource};

/// How long after a tokenizer was loaded anew an engine's counts may still be about the one before: answers that run at
/// that moment end later. The probes tell at once if the new one is wrong.
const SETTLING: Duration = Duration::from_secs(60);

/// The chain of one model.
pub struct ModelChain {
    name: ModelName,
    tokens: ModelTokens,
    pub(super) links: Vec<Link>,
    pub(super) client: Arc<dyn SideClient>,
    pub(super) directory: Arc<dyn EndpointDirectory>,
    clock: Arc<dyn Clock>,
    pub(super) verification: Verification,
    /// Whether the background task of the probes has begun.
    pub(super) watched: AtomicBool,
    /// Which engine is asked first in the next look.
    pub(super) turn: AtomicUsize,
    /// Wakes the background task: there is something to compare.
    pub(super) wake: Arc<Notify>,
}

#[derive(Debug)]
pub struct Link {
    pub(super) backend: Backend,
    pub(super) record: Record,
    pub(super) suspicion: Mutex<Suspicion>,
    /// Which of the slot's tokenizers the record is about.
    generation: AtomicU64,
    /// Until when contradictions are laid to the tokenizer before it.
    settles_at: Mutex<Option<Instant>>,
    succeeded: AtomicU64,
    failed: Mutex<BTreeMap<&'static str, u64>>,
}

#[derive(Debug)]
pub enum Backend {
    Local(Arc<LocalSlot>),
    Remote(RemoteSource),
}

impl ModelChain {
    /// Builds the links of the order; sources that are not configured are left out.
    pub fn new(
        name: ModelName,
        tokens: ModelTokens,
        slot: Option<Arc<LocalSlot>>,
        client: Arc<dyn SideClient>,
        directory: Arc<dyn EndpointDirectory>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let default = [if slot.is_some() { TokenSource::Local } else { TokenSource::Engine }];
        let order = if tokens.order.is_empty() { &default[..] } else { &tokens.order };
        let mut links: Vec<Link> = Vec::new();
        for source in order {
            let remote =
                |remote| Backend::Remote(RemoteSource::new(remote, Arc::clone(&client), Arc::clone(&clock)));
            let backend = match source {
                TokenSource::Local => slot.clone().map(Backend::Local),
                TokenSource::Service => tokens.service_url.clone().map(|url| remote(Remote::Service(url))),
                TokenSource::Engine => Some(remote(Remote::Engine {
                    directory: Arc::clone(&directory),
                    vllm_port: tokens.vllm_port,
                    sglang_port: tokens.sglang_port,
                })),
                // Ids that the request carries need no source.
                TokenSource::Given => None,
            };
            match backend {
                Some(backend) if links.iter().all(|link| link.source() != *source) => {
                    links.push(Link::new(backend));
                }
                _ => tracing::debug!(model = %name, source = source.as_str(), "token source not used"),
            }
        }
        Self {
            name,
            tokens,
            links,
            client,
            directory,
            clock,
            verification: Verification::default(),
            watched: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            wake: Arc::default(),
        }
    }

    /// The engines' name for it.
    pub fn name(&self) -> &ModelName {
        &self.name
    }

    /// Whether the background task of the probes has begun, or there is nothing to compare.
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// How it was configured.
    pub fn tokens(&self) -> &ModelTokens {
        &self.tokens
    }

    /// Asks the sources in order until one answers, the reason is the request's own, or time is up. A remote source that
    /// refuses a request may be alone with that, so the next one is asked; two that refuse are believed.
    pub async fn encode(
        &self,
        request: &InferenceRequest,
        pool: &Pool,
    ) -> Result<(TokenSource, EncodedPrompt), TokenizeError> {
        self.notice_loads();
        let mut remote_time = self.remote_time(request.body.len());
        let mut refused = false;
        let mut last = TokenizeError::NoBackend;
        for link in self.links.iter().filter(|link| !link.record.is_demoted()) {
            let asked = match &link.backend {
                Backend::Local(slot) => link.encode_local(slot, request, pool).await,
                Backend::Remote(remote) => {
                    let began = self.clock.now();
                    let asked = link.encode_remotely(remote, request, pool, remote_time.next()).await;
                    remote_time.spend(self.clock.now().saturating_duration_since(began));
                    asked
                }
            };
            match asked {
                Ok(prompt) => {
                    link.succeeded.fetch_add(1, Ordering::Relaxed);
                    return Ok((link.source(), prompt));
                }
                Err(LinkError::Refused(error)) => {
                    link.count(&error);
                    if std::mem::replace(&mut refused, true) {
                        return Err(REFUSED);
                    }
                    last = error;
                }
                Err(LinkError::Failed(error)) => {
                    link.count(&error);
                    if is_final(&error) {
                        return Err(error);
                    }
                    last = error;
                }
            }
        }
        Err(last)
    }

    fn remote_time(&self, body_bytes: usize) -> RemoteTime {
        let remote = |link: &&Link| matches!(link.backend, Backend::Remote(_)) && !link.record.is_demoted();
        let sources = self.links.iter().filter(remote).count();
        RemoteTime::new(self.tokens.deadline, body_bytes, u32::try_from(sources).unwrap_or(u32::MAX))
    }

    /// What was learned about a tokenizer whose files have changed is forgotten.
    pub(super) fn notice_loads(&self) {
        let Some((link, slot)) = self.local() else { return };
        slot.look_when_due();
        let now = slot.generation();
        let before = link.generation.swap(now, Ordering::AcqRel);
        // Nothing is known of another tokenizer before the first one.
        if before == now || before == 0 {
            return;
        }
        link.record.reset();
        self.verification.forget();
        *link.settles_at.lock() = Some(self.now() + SETTLING);
        self.wake.notify_one();
    }

    /// The time.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Notes whether a source's count agreed with the engine's.
    pub fn observe(&self, source: TokenSource, agrees: bool) {
        let Some(link) = self.links.iter().find(|link| link.source() == source) else { return };
        if !agrees && link.settles_at.lock().is_some_and(|settles_at| self.now() < settles_at) {
            return;
        }
        if link.record.note(agrees) == Verdict::Demoted {
            self.demoted(link);
        }
    }

    /// Says once that a source is not asked any more, and has it compared.
    pub(super) fn demoted(&self, link: &Link) {
        link.suspicion.lock().begin(self.now());
        self.wake.notify_one();
        tracing::warn!(
            model = %self.name,
            source = link.source().as_str(),
            "the engine counts other prompt tokens than this source: it is not asked any more. Is it the tokenizer and the chat template of the model that is served?"
        );
    }

    /// The state of every source.
    pub fn status(&self) -> ModelStatus {
        ModelStatus {
            model: self.name.clone(),
            sources: self.links.iter().map(Link::status).collect(),
            probes: self.verification.status(),
        }
    }
}

impl fmt::Debug for ModelChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelChain")
            .field("name", &self.name)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

/// What a request gets that two remote sources refused, or the engine itself.
const REFUSED: TokenizeError = TokenizeError::Invalid("refused by the tokenizer");

/// Why a link gave no ids.
enum LinkError {
    /// A remote source refused the request; what to say when nobody else answers.
    Refused(TokenizeError),
    Failed(TokenizeError),
}

/// Whether no other source could do better: the request is at fault, or there is no time to ask.
fn is_final(error: &TokenizeError) -> bool {
    match error {
        TokenizeError::NotTokenizable
        | TokenizeError::Invalid(_)
        | TokenizeError::QueueFull
        | TokenizeError::Deadline => true,
        TokenizeError::Inexact(_)
        | TokenizeError::NoBackend
        | TokenizeError::Template(_)
        | TokenizeError::Tokenizer(_)
        | TokenizeError::Remote { .. } => false,
    }
}

/// Encodes on a thread of the pool.
pub async fn encode_in_pool(
    pool: &Pool,
    tokenizer: SharedTokenizer,
    request: InferenceRequest,
) -> Result<EncodedPrompt, TokenizeError> {
    let lane = Lane::of(request.body.len());
    match pool.run(lane, move || tokenizer.encode_prompt(&request)).await {
        Ok(result) => result,
        Err(PoolError::Full) => Err(TokenizeError::QueueFull),
        Err(PoolError::Lost) => Err(TokenizeError::Tokenizer("the job was lost".to_owned())),
    }
}

impl Link {
    fn new(backend: Backend) -> Self {
        let generation = match &backend {
            Backend::Local(slot) => slot.generation(),
            Backend::Remote(_) => 0,
        };
        Self {
            backend,
            record: Record::default(),
            suspicion: Mutex::default(),
            generation: AtomicU64::new(generation),
            settles_at: Mutex::default(),
            succeeded: AtomicU64::new(0),
            failed: Mutex::default(),
        }
    }

    pub(super) fn source(&self) -> TokenSource {
        match &self.backend {
            Backend::Local(_) => TokenSource::Local,
            Backend::Remote(remote) => remote.source(),
        }
    }

    async fn encode_local(
        &self,
        slot: &Arc<LocalSlot>,
        request: &InferenceRequest,
        pool: &Pool,
    ) -> Result<EncodedPrompt, LinkError> {
        let tokenizer = slot.get().map_err(LinkError::Failed)?;
        let encoded = encode_in_pool(pool, tokenizer, request.clone());
        match tokio::time::timeout(LOCAL_BUDGET, encoded).await {
            Ok(encoded) => encoded.map_err(LinkError::Failed),
            Err(_) => Err(LinkError::Failed(TokenizeError::Deadline)),
        }
    }

    async fn encode_remotely(
        &self,
        remote: &RemoteSource,
        request: &InferenceRequest,
        pool: &Pool,
        time: Option<Duration>,
    ) -> Result<EncodedPrompt, LinkError> {
        // Not final: a local tokenizer that follows has its own time.
        let late = || TokenizeError::Remote {
            source_name: self.source().as_str(),
            reason: "not asked: earlier sources took all the time there is".to_owned(),
        };
        let time = time.ok_or_else(|| LinkError::Failed(late()))?;
        match remote.encode(request, pool, time).await {
            Ok(ids) => Ok(EncodedPrompt { ids, whole: true }),
            Err(RemoteError::Failed(TokenizeError::Deadline)) => Err(LinkError::Failed(late())),
            Err(RemoteError::Failed(error)) => Err(LinkError::Failed(error)),
            // The engine is the one who will refuse it for good; a service may only know less.
            Err(RemoteError::Refused { .. }) if self.source() == TokenSource::Engine => {
                Err(LinkError::Refused(REFUSED))
            }
            Err(RemoteError::Refused { status }) => Err(LinkError::Refused(TokenizeError::Remote {
                source_name: self.source().as_str(),
                reason: format!("the request was refused with status {status}"),
            })),
        }
    }

    fn count(&self, error: &TokenizeError) {
        *self.failed.lock().entry(error.label()).or_default() += 1;
    }

    fn status(&self) -> SourceStatus {
        let (load, memory, problem) = match &self.backend {
            Backend::Local(slot) => {
                let (load, memory) = slot.status();
                (Some(load), memory, slot.problem())
            }
            Backend::Remote(_) => Default::default(),
        };
        let open = match &self.backend {
            Backend::Local(_) => matches!(load, Some(super::LoadState::Ready { .. })),
            Backend::Remote(remote) => remote.is_open(),
        };
        let (agreements, contradictions) = self.record.counts();
        SourceStatus {
            source: self.source(),
            proof: self.record.proof(),
            demoted: self.record.is_demoted(),
            open,
            load,
            problem,
            succeeded: self.succeeded.load(Ordering::Relaxed),
            failed: self.failed.lock().clone(),
            agreements,
            contradictions,
            memory_bytes: memory.bytes,
            memory_hits: memory.hits,
            memory_misses: memory.misses,
        }
    }
}
