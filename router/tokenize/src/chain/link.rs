//! One source of a model: how it is asked, and what became of it so far.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::{InferenceRequest, TokenSource, TokenizeError};
use parking_lot::Mutex;

use super::budget::LOCAL_BUDGET;
use super::local_slot::LocalSlot;
use super::proof::Record;
use super::second_chance::Suspicion;
use super::status::{LoadState, SourceStatus};
use crate::local::{EncodedPrompt, SharedTokenizer};
use crate::pool::{Pool, PoolError};
use crate::remote::{RemoteError, RemoteSource};
use crate::request::sglang_differs;

/// One source with what was learned about it.
#[derive(Debug)]
pub struct Link {
    pub(super) backend: Backend,
    pub(super) record: Record,
    pub(super) suspicion: Mutex<Suspicion>,
    /// Which of the slot's tokenizers the record is about.
    pub(super) generation: AtomicU64,
    /// Until when engines' counts are laid to the tokenizer before it.
    pub(super) settles_at: Mutex<Option<Instant>>,
    pub(super) succeeded: AtomicU64,
    failed: Mutex<BTreeMap<&'static str, u64>>,
}

/// Who gives the ids.
#[derive(Debug)]
pub enum Backend {
    Local(Arc<LocalSlot>),
    Remote(RemoteSource),
}

/// What a request gets that two remote sources refused, or the engine itself.
pub const REFUSED: TokenizeError = TokenizeError::Invalid("refused by the tokenizer");

/// Why a link gave no ids.
pub enum LinkError {
    /// A remote source refused the request; what to say when nobody else answers.
    Refused(TokenizeError),
    /// A remote source has no call for such a request.
    Passed,
    Failed(TokenizeError),
}

/// Encodes on a thread of the pool, as vLLM does; with `for_sglang` only what SGLang encodes alike.
pub async fn encode_in_pool(
    pool: &Pool,
    tokenizer: SharedTokenizer,
    request: InferenceRequest,
    for_sglang: bool,
) -> Result<EncodedPrompt, TokenizeError> {
    let body_bytes = request.body.len();
    let work = move || {
        if for_sglang && sglang_differs(request.kind, &request.body) {
            return Err(TokenizeError::Inexact("what SGLang renders in another way"));
        }
        tokenizer.encode_prompt(&request)
    };
    match pool.run_for(body_bytes, work).await {
        Ok(result) => result,
        Err(PoolError::Full) => Err(TokenizeError::QueueFull),
        Err(PoolError::Lost) => Err(TokenizeError::Tokenizer("the job was lost".to_owned())),
    }
}

impl Link {
    pub fn new(backend: Backend) -> Self {
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

    /// Which source it is.
    pub fn source(&self) -> TokenSource {
        match &self.backend {
            Backend::Local(_) => TokenSource::Local,
            Backend::Remote(remote) => remote.source(),
        }
    }

    /// Asks the tokenizer of this process.
    pub async fn encode_local(
        &self,
        slot: &Arc<LocalSlot>,
        request: &InferenceRequest,
        pool: &Pool,
        for_sglang: bool,
    ) -> Result<EncodedPrompt, LinkError> {
        let tokenizer = slot.get().map_err(LinkError::Failed)?;
        let encoded = encode_in_pool(pool, tokenizer, request.clone(), for_sglang);
        match tokio::time::timeout(LOCAL_BUDGET, encoded).await {
            Ok(encoded) => encoded.map_err(LinkError::Failed),
            Err(_) => Err(LinkError::Failed(TokenizeError::Deadline)),
        }
    }

    /// Asks a remote source within `time`; none when no time is left for it.
    pub async fn encode_remotely(
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
            Err(RemoteError::Unasked) => Err(LinkError::Passed),
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

    /// Counts a request it gave no ids for.
    pub fn count(&self, error: &TokenizeError) {
        *self.failed.lock().entry(error.label()).or_default() += 1;
    }

    /// Its state.
    pub fn status(&self) -> SourceStatus {
        let (load, memory, problem) = match &self.backend {
            Backend::Local(slot) => {
                let (load, memory) = slot.status();
                (Some(load), memory, slot.problem())
            }
            Backend::Remote(_) => Default::default(),
        };
        let open = match &self.backend {
            Backend::Local(_) => matches!(load, Some(LoadState::Ready { .. })),
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
