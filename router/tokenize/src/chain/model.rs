//! One model's sources, asked in order.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::{
    Clock, EndpointDirectory, EngineKind, InferenceRequest, ModelName, RequestKind, SideClient, TokenSource,
    TokenizeError,
};
use parking_lot::Mutex;

use tokio::sync::Notify;

use super::ModelTokens;
use super::budget::RemoteTime;
use super::link::{Backend, Link, LinkError, REFUSED};
use super::local_slot::LocalSlot;
use super::proof::Verdict;
use super::status::ModelStatus;
use super::verify::Verification;
use crate::local::EncodedPrompt;
use crate::pool::Pool;
use crate::remote::{Remote, RemoteSource};

/// How long after a tokenizer was loaded anew an engine's counts may still be about the one before: answers that run at
/// that moment end later. The probes tell at once whether the new one is right.
const SETTLING: Duration = Duration::from_secs(60);

/// How long what was seen of a model's engines holds: a list of all of them is not made for every request.
const ENGINES_LOOK: Duration = Duration::from_secs(1);

/// What was seen of a model's engines.
#[derive(Debug, Default)]
struct Engines {
    looked_at: Option<Instant>,
    sglang: bool,
}

/// The chain of one model.
pub struct ModelChain {
    name: ModelName,
    tokens: ModelTokens,
    pub(super) links: Vec<Link>,
    pub(super) client: Arc<dyn SideClient>,
    pub(super) directory: Arc<dyn EndpointDirectory>,
    clock: Arc<dyn Clock>,
    engines: Mutex<Engines>,
    pub(super) verification: Verification,
    /// Whether the background task of the probes has begun.
    pub(super) watched: AtomicBool,
    /// Which engine is asked first in the next look.
    pub(super) turn: AtomicUsize,
    /// Wakes the background task: there is something to compare.
    pub(super) wake: Arc<Notify>,
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
            engines: Mutex::default(),
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
    /// refuses a request may be alone with that, so the next one is asked; two that refuse are believed. One that has no
    /// call for it is passed over.
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
                Backend::Local(slot) => {
                    link.encode_local(slot, request, pool, self.serves_sglang(request.kind)).await
                }
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
                Err(LinkError::Passed) => {
                    link.count(&TokenizeError::NotTokenizable);
                    // What another one said tells more.
                    if last == TokenizeError::NoBackend {
                        last = TokenizeError::NotTokenizable;
                    }
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

    /// Whether SGLang may serve such a request. Its prompts are encoded like everybody's, its chats are not always.
    fn serves_sglang(&self, kind: RequestKind) -> bool {
        if kind == RequestKind::Completions {
            return false;
        }
        let now = self.now();
        let mut engines = self.engines.lock();
        if engines.looked_at.is_none_or(|at| now >= at + ENGINES_LOOK) {
            let endpoints = self.directory.endpoints_of(&self.name);
            engines.sglang = endpoints.iter().any(|endpoint| endpoint.engine == EngineKind::Sglang);
            engines.looked_at = Some(now);
        }
        engines.sglang
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
        link.record.forget();
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
        if link.settles_at.lock().is_some_and(|settles_at| self.now() < settles_at) {
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
