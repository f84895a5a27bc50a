//! Following what agents publish, into the index in memory.

mod load;
mod machine;
mod refresh;
mod status;
mod stream;
mod tail;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{Clock, EndpointId, MirrorSink};
use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::{Redis, StoreError};
use crate::key::{self, STREAMS};
use crate::supervision::supervise;
use machine::{Patience, StreamMirror};
use stream::Stream;
use tail::Positions;

pub use status::{MirrorStatus, MirroredOwner, OwnerState};

/// Batches of one stream that wait for it.
const WAITING_BATCHES: usize = 16;
/// Resyncs at a time.
const RESYNCS: usize = 4;

/// How the mirror follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MirrorOptions {
    /// How often leases and heads are read.
    pub refresh: Duration,
    /// How long everything is believed while Redis cannot be reached. Then owners are partial and count as not published;
    /// after ten times as long they hold nothing.
    pub grace: Duration,
    /// How long writers may take to renew their leases after Redis is back. Longer than their longest back-off and their
    /// heartbeat's interval together, shorter than a lease.
    pub settle: Duration,
    /// How long content may be used that is known to be old, because a newer epoch or missing deltas cannot be loaded.
    pub stale: Duration,
    /// How long one round trip may take.
    pub call_limit: Duration,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(1),
            grace: Duration::from_secs(60),
            settle: Duration::from_secs(5),
            stale: Duration::from_secs(10),
            call_limit: Duration::from_secs(2),
        }
    }
}

/// Follows every owner that is published, until it is stopped. Works when Redis comes late, goes and comes back.
pub struct Mirror {
    machines: Vec<Arc<Mutex<StreamMirror>>>,
    synced: Vec<watch::Receiver<bool>>,
    clock: Arc<dyn Clock>,
}

impl Mirror {
    /// Begins to follow; must be called inside a runtime.
    pub fn start(
        redis: &Redis,
        sink: Arc<dyn MirrorSink>,
        options: MirrorOptions,
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> Self {
        let patience = Patience {
            refresh: options.refresh,
            grace: options.grace,
            settle: options.settle,
            stale: options.stale,
        };
        let positions = Arc::new(Positions::default());
        let resyncs = Arc::new(Semaphore::new(RESYNCS));
        let (mut machines, mut synced, mut senders) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..STREAMS {
            let machine = Arc::new(Mutex::new(StreamMirror::new(patience)));
            let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
            let (done, is_done) = watch::channel(false);
            let stream = Stream {
                number,
                redis: redis.clone(),
                sink: Arc::clone(&sink),
                clock: Arc::clone(&clock),
                machine: Arc::clone(&machine),
                positions: Arc::clone(&positions),
                resyncs: Arc::clone(&resyncs),
                synced: done,
                refresh: options.refresh,
                call_limit: options.call_limit,
            };
            tokio::spawn(keep_following(Arc::new(stream), receiver, stop.clone()));
            machines.push(machine);
            synced.push(is_done);
            senders.push(sender);
        }
        let limit = options.call_limit;
        let tails = if redis.is_cluster() { 0..STREAMS } else { 0..1 };
        let senders: Arc<[mpsc::Sender<tail::Batch>]> = senders.into();
        for number in tails {
            let (redis, positions, senders, stop) =
                (redis.clone(), Arc::clone(&positions), Arc::clone(&senders), stop.clone());
            tokio::spawn(keep_reading(redis, number, positions, senders, limit, stop));
        }
        Self { machines, synced, clock }
    }

    /// How it does, with every published owner.
    pub fn status(&self) -> MirrorStatus {
        let now = self.clock.now();
        let mut status = MirrorStatus {
            connected: true,
            last_contact_ms: Some(0),
            first_synced: true,
            emptied: 0,
            malformed: 0,
            owners: Vec::new(),
        };
        for machine in &self.machines {
            let machine = machine.lock();
            let (emptied, malformed) = machine.counts();
            let silence = machine.silence(now).map(|silence| silence.as_millis() as u64);
            status.connected &= machine.is_connected();
            status.last_contact_ms = status.last_contact_ms.zip(silence).map(|(most, one)| most.max(one));
            status.first_synced &= machine.first_synced();
            status.emptied += emptied;
            status.malformed += malformed;
            status.owners.extend(machine.status(now));
        }
        status.owners.sort_by(|a, b| a.owner.cmp(&b.owner));
        status
    }

    /// Whether an owner is published, wanted here or not: its lease lasted when it was looked at last, and that is not
    /// longer ago than the grace.
    pub fn publishes(&self, owner: &EndpointId) -> bool {
        let stream = key::stream_of(&key::owner(owner));
        self.machines.get(usize::from(stream)).is_some_and(|machine| machine.lock().publishes(owner))
    }

    /// Waits until every owner that was there at the start is loaded, or Redis turned out to be out of reach. An owner that
    /// cannot be read is not waited for long, but the caller bounds the whole.
    pub async fn first_sync(&self) {
        for synced in &self.synced {
            // An error means that the mirror was stopped.
            let _ = synced.clone().wait_for(|synced| *synced).await;
        }
    }

    /// Whether a Redis has owners in the native layout.
    ///
    /// # Errors
    /// Redis did not answer, or refused.
    pub async fn has_native_data(redis: &Redis, limit: Duration) -> Result<bool, StoreError> {
        let mut pipe = Pipeline::with_capacity(usize::from(STREAMS));
        for stream in 0..STREAMS {
            pipe.cmd("EXISTS").arg(key::owners(stream));
        }
        let answers = redis.pipeline(&pipe, limit).await?;
        if answers.iter().any(|answer| matches!(answer, Value::Int(1..))) {
            return Ok(true);
        }
        match answers.iter().find_map(crate::connection::refusal) {
            Some(refusal) => Err(StoreError::Refused(refusal)),
            None => Ok(false),
        }
    }
}

async fn keep_following(stream: Arc<Stream>, entries: mpsc::Receiver<tail::Batch>, stop: CancellationToken) {
    let entries = Arc::new(tokio::sync::Mutex::new(entries));
    let begin = || Arc::clone(&stream).run(Arc::clone(&entries), stop.clone());
    supervise("following published owners", &stop, begin, || stream.start_over()).await;
}

async fn keep_reading(
    redis: Redis,
    stream: u8,
    positions: Arc<Positions>,
    senders: Arc<[mpsc::Sender<tail::Batch>]>,
    limit: Duration,
    stop: CancellationToken,
) {
    let (redis, positions, senders) = (&redis, &*positions, &*senders);
    let begin = || {
        let (redis, stop) = (redis.clone(), stop.clone());
        async move {
            if redis.is_cluster() {
                tail::tail_one(redis, stream, positions, senders, limit, stop).await;
            } else {
                tail::tail_all(redis, positions, senders, limit, stop).await;
            }
        }
    };
    // What it had in hand is a gap like any other.
    supervise("reading the streams of published owners", &stop, begin, || {}).await;
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
