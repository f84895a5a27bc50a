//! One start of one engine: its cache, its queue, its books. A restart makes a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::adapters::Adapters;
use crate::answer::Vocabulary;
use crate::backlog::{Backlog, Ledger};
use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::event::Batch;
use crate::hash::{Hash, Hasher, Scope};
use crate::metrics::Metrics;
use crate::publisher::Outlet;
use crate::slots::Slots;

/// Everything that is lost when an engine dies.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) hasher: Hasher,
    pub(crate) state: Mutex<State>,
    /// Places for prefill.
    pub(crate) slots: Arc<Slots>,
    /// Places for running sequences (vLLM's `max_num_seqs`).
    pub(crate) running: Arc<Semaphore>,
    /// Wakes sequences that wait for memory.
    pub(crate) freed: Notify,
    pub(crate) metrics: Metrics,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// Seconds since 1970.
    pub(crate) started: u64,
    asleep: AtomicBool,
    outlet: Option<Outlet>,
    next_id: AtomicU64,
    /// Makes ids of two starts differ.
    id_prefix: u32,
}

/// What changes together.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cache: Cache,
    pub(crate) ledger: Ledger,
}

impl Core {
    /// An empty engine. `chance` decides random hash roots and id prefixes.
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        vocabulary: Arc<Vocabulary>,
        outlet: Option<Outlet>,
        chance: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            hasher: Hasher::new(config.hash_root, config.block_size, chance),
            state: Mutex::new(State {
                cache: Cache::new(config.kv_blocks, config.block_size, config.reuses_empty_blocks_first()),
                ledger: Ledger::default(),
            }),
            slots: Slots::new(config.prefill_slots),
            running: Arc::new(Semaphore::new(config.max_running.min(Semaphore::MAX_PERMITS))),
            freed: Notify::new(),
            metrics: Metrics::default(),
            adapters: Adapters::new(
                &config.adapters,
                config.adapter_places,
                config.adapter_load.mul_f64(config.time_scale),
            ),
            vocabulary,
            started: unix_seconds() as u64,
            asleep: AtomicBool::new(false),
            outlet,
            next_id: AtomicU64::new(0),
            id_prefix: (chance >> 32) as u32,
            config,
        })
    }

    /// A number for a sequence or an answer, unique in this start.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// An answer's id, such as `chatcmpl-2f81c6a900000012`.
    pub(crate) fn answer_id(&self, prefix: &str) -> String {
        format!("{prefix}{:08x}{:08x}", self.id_prefix, self.next_id())
    }

    /// Sends what the cache did since the last batch. Called with the lock held, so that batches keep their order.
    pub(crate) fn publish(&self, state: &mut State) {
        let events = state.cache.take_events();
        if let (Some(outlet), false) = (&self.outlet, events.is_empty()) {
            outlet.send(Batch { at: unix_seconds(), events });
        }
    }

    /// Gives the cache up without an event, as vLLM does. False, and nothing done, while sequences run.
    pub(crate) fn sleep(&self) -> bool {
        let slept = self.state.lock().cache.give_up();
        if slept {
            self.asleep.store(true, Ordering::Release);
        }
        slept
    }

    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }

    /// The chained hashes of the full blocks of `tokens`.
    pub(crate) fn chain(&self, tokens: &[u32], scope: &Scope) -> Vec<Hash> {
        let mut chain = Vec::with_capacity(tokens.len() / self.config.block_size);
        self.hasher.extend(&mut chain, tokens, scope);
        chain
    }

    /// Leading tokens that a prompt of `tokens` would reuse if it were scheduled now.
    pub(crate) fn cached_prefix_tokens(&self, tokens: &[u32], scope: &Scope) -> usize {
        let chain = self.chain(tokens, scope);
        self.state.lock().cache.reusable(&chain, tokens.len()) * self.config.block_size
    }

    pub(crate) fn backlog(&self) -> Backlog {
        let state = self.state.lock();
        state.ledger.backlog(&state.cache, self.config.block_size)
    }

    /// Whether a new request must be turned away.
    pub(crate) fn is_full(&self) -> bool {
        self.config.max_queued.is_some_and(|most| self.state.lock().ledger.waiting() >= most)
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
