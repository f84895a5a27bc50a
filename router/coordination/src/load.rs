//! What each replica has in flight, told to the others through Redis every 100 ms.

mod counters;
mod exchange;
mod replicas;
#[cfg(test)]
mod tests;
mod vector;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{Clock, LoadBoard};
use kvasir_settings::SharedLoadMode;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Redis;

use exchange::Exchange;

/// How loads are exchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadOptions {
    /// Where. `Off` is for the caller to heed: here it is taken for `Native`.
    pub mode: SharedLoadMode,
    /// What tells this process from its peers, and from its own earlier life.
    pub replica: String,
    /// How often.
    pub every: Duration,
    /// How long a replica that says nothing more is believed.
    pub believed: Duration,
    /// How long one exchange may take.
    pub limit: Duration,
}

impl LoadOptions {
    /// The defaults for one replica. Two that are given one name are still told apart.
    pub fn new(mode: SharedLoadMode, replica: Option<String>) -> Self {
        let life = uuid::Uuid::new_v4().simple().to_string();
        let life = life.get(..12).unwrap_or_default();
        Self {
            mode,
            replica: replica.map_or_else(|| life.to_owned(), |name| format!("{name}-{life}")),
            every: Duration::from_millis(100),
            believed: Duration::from_secs(2),
            limit: Duration::from_millis(500),
        }
    }
}

/// How the exchange goes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LoadStatus {
    /// Whose word counts now, `native` or `kthena`; `None` before the store was first reached.
    pub layout: Option<&'static str>,
    /// Replicas whose load is counted now; with kthena's counters, 1 where anybody else has something in flight.
    pub peers: usize,
    /// Exchanges that went well.
    pub exchanges: u64,
    /// Exchanges that failed.
    pub failures: u64,
    /// Vectors of another schema or that made no sense.
    pub ignored: u64,
    /// Counters that were lower than what we have in flight, and were put right.
    pub healed: u64,
    /// How long ago an exchange last went well, milliseconds; `None` before the first one.
    pub last_exchange_ms: Option<u64>,
}

/// The exchange of one replica, running by itself. Cheap to clone.
#[derive(Clone)]
pub struct LoadExchange {
    replica: Arc<str>,
    clock: Arc<dyn Clock>,
    progress: Arc<Mutex<exchange::Progress>>,
    task: TaskTracker,
}

impl LoadExchange {
    /// Begins to exchange, until `stop`; must be called inside a runtime.
    pub fn start(
        redis: Redis,
        board: Arc<dyn LoadBoard>,
        options: LoadOptions,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) -> Self {
        let replica = options.replica.as_str().into();
        let exchange = Exchange::new(redis, board, options, Arc::clone(&clock));
        let progress = exchange.progress();
        let task = TaskTracker::new();
        task.spawn(exchange.run(stop));
        task.close();
        Self { replica, clock, progress, task }
    }

    /// How it goes.
    pub fn status(&self) -> LoadStatus {
        self.progress.lock().status(self.clock.now())
    }

    /// Waits until, after the stop, what this replica told is taken back, or could not be within one exchange's limit.
    pub async fn finished(&self) {
        self.task.wait().await;
    }
}

impl fmt::Debug for LoadExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadExchange")
            .field("replica", &self.replica)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
