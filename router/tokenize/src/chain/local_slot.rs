//! One local tokenizer of the chain: loaded in the background, failures remembered and tried again, and loaded anew
//! when its files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::{Clock, TokenizeError};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::files::Fingerprint;
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

/// Pause between looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

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
    files: Mutex<Files>,
    /// Whether a look at the files is under way, with what may follow.
    looking: watch::Sender<bool>,
    /// Counts what was loaded.
    generation: AtomicU64,
}

/// What is known of the files.
struct Files {
    /// As they were when they were last read, whatever came of it.
    read: Fingerprint,
    look_at: Instant,
    /// Why the files that are there now did not load, while earlier ones are in use.
    problem: Option<String>,
}

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
        let look_at = clock.now() + LOOK_INTERVAL;
        let slot = Arc::new(Self {
            directory,
            chat_template,
            clock,
            loader,
            phase: watch::Sender::new(Phase::Loading),
            files: Mutex::new(Files { read: Fingerprint::default(), look_at, problem: None }),
            looking: watch::Sender::new(false),
            generation: AtomicU64::new(0),
        });
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
        let spawned = std::thread::Builder::new()
            .name("tokenizer-load".to_owned())
            .spawn(move || slot.load_here(attempt));
        if let Err(error) = spawned {
            self.fail(format!("no thread to load on: {error}"), attempt);
        }
    }

    fn load_here(&self, attempt: u32) {
        match self.read() {
            Ok(tokenizer) => self.succeed(tokenizer),
            Err(reason) => self.fail(reason, attempt),
        }
    }

    /// Reads the files. Their state is taken before: what changes meanwhile is then seen as a change.
    fn read(&self) -> Result<LocalTokenizer, String> {
        self.files.lock().read = Fingerprint::of(&self.directory, self.chat_template.as_deref());
        let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (self.loader)(&self.directory, self.chat_template.as_deref())
        }));
        match loaded {
            Ok(loaded) => loaded.map_err(|error| error.to_string()),
            Err(_) => Err("the tokenizer library panicked while loading".to_owned()),
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
        self.files.lock().problem = None;
        // Whoever finds the tokenizer finds its number, too.
        self.generation.fetch_add(1, Ordering::Release);
        self.phase.send_replace(Phase::Ready(tokenizer));
    }

    /// Begins a look at the files in the background when one is due.
    pub fn look_when_due(self: &Arc<Self>) {
        let now = self.clock.now();
        // The clock is read for every request, the lock is held for a comparison.
        if now >= self.files.lock().look_at {
            self.look();
        }
    }

    /// Begins a look at the files in the background, unless one is under way. What changed is loaded. What does not
    /// load takes nothing away: the tokenizer in use stays.
    pub fn look(self: &Arc<Self>) {
        let began = self.looking.send_if_modified(|looking| !std::mem::replace(looking, true));
        if !began {
            return;
        }
        self.files.lock().look_at = self.clock.now() + LOOK_INTERVAL;
        let slot = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("tokenizer-files".to_owned()).spawn(move || {
            slot.look_here();
            slot.looking.send_replace(false);
        });
        if spawned.is_err() {
            self.looking.send_replace(false);
        }
    }

    fn look_here(&self) {
        let now = Fingerprint::of(&self.directory, self.chat_template.as_deref());
        // A volume that is gone for a moment is no reason to load anything.
        if now.is_empty() || now == self.files.lock().read {
            return;
        }
        let failed = self.phase.send_if_modified(|phase| {
            let failed = matches!(phase, Phase::Failed { .. });
            if failed {
                *phase = Phase::Loading;
            }
            failed
        });
        if failed {
            return self.load_here(1);
        }
        if self.is_loading() {
            return;
        }
        match self.read() {
            Ok(tokenizer) => self.succeed(tokenizer),
            Err(reason) => {
                tracing::warn!(
                    directory = %self.directory.display(),
                    %reason,
                    "the tokenizer's files changed and do not load; the earlier ones stay in use"
                );
                self.files.lock().problem = Some(reason);
            }
        }
    }

    /// Waits for the look that is under way.
    pub async fn looked(&self) {
        let mut looking = self.looking.subscribe();
        // The sender lives as long as the slot.
        drop(looking.wait_for(|looking| !looking).await);
    }

    /// Another number after each load: what was learned about an earlier tokenizer says nothing about this one.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Why the files that are there now are not the ones in use.
    pub fn problem(&self) -> Option<String> {
        self.files.lock().problem.clone()
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
