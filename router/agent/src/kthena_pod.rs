//! A pod in kthena's layout: its ranks feed one ledger, and one task writes what changes in it.

mod tap;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_coordination::Redis;
use kvasir_core::{EngineKind, ModelName};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::board::KthenaLine;
use crate::config::EngineConfig;
use crate::kthena_ledger::KthenaLedger;

pub use tap::RankTap;
pub use writing::Written;

#[cfg(test)]
mod tests;

/// One pod under one model's name.
#[derive(Debug)]
pub struct KthenaPod {
    name: PodName,
    model: ModelName,
    kind: EngineKind,
    ledger: Mutex<KthenaLedger>,
    /// Blocks that each rank can hold.
    capacities: Mutex<BTreeMap<u32, usize>>,
    written: Mutex<Written>,
    /// Cancelled when what the pod holds has been read, so that it can be written.
    opened: CancellationToken,
}

/// A pod and its namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PodName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The pod.
    pub pod: Arc<str>,
}

impl std::fmt::Display for PodName {
    /// As kthena writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.pod, self.namespace)
    }
}

impl KthenaPod {
    /// A pod that holds nothing.
    pub fn new(name: PodName, model: ModelName, kind: EngineKind) -> Self {
        Self {
            name,
            model,
            kind,
            ledger: Mutex::default(),
            capacities: Mutex::default(),
            written: Mutex::default(),
            opened: CancellationToken::new(),
        }
    }

    /// What the pod holds has been read, as far as it can be: it is written from here on.
    pub fn open(&self) {
        self.opened.cancel();
    }

    /// How it does.
    pub fn line(&self) -> KthenaLine {
        let (keys, blocks, noticed) = {
            let ledger = self.ledger.lock();
            (ledger.owned(), ledger.entries(), ledger.noticed())
        };
        let written = self.written.lock().clone();
        KthenaLine {
            pod: self.name.to_string(),
            model: self.model.as_str().to_owned(),
            keys,
            blocks,
            unknown_removals: noticed.unknown_removals,
            not_by_tokens: noticed.not_by_tokens,
            pending: written.pending,
            reconciling: written.reconciling,
            stale_removed: written.stale_removed,
            rewrites: written.rewrites,
            failures: written.failures,
            last_error: written.last_error,
        }
    }
}

/// Every pod that is written, each with its task.
#[derive(Debug)]
pub struct KthenaPods {
    redis: Redis,
    is_written: bool,
    running: Mutex<BTreeMap<(PodName, ModelName), Running>>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Running {
    pod: Arc<KthenaPod>,
    task: JoinHandle<()>,
}

impl KthenaPods {
    /// Without pods. `is_written` is whether kthena's layout is wanted at all.
    pub fn new(redis: Redis, is_written: bool) -> Self {
        Self { redis, is_written, running: Mutex::default(), stop: CancellationToken::new() }
    }

    /// The pod of an engine; engines of one pod that serve the same model share it. Begins to write it where it is new.
    /// `None` where kthena's layout is not written.
    pub fn pod(&self, engine: &EngineConfig, model: &ModelName) -> Option<Arc<KthenaPod>> {
        if !self.is_written {
            return None;
        }
        let name = PodName { namespace: Arc::clone(&engine.namespace), pod: Arc::clone(&engine.pod) };
        let mut running = self.running.lock();
        let running = running.entry((name.clone(), model.clone())).or_insert_with(|| {
            let pod = Arc::new(KthenaPod::new(name, model.clone(), engine.kind));
            let task = tokio::spawn(writing::write(Arc::clone(&pod), self.redis.clone(), self.stop.clone()));
            Running { pod, task }
        });
        Some(Arc::clone(&running.pod))
    }

    /// How each pod does.
    pub fn lines(&self) -> Vec<KthenaLine> {
        self.running.lock().values().map(|running| running.pod.line()).collect()
    }

    /// Writes what is left, and ends. What pods own stays in Redis, as with kthena's sidecar: the caches stay too.
    pub async fn close(&self) {
        self.stop.cancel();
        let running = std::mem::take(&mut *self.running.lock());
        for Running { task, .. } in running.into_values() {
            let _ = task.await;
        }
    }
}
