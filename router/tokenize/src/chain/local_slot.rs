//! One local tokenizer of the chain: loaded once in the background, failures remembered and tried again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Clock, TokenizeError};
use tokio::sync::watch;

use super::status::LoadState;
use crate::local::{LoadError, LocalTokenizer, SharedTokenizer};
use crate::memory::MemoryUse;
use crate::pool::Pool;

/// Loads a tokenizer. Called on a thread of its own.
pub type Loader = Arc<dyn Fn(&Path, Option<&Path>) -> Result<LocalTokenizer, LoadError> + Send + Sync>;

/// Pause after the first failed load; a mounted volume may come late.
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// Longest pause between loads.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Loads from disk.
pub fn disk_loader() -> Loader {
    Arc::new(LocalTokenizer::load)
}

/// The slot.
pub struct LocalSlot {
    directory: PathBuf,
    chat_template: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    loader: Loader,
    phase: watch::Sender<Phase>,
}

#[derive(Clone)]
enum Phase {
    Loading,
    Ready(SharedTokenizer),
    Failed { reason: Arc<str>, attempts: u32, retry_at: Instant },
}

impl LocalSlot {
    /// A slot whose first load has begun.
    pub fn start(
        directory: PathBuf,
        chat_template: Option<PathBuf>,
        clock: Arc<dyn Clock>,
        loader: Loader,
    ) -> Arc<Self> {
        let phase = watch::Sender::new(Phase::Loading);
        let slot = Arc::new(Self { directory, chat_template, clock, loader, phase });
        slot.load(1);
        slot
    }

    /// The tokenizer, or why it is not there. A load that failed is begun again when its pause is over; this call
    /// does not wait for it.
    pub fn get(self: &Arc<Self>) -> Result<SharedTokenizer, TokenizeError> {
        let retry = match &*self.phase.borrow() {
            Phase::Ready(tokenizer) => return Ok(Arc::clone(tokenizer)),
            Phase::Loading => return Err(TokenizeError::Tokenizer("still loading".to_owned())),
            Phase::Failed { reason, attempts, retry_at } => {
                if self.clock.now() < *retry_at {
                    return Err(TokenizeError::Tokenizer(reason.to_string()));
                }
                attempts + 1
            }
        };
        // Of several callers only one finds it still failed.
        let began = self.phase.send_if_modified(|phase| {
            let failed = matches!(phase, Phase::Failed { .. });
            if failed {
                *phase = Phase::Loading;
            }
            failed
        });
        if began {
            self.load(retry);
        }
        Err(TokenizeError::Tokenizer("still loading".to_owned()))
    }

    fn load(self: &Arc<Self>, attempt: u32) {
        let slot = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("tokenizer-load".to_owned()).spawn(move || {
            let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                (slot.loader)(&slot.directory, slot.chat_template.as_deref())
            }));
            match loaded {
                Ok(Ok(tokenizer)) => slot.succeed(tokenizer),
                Ok(Err(error)) => slot.fail(error.to_string(), attempt),
                Err(_) => slot.fail("the tokenizer library panicked while loading".to_owned(), attempt),
            }
        });
        if let Err(error) = spawned {
            self.fail(format!("no thread to load on: {error}"), attempt);
        }
    }

    fn succeed(&self, tokenizer: LocalTokenizer) {
        let tokenizer = Arc::new(tokenizer);
        let shared = Arc::clone(&tokenizer);
        Pool::process().run_on_each_thread(move || shared.warm_up());
        tracing::info!(
            directory = %self.directory.display(),
            encoder = tokenizer.encoder_name(),
            fallback = tokenizer.fallback_reason(),
            vocabulary = tokenizer.vocab_size(),
            "tokenizer loaded"
        );
        self.phase.send_replace(Phase::Ready(tokenizer));
    }

    fn fail(&self, reason: String, attempts: u32) {
        let pause = FIRST_RETRY.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST_RETRY);
        tracing::warn!(
            directory = %self.directory.display(),
            %reason,
            ?pause,
            "tokenizer not loaded; tried again after the pause"
        );
        let retry_at = self.clock.now() + pause;
        self.phase.send_replace(Phase::Failed { reason: reason.into(), attempts, retry_at });
    }

    /// Whether a load is under way.
    pub fn is_loading(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Loading)
    }

    /// Waits for the load that is under way.
    pub async fn loaded(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives as long as the slot.
        drop(phase.wait_for(|phase| !matches!(phase, Phase::Loading)).await);
    }

    /// State and memory.
    pub fn status(&self) -> (LoadState, MemoryUse) {
        match &*self.phase.borrow() {
            Phase::Loading => (LoadState::Loading, MemoryUse::default()),
            Phase::Ready(tokenizer) => {
                let state = LoadState::Ready {
                    encoder: tokenizer.encoder_name(),
                    fallback: tokenizer.fallback_reason().map(str::to_owned),
                };
                (state, tokenizer.memory_use())
            }
            Phase::Failed { reason, attempts, .. } => {
                let state = LoadState::Failed { reason: reason.to_string(), attempts: *attempts };
                (state, MemoryUse::default())
            }
        }
    }
}

impl fmt::Debug for LocalSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSlot").field("directory", &self.directory).finish_non_exhaustive()
    }
}
