//! The task that tells our load and hears the others'.

use std::sync::Arc;
use std::time::Instant;

use kvasir_core::{Clock, LoadBoard};
use kvasir_settings::SharedLoadMode;
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::connection::{Redis, StoreError};
use crate::key;

use super::counters::Counters;
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

pub(super) struct Exchange {
    redis: Redis,
    board: Arc<dyn LoadBoard>,
    options: LoadOptions,
    clock: Arc<dyn Clock>,
    progress: Arc<Mutex<Progress>>,
    way: Option<Way>,
}

enum Way {
    Native(Replicas),
    Kthena(Counters),
}

impl Exchange {
    pub(super) fn new(
        redis: Redis,
        board: Arc<dyn LoadBoard>,
        options: LoadOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { redis, board, options, clock, progress: Arc::default(), way: None }
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
        let (now, believed) = (self.clock.now(), self.options.believed);
        let (peers, count) = match &mut self.way {
            Some(Way::Native(replicas)) => replicas.peers(now, believed, self.board.as_ref()),
            Some(Way::Kthena(counters)) => counters.peers(now, believed),
            None => (Vec::new(), 0),
        };
        self.board.set_peers(&peers);
        let mut progress = self.progress.lock();
        progress.status.peers = count;
        match result {
            Ok(()) => {
                progress.status.exchanges += 1;
                progress.last_exchange = Some(now);
            }
            Err(_) => progress.status.failures += 1,
        }
    }

    async fn try_exchange(&mut self) -> Result<(), StoreError> {
        if self.way.is_none() {
            self.way = Some(self.choose().await?);
        }
        // What the answers say was so no earlier than this.
        let (begun, limit) = (self.clock.now(), self.options.limit);
        match &mut self.way {
            Some(Way::Native(replicas)) => {
                let ignored = replicas.exchange(&self.redis, self.board.as_ref(), begun, limit).await?;
                self.progress.lock().status.ignored += ignored;
            }
            Some(Way::Kthena(counters)) => {
                let healed = counters.exchange(&self.redis, self.board.as_ref(), begun, limit).await?;
                self.progress.lock().status.healed += healed;
            }
            None => {}
        }
        Ok(())
    }

    /// Takes back what this replica has told, so that its peers need not wait for its lease to end.
    pub(super) async fn withdraw(&mut self) -> Result<(), StoreError> {
        match &mut self.way {
            Some(Way::Native(replicas)) => replicas.withdraw(&self.redis, self.options.limit).await,
            Some(Way::Kthena(counters)) => counters.withdraw(&self.redis, self.options.limit).await,
            None => Ok(()),
        }
    }

    async fn choose(&self) -> Result<Way, StoreError> {
        let kthena = match self.options.mode {
            SharedLoadMode::Native | SharedLoadMode::Off => false,
            SharedLoadMode::Kthena => true,
            SharedLoadMode::Auto => {
                let exists = redis::cmd("EXISTS").arg(key::KTHENA_ON_FLIGHT).take();
                self.redis.query::<u64>(&exists, self.options.limit).await? > 0
            }
        };
        let (layout, replica) = (if kthena { "kthena" } else { "native" }, self.options.replica.clone());
        tracing::info!(
            layout,
            replica,
            asked_for = self.options.mode.as_str(),
            "in-flight load is shared {}",
            if kthena { "by kthena's counters" } else { "with the other replicas by a vector of our own" }
        );
        self.progress.lock().status.layout = Some(layout);
        Ok(match kthena {
            true => Way::Kthena(Counters::new(replica)),
            false => Way::Native(Replicas::new(replica, self.options.believed)),
        })
    }
}
