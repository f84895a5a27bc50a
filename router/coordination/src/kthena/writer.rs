//! Writes what one pod holds in kthena's layout, for the routers that read it.
//!
//! The writer knows what should be there, and which of it has not been written yet. Failures cost nothing but time:
//! what was not written is written later, and everything is written anew when the store is another one. Of several
//! writers for the same blocks one writes, and the others stand by.

mod lease;
mod scan;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

use kvasir_core::EngineHash;
use redis::{Cmd, Pipeline};

use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::key;

use lease::{Claim, Lease};
use scan::Scan;
use state::{Pending, State};

/// Commands in one pipeline.
const BATCH: usize = 500;
/// Pipelines in one call, so that a caller with much to write comes up for air.
const MOST_BATCHES: usize = 16;
/// How often it is looked for entries that grow old.
const AGE_EVERY: Duration = Duration::from_secs(60);

/// Whose keys the mapping is among.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KthenaEngine {
    /// `vllm:kv:block:...`
    Vllm,
    /// `sglang:kv:block:...`
    Sglang,
}

impl KthenaEngine {
    /// As the keys spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }
}

/// Under which names a pod's blocks are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterNames {
    /// The model, as the routers look it up.
    pub model: String,
    /// The pod as `NAME.NAMESPACE`, see [`key::kthena_pod_dot`].
    pub pod: String,
    /// Its engine.
    pub engine: KthenaEngine,
}

/// What changed at the pod. The same twice is the same as once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KthenaChange {
    /// The pod holds the block with this content from now on.
    Gained(u64),
    /// It holds no block with this content any more.
    Lost(u64),
    /// The engine's name for a block, and the block's content.
    Mapped(EngineHash, u64),
    /// The engine dropped the block with this name.
    Unmapped(EngineHash),
}

/// How a writer behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriterOptions {
    /// How long one pipeline may take; well below the six seconds for which a writer's lease outlives it.
    pub limit: Duration,
    /// Age at which an entry's time stamp is renewed, well before the 24 h at which it is taken for forgotten. Entries
    /// are renewed over the sixth of it that follows, so that they do not all fall due together.
    pub refresh_after: Duration,
    /// Removals remembered while the store cannot be reached; beyond it they are found by going through the store.
    pub most_pending: usize,
    /// Whether the pod's mapping keys are this writer's. They name no model, so of several writers for one pod (one for
    /// each adapter) one keeps them; the others must not take them for stale.
    pub keeps_mapping: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            limit: Duration::from_secs(2),
            refresh_after: Duration::from_secs(12 * 3600),
            most_pending: 1_000_000,
            keeps_mapping: true,
        }
    }
}

/// What a writer has done and holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriterStats {
    /// Blocks that the pod holds.
    pub held: usize,
    /// Names of engine blocks that are known.
    pub mapped: usize,
    /// Entries that are not yet as they should be.
    pub pending: usize,
    /// Entries written (set or removed).
    pub written: u64,
    /// Failed pipelines.
    pub failures: u64,
    /// Entries that cannot be written because their key is of another type.
    pub wrong_type: u64,
    /// Entries of this pod that were in the store and should not have been.
    pub stale_removed: u64,
    /// How often everything was written anew because the store was another one.
    pub rewrites: u64,
    /// Whether the store is being gone through for stale entries.
    pub reconciling: bool,
    /// Whether another living writer has these blocks, so that this one writes nothing.
    pub standing_by: bool,
}

/// Writes one pod's blocks. Every method may be dropped at an await; nothing is lost by it.
pub struct KthenaWriter {
    redis: Redis,
    names: WriterNames,
    options: WriterOptions,
    lease: Lease,
    state: State,
    scan: Option<Scan>,
    /// Whether anything was written since everything was last to be written anew.
    has_written: bool,
    aged: Option<Instant>,
    reconnects: u64,
    stats: WriterStats,
}

impl KthenaWriter {
    /// A writer of a pod that holds nothing yet.
    pub fn new(redis: Redis, names: WriterNames, options: WriterOptions) -> Self {
        Self {
            redis,
            names,
            options,
            lease: Lease::new(),
            state: State::default(),
            scan: None,
            has_written: false,
            aged: None,
            reconnects: 0,
            stats: WriterStats::default(),
        }
    }

