//! One model's sources, asked in order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kvasir_core::{
    Clock, EndpointDirectory, InferenceRequest, ModelName, SideClient, TokenSource, TokenizeError,
};
use parking_lot::Mutex;

use super::ModelTokens;
use super::local_slot::LocalSlot;
use super::proof::{Record, Verdict};
use super::status::{ModelStatus, SourceStatus};
use super::verify::Verification;
use crate::local::SharedTokenizer;
use crate::pool::{Lane, Pool, PoolError};
use crate::remote::{Remote, RemoteSource};

/// The chain of one model.
pub struct ModelChain {
    name: ModelName,
    tokens: ModelTokens,
    pub(super) links: Vec<Link>,
    pub(super) client: Arc<dyn SideClient>,
    pub(super) directory: Arc<dyn EndpointDirectory>,
    pub(super) verification: Verification,
    /// Whether the background task of the probes has begun.
    pub(super) watched: AtomicBool,
    /// Which engine is asked first in the next look.
    pub(super) turn: AtomicUsize,
}

#[derive(Debug)]
pub struct Link {
    pub(super) backend: Backend,
    pub(super) record: Record,
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
                Some(backend) if links.iter().all(|link| link.source() != *source) => links.push(Link {
                    backend,
                    record: Record::default(),
                    succeeded: AtomicU64::new(0),
                    failed: Mutex::default(),
                }),
                _ => tracing::debug!(model = %name, source = source.as_str(), "token source not used"),
            }
        }
        Self {
            name,
            tokens,
            links,
            client,
            directory,
            verification: Verification::default(),
            watched: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
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

    /// Asks the sources in order until one answers or the reason is the request's own.
    pub async fn encode(
        &self,
        request: &InferenceRequest,
        pool: &Pool,
    ) -> Result<(TokenSource, Vec<u32>), TokenizeError> {
        let mut last = TokenizeError::NoBackend;
        for link in self.links.iter().filter(|link| !link.record.is_demoted()) {
            match link.encode(request, pool).await {
                Ok(ids) => {
                    link.succeeded.fetch_add(1, Ordering::Relaxed);
                    return Ok((link.source(), ids));
                }
                Err(error) => {
                    *link.failed.lock().entry(error.label()).or_default() += 1;
                    if is_final(&error) {
                        return Err(error);
                    }
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Notes whether a source's count agreed with the engine's.
    pub fn observe(&self, source: TokenSource, agrees: bool) {
        let Some(link) = self.links.iter().find(|link| link.source() == source) else { return };
        if link.record.note(agrees) == Verdict::Demoted {
            self.warn_demoted(source);
        }
    }

    /// Says once that a source is not asked any more.
    pub(super) fn warn_demoted(&self, source: TokenSource) {
        tracing::warn!(
            model = %self.name,
            source = source.as_str(),
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

/// Encodes on a thread of the pool.
pub async fn encode_in_pool(
    pool: &Pool,
    tokenizer: SharedTokenizer,
    request: InferenceRequest,
) -> Result<Vec<u32>, TokenizeError> {
    let lane = Lane::of(request.body.len());
    match pool.run(lane, move || tokenizer.encode_request(&request)).await {
        Ok(result) => result,
        Err(PoolError::Full) => Err(TokenizeError::QueueFull),
        Err(PoolError::Lost) => Err(TokenizeError::Tokenizer("the job was lost".to_owned())),
    }
}

impl Link {
    pub(super) fn source(&self) -> TokenSource {
        match &self.backend {
            Backend::Local(_) => TokenSource::Local,
            Backend::Remote(remote) => remote.source(),
        }
    }

    async fn encode(&self, request: &InferenceRequest, pool: &Pool) -> Result<Vec<u32>, TokenizeError> {
        match &self.backend {
            Backend::Remote(remote) => remote.encode(request, pool).await,
            Backend::Local(slot) => encode_in_pool(pool, slot.get()?, request.clone()).await,
        }
    }

    fn status(&self) -> SourceStatus {
        let (load, memory) = match &self.backend {
            Backend::Local(slot) => {
                let (load, memory) = slot.status();
                (Some(load), memory)
            }
            Backend::Remote(_) => (None, Default::default()),
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
