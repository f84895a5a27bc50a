//! What each user used at each replica, told to the others through Redis.
//!
//! A replica's use is kept in segments of a sixtieth of the window each. The one under way is written whole whenever it
//! changed; those before it never change again. So telling twice is the same as once, and a reader that missed
//! something reads the segment anew. Segments outlive the replica that wrote them: use counts for a window, whatever
//! becomes of whoever served it. What is charged to requests under way is told beside them, and believed for two
//! seconds.

mod exchange;
mod peers;
mod record;
mod segments;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Clock, UsageBoard};
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Redis;

use exchange::Exchange;

/// How use is exchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageOptions {
    /// What tells this process from its peers, and from its own earlier life.
    pub replica: String,
    /// How often. Peers see use after two of these at most.
    pub every: Duration,
    /// How long a replica that says nothing more is believed about what is under way there.
    pub believed: Duration,
    /// How long one exchange may take.
    pub limit: Duration,
}

impl UsageOptions {
    /// The defaults for one replica. Two that are given one name are still told apart.
    pub fn new(replica: Option<String>) -> Self {
        let life = uuid::Uuid::new_v4().simple().to_string();
        let life = life.get(..12).unwrap_or_default();
        Self {
            replica: replica.map_or_else(|| life.to_owned(), |name| format!("{name}-{life}")),
            every: Duration::from_millis(100),
            believed: Duration::from_secs(2),
            limit: Duration::from_millis(500),
        }
    }
}

/// How the exchange goes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UsageStatus {
    /// Replicas whose use is counted now, those that ended within the window too.
    pub peers: usize,
    /// Exchanges that went well.
    pub exchanges: u64,
    /// Exchanges that failed.
    pub failures: u64,
    /// What was read and is of another schema or window, or makes no sense.
    pub ignored: u64,
    /// Use that was not told, since too many users used something at once.
    pub untold: u64,
    /// How long ago an exchange last went well, milliseconds; `None` before the first one.
    pub last_exchange_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Progress {
    status: UsageStatus,
    last_exchange: Option<Instant>,
}

impl Progress {
    fn status(&self, now: Instant) -> UsageStatus {
        let age = self.last_exchange.map(|at| now.saturating_duration_since(at).as_millis());
        let last_exchange_ms = age.map(|age| u64::try_from(age).unwrap_or(u64::MAX));
        UsageStatus { last_exchange_ms, ..self.status.clone() }
    }
}

/// The exchange of one replica, running by itself. Cheap to clone.
#[derive(Clone)]
pub struct UsageExchange {
    replica: Arc<str>,
    clock: Arc<dyn Clock>,
    progress: Arc<Mutex<Progress>>,
    task: TaskTracker,
}

impl UsageExchange {
    /// Begins to exchange, until `stop`; must be called inside a runtime.
    pub fn start(
        redis: Redis,
        board: Arc<dyn UsageBoard>,
        options: UsageOptions,
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
    pub fn status(&self) -> UsageStatus {
        self.progress.lock().status(self.clock.now())
    }

    /// Waits until, after the stop, the last use is told, or could not be within one exchange's limit.
    pub async fn finished(&self) {
        self.task.wait().await;
    }
}

impl fmt::Debug for UsageExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageExchange")
            .field("replica", &self.replica)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
