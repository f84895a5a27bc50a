//! The task that tells our load and hears the others'.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Clock, EndpointId, LoadBoard, SharedLoad};
use kvasir_settings::SharedLoadMode;
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::connection::{Redis, StoreError};

use super::counters::{self, Counters};
use super::replicas::Replicas;
use super::{LoadOptions, LoadStatus};

/// What has come of the exchange so far.
#[derive(Debug, Default)]
pub(super) struct Progress {
    status: LoadStatus,
    last_exchange: Option<Instant>,
}

impl Progress {
    pub(super) fn status(&self, now: Instant) -> LoadStatus {
        let age = self.last_exchange.map(|at| now.saturating_duration_since(at).as_millis());
        let last_exchange_ms = age.map(|age| u64::try_from(age).unwrap_or(u64::MAX));
        LoadStatus { last_exchange_ms, ..self.status.clone() }
    }
}

/// How often it is looked whether kthena's routers count here, where that is found out.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks without anybody of kthena's after which our share of the counters is taken back: a router with few requests
/// has none in flight at most moments, and is to see ours when it has.
const QUIET_LOOKS: u32 = 6;

pub(super) struct Exchange {
    redis: Redis,
    board: Arc<dyn LoadBoard>,
    options: LoadOptions,
    clock: Arc<dyn Clock>,
    progress: Arc<Mutex<Progress>>,
    /// Our vectors; `None` where only kthena's counters are wanted.
    native: Option<Replicas>,
    /// kthena's counters, as long as our share is in them.
    kthena: Option<Counters>,
    looks: Looks,
}

/// What has come of the looks for kthena's routers.
#[derive(Debug, Default)]
struct Looks {
    last: Option<Instant>,
    /// Those that found nobody since somebody was found.
    quiet: u32,
    /// Whether the last one found somebody.
    found: bool,
}

impl Exchange {
    pub(super) fn new(
        redis: Redis,
        board: Arc<dyn LoadBoard>,
        options: LoadOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let counters_only = options.mode == SharedLoadMode::Kthena;
        let native = (!counters_only).then(|| Replicas::new(options.replica.clone(), options.believed));
        let kthena = counters_only.then(|| Counters::new(options.replica.clone()));
        Self {
            redis,
            board,
            options,
            clock,
            progress: Arc::default(),
            native,
            kthena,
            looks: Looks::default(),
        }
    }

    pub(super) fn progress(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.progress)
    }

    /// Exchanges until told to stop, then takes back what was told.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.options.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.exchange().await,
            }
        }
        if let Err(error) = self.withdraw().await {
            tracing::warn!(%error, "could not take back this replica's load; it is forgotten when its lease ends");
        }
        self.board.set_peers(&[]);
    }

    /// Tells our load and hears the others', once. After a failure what was heard is believed a while longer.
    pub(super) async fn exchange(&mut self) {
        let result = self.try_exchange().await;
        let now = self.clock.now();
        let (layout, peers, count) = self.heard(now);
        self.board.set_peers(&peers);
        let mut progress = self.progress.lock();
        progress.status.peers = count;
        match result {
            Ok(()) => {
                progress.status.layout = Some(layout);
                progress.status.exchanges += 1;
                progress.last_exchange = Some(now);
            }
            Err(_) => progress.status.failures += 1,
        }
    }

    /// What is believed of the others now, and how many they are. kthena's counters hold the other replicas' load too,
    /// so while somebody of kthena's counts there they take the place of our vectors.
    fn heard(&mut self, now: Instant) -> (&'static str, Vec<(EndpointId, SharedLoad)>, usize) {
        let believed = self.options.believed;
        let wanted = self.native.is_none() || self.looks.found;
        let counters = self.kthena.as_ref().filter(|_| wanted);
        if let Some((peers, count)) = counters.and_then(|counters| counters.peers(now, believed)) {
            return ("kthena", peers, count);
        }
        match &mut self.native {
            Some(replicas) => {
                let (peers, count) = replicas.peers(now, believed, self.board.as_ref());
                ("native", peers, count)
            }
            None => ("kthena", Vec::new(), 0),
        }
    }

    async fn try_exchange(&mut self) -> Result<(), StoreError> {
        // What the answers say was so no earlier than this.
        let begun = self.clock.now();
        if self.options.mode == SharedLoadMode::Auto {
            self.look(begun).await;
        }
        let (redis, board, limit) = (&self.redis, self.board.as_ref(), self.options.limit);
        let native = async {
            match &mut self.native {
                Some(replicas) => replicas.exchange(redis, board, begun, limit).await,
                None => Ok(0),
            }
        };
        let kthena = async {
            match &mut self.kthena {
                Some(counters) => counters.exchange(redis, board, begun, limit).await,
                None => Ok(0),
            }
        };
        let (ignored, healed) = tokio::join!(native, kthena);
        let mut progress = self.progress.lock();
        progress.status.ignored += *ignored.as_ref().unwrap_or(&0);
        progress.status.healed += *healed.as_ref().unwrap_or(&0);
        ignored.and(healed).map(drop)
    }

    /// Looks, when it is time, whether anybody but us and our peers counts in kthena's counters, and takes part or
    /// ceases to. A peer that uses the counters alone is not among our vectors, so it is somebody too.
    async fn look(&mut self, now: Instant) {
        if self.looks.last.is_some_and(|at| now.saturating_duration_since(at) < LOOK_EVERY) {
            return;
        }
        let peers = self.native.iter().flat_map(Replicas::names);
        let ours = peers.chain([self.options.replica.as_str()]);
        let found = match counters::is_foreign(&self.redis, ours, self.options.limit).await {
            Ok(found) => found,
            // A user who may not read the counters cannot take part; and what is of another type is not kthena's.
            Err(StoreError::Refused(_)) => false,
            // The exchange itself will say so. Looked at again with the next one.
            Err(StoreError::Unreachable | StoreError::TimedOut) => return,
        };
        self.looks.quiet = if found { 0 } else { self.looks.quiet.saturating_add(1) };
        (self.looks.last, self.looks.found) = (Some(now), found);
        if found && self.kthena.is_none() {
            tracing::info!(
                "routers of kthena count requests in flight in this Redis; ours are counted there too"
            );
            self.kthena = Some(Counters::new(self.options.replica.clone()));
        }
        if self.looks.quiet < QUIET_LOOKS {
            return;
        }
        if let Some(counters) = &mut self.kthena
            && counters.withdraw(&self.redis, self.options.limit).await.is_ok()
        {
            tracing::info!("no router of kthena counts in this Redis any more; our share is taken back");
            self.kthena = None;
        }
    }

    /// Takes back what this replica has told, so that its peers need not wait for its lease to end.
    pub(super) async fn withdraw(&mut self) -> Result<(), StoreError> {
        let (redis, limit) = (&self.redis, self.options.limit);
        let native = match &mut self.native {
            Some(replicas) => replicas.withdraw(redis, limit).await,
            None => Ok(()),
        };
        let kthena = match &mut self.kthena {
            Some(counters) => counters.withdraw(redis, limit).await,
            None => Ok(()),
        };
        native.and(kthena)
    }
}