    /// Takes in what changed. Memory only; [`flush`](Self::flush) writes it.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = KthenaChange>) {
        for change in changes {
            self.state.apply(change);
        }
        self.bound();
    }

    /// The pod holds nothing any more.
    pub fn clear(&mut self) {
        self.state.clear();
        self.bound();
    }

    /// What the writer has done and holds.
    pub fn stats(&self) -> WriterStats {
        WriterStats {
            held: self.state.held(),
            mapped: self.state.mapped(),
            pending: self.state.pending(),
            reconciling: self.scan.is_some() && !self.lease.stands_by(),
            standing_by: self.lease.stands_by(),
            ..self.stats
        }
    }

    /// Writes what is not written yet, at most 8,000 entries in one call. How many are left; none while another writer
    /// has these blocks.
    ///
    /// # Errors
    /// What is not written stays to be written; call again after a while.
    pub async fn flush(&mut self) -> Result<usize, StoreError> {
        self.notice_reconnect();
        if self.state.pending() == 0 {
            return Ok(0);
        }
        let result = self.write().await;
        if result.is_err() {
            self.stats.failures += 1;
        }
        result.map(|()| if self.lease.stands_by() { 0 } else { self.state.pending() })
    }

    /// Looks after what is written: whether this writer is the one that writes, whether the store is still the one that
    /// was written to, entries that grow old, and entries of this pod that should not be there (left by an earlier life,
    /// or come back with another store). Call it every second or so.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn maintain(&mut self) -> Result<(), StoreError> {
        self.notice_reconnect();
        if self.lease.is_due() {
            self.claim().await?;
        }
        if !self.may_write().await? {
            return Ok(());
        }
        if self.aged.is_none_or(|at| at.elapsed() >= AGE_EVERY) {
            let now = self.now().await?;
            self.state.renew_older(now, self.options.refresh_after.as_secs());
            self.aged = Some(Instant::now());
        }
        if let Some(scan) = &mut self.scan {
            let step = scan.advance(&self.redis, &self.names, &self.state, &self.options).await;
            self.stats.stale_removed += scan.take_removed();
            if step? {
                self.scan = None;
            }
        }
        Ok(())
    }

    /// Lets another writer begin at once. Whatever is called after it may take the blocks up again.
    ///
    /// # Errors
    /// The store failed: the lease ends by itself after a few seconds.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.lease.release(&self.redis, &self.names, self.options.limit).await
    }

    /// After a new connection some of what was acknowledged may be missing: a server may have come back empty, and a
    /// replica that became the master may not have had the last writes, removals among them.
    fn notice_reconnect(&mut self) {
        let reconnects = self.redis.status().reconnects;
        if reconnects != self.reconnects {
            self.reconnects = reconnects;
            self.lease.doubt();
            self.rewrite();
            self.scan = Some(Scan::default());
        }
    }

    fn rewrite(&mut self) {
        self.stats.rewrites += 1;
        self.has_written = false;
        self.state.rewrite();
    }

    /// Whether this writer is the one that writes, asked where that is not certain.
    async fn may_write(&mut self) -> Result<bool, StoreError> {
        let limit = self.options.limit;
        if !self.lease.allows(limit) && (!self.lease.stands_by() || self.lease.is_due()) {
            self.claim().await?;
        }
        Ok(self.lease.allows(limit))
    }

    async fn claim(&mut self) -> Result<(), StoreError> {
        let claim = self.lease.claim(&self.redis, &self.names, self.options.limit).await?;
        if claim == (Claim::Ours { known: false }) {
            if self.has_written {
                self.rewrite();
            }
            // Nobody's or another writer's store: there may be entries that we know nothing of.
            self.scan = Some(Scan::default());
        }
        Ok(())
    }

    fn bound(&mut self) {
        if self.state.forget_removals(self.options.most_pending) {
            self.scan = Some(Scan::default());
        }
    }

    async fn now(&self) -> Result<u64, StoreError> {
        Ok(super::server_time(&self.redis, self.options.limit).await?.0)
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        let mut now = None;
        for _ in 0..MOST_BATCHES {
            if !self.may_write().await? {
                return Ok(());
            }
            let now = match now {
                Some(now) => now,
                None => *now.insert(self.now().await?),
            };
            let batch = self.state.batch(BATCH);
            if batch.is_empty() {
                return Ok(());
            }
            let mut pipe = Pipeline::with_capacity(batch.len());
            for pending in &batch {
                pipe.add_command(self.command(pending, now));
            }
            self.has_written = true;
            let answers = self.redis.pipeline(&pipe, self.options.limit).await?;
            let mut failure = None;
            for (pending, answer) in batch.iter().zip(&answers) {
                match refusal(answer) {
                    None => {
                        self.state.written(pending, now);
                        self.stats.written += 1;
                    }
                    Some(Refusal::WrongType) => {
                        self.state.written(pending, now);
                        self.stats.wrong_type += 1;
                    }
                    Some(refusal) => failure = Some(StoreError::Refused(refusal)),
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        Ok(())
    }

    fn command(&self, pending: &Pending, now: u64) -> Cmd {
        let WriterNames { model, pod, engine } = &self.names;
        match pending {
            Pending::Held(hash) => {
                redis::cmd("HSET").arg(key::kthena_block(model, *hash)).arg(pod).arg(now).take()
            }
            Pending::Lost(hash) => redis::cmd("HDEL").arg(key::kthena_block(model, *hash)).arg(pod).take(),
            Pending::Mapped(name, hash) => redis::cmd("SET")
                .arg(key::kthena_mapping(engine.as_str(), pod, shown(name)))
                .arg(*hash)
                .arg("EX")
                .arg(key::KTHENA_MAPPING_SECONDS)
                .take(),
            Pending::Unmapped(name) => {
                redis::cmd("DEL").arg(key::kthena_mapping(engine.as_str(), pod, shown(name))).take()
            }
        }
    }
}

impl fmt::Debug for KthenaWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KthenaWriter")
            .field("names", &self.names)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// An engine's hash as kthena's mapping keys spell it: integers in decimal as they came. kthena has no spelling for raw
/// bytes; ours is hexadecimal.
fn shown(hash: &EngineHash) -> String {
    match hash {
        EngineHash::Int { bits, negative: true } => bits.cast_signed().to_string(),
        EngineHash::Int { bits, negative: false } => bits.to_string(),
        EngineHash::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
