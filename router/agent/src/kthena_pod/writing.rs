//! The task that writes one pod's changes: a writer for the model, and one for each adapter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_coordination::Redis;
use kvasir_coordination::kthena::{
    KthenaChange, KthenaEngine, KthenaWriter, WriterNames, WriterOptions, WriterStats,
};
use kvasir_core::EngineKind;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::KthenaPod;
use crate::kthena_ledger::KthenaDelta;

/// How long changes are gathered.
const GATHER: Duration = Duration::from_millis(20);

/// How often what is written is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Longest pause after a failure.
const MOST_BACK_OFF: Duration = Duration::from_secs(2);

/// How long the last changes may take.
const ENDING: Duration = Duration::from_millis(1500);

/// Adapters of one pod that are written; requests for further ones are placed by load.
const MOST_ADAPTERS: usize = 64;

/// How writing does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Entries that Redis does not have as they should be.
    pub pending: usize,
    /// Whether Redis is being gone through for entries of an earlier life.
    pub reconciling: bool,
    /// Entries of an earlier life that were removed.
    pub stale_removed: u64,
    /// Times everything was written anew because the store was another one.
    pub rewrites: u64,
    /// Writes that failed.
    pub failures: u64,
    /// Why the last one did.
    pub last_error: Option<String>,
}

/// Writes a pod's changes from its opening until `stop`.
pub(super) async fn write(pod: Arc<KthenaPod>, redis: Redis, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        // Before, what an earlier agent left would be taken for stale.
        () = pod.opened.cancelled() => {}
    }
    let mut writers = Writers::new(&pod, redis);
    let mut look_after = Instant::now();
    let mut back_off = GATHER;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(back_off) => {}
        }
        let mut ended = writers.flush(&pod).await;
        if ended.is_ok() && Instant::now() >= look_after {
            look_after = Instant::now() + LOOK_AFTER;
            ended = writers.maintain().await;
        }
        back_off = if ended.is_ok() { GATHER } else { (back_off * 2).min(MOST_BACK_OFF) };
        writers.report(&pod, ended.err());
    }
    let last = async {
        while !matches!(writers.flush(&pod).await, Ok(0) | Err(_)) {}
        writers.release().await;
    };
    let _ = tokio::time::timeout(ENDING, last).await;
}

/// One writer for each name that the pod's blocks are filed under.
struct Writers {
    redis: Redis,
    base: KthenaWriter,
    adapters: BTreeMap<Arc<str>, KthenaWriter>,
    names: WriterNames,
}

impl Writers {
    fn new(pod: &KthenaPod, redis: Redis) -> Self {
        let engine = match pod.kind {
            EngineKind::Vllm => KthenaEngine::Vllm,
            EngineKind::Sglang => KthenaEngine::Sglang,
        };
        let names = WriterNames { model: pod.model.as_str().to_owned(), pod: pod.name.to_string(), engine };
        let base = KthenaWriter::new(redis.clone(), names.clone(), WriterOptions::default());
        Self { redis, base, adapters: BTreeMap::new(), names }
    }

    /// Hands the changes to the writers and has them written; the entries that are left.
    async fn flush(&mut self, pod: &KthenaPod) -> Result<usize, String> {
        let delta = pod.ledger.lock().take_delta();
        self.take(delta);
        let mut left = 0;
        for writer in self.all() {
            left += writer.flush().await.map_err(|error| error.to_string())?;
        }
        Ok(left)
    }

    async fn maintain(&mut self) -> Result<usize, String> {
        for writer in self.all() {
            writer.maintain().await.map_err(|error| error.to_string())?;
        }
        Ok(0)
    }

    /// Lets a successor begin at once. Where that fails it waits a few seconds.
    async fn release(&mut self) {
        for writer in self.all() {
            let _ = writer.release().await;
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut KthenaWriter> {
        std::iter::once(&mut self.base).chain(self.adapters.values_mut())
    }

    fn take(&mut self, delta: KthenaDelta) {
        let KthenaDelta { gained, lost, named, unnamed } = delta;
        let gained = gained.into_iter().map(|block| (block.adapter, KthenaChange::Gained(block.hash)));
        let lost = lost.into_iter().map(|block| (block.adapter, KthenaChange::Lost(block.hash)));
        for (adapter, change) in gained.chain(lost) {
            if let Some(writer) = self.writer(adapter.as_ref()) {
                writer.apply([change]);
            }
        }
        self.base.apply(named.into_iter().map(|(name, hash)| KthenaChange::Mapped(name, hash)));
        self.base.apply(unnamed.into_iter().map(KthenaChange::Unmapped));
    }

    fn writer(&mut self, adapter: Option<&Arc<str>>) -> Option<&mut KthenaWriter> {
        let Some(adapter) = adapter else { return Some(&mut self.base) };
        if !self.adapters.contains_key(adapter) {
            if self.adapters.len() >= MOST_ADAPTERS {
                return None;
            }
            // The model's writer keeps the names of all blocks.
            let names = WriterNames { model: (**adapter).to_owned(), ..self.names.clone() };
            let options = WriterOptions { keeps_mapping: false, ..WriterOptions::default() };
            let writer = KthenaWriter::new(self.redis.clone(), names, options);
            self.adapters.insert(Arc::clone(adapter), writer);
        }
        self.adapters.get_mut(adapter)
    }

    fn report(&mut self, pod: &KthenaPod, error: Option<String>) {
        let stats: Vec<WriterStats> = self.all().map(|writer| writer.stats()).collect();
        let mut written = pod.written.lock();
        *written = Written {
            pending: stats.iter().map(|stats| stats.pending).sum(),
            reconciling: stats.iter().any(|stats| stats.reconciling),
            stale_removed: stats.iter().map(|stats| stats.stale_removed).sum(),
            rewrites: stats.iter().map(|stats| stats.rewrites).sum(),
            failures: written.failures + u64::from(error.is_some()),
            last_error: error.or_else(|| written.last_error.take()),
        };
    }
}
