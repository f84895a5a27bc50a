//! Writing what owners hold into Redis, for every router to follow.

mod exchange;
mod lane;
mod owner;
mod request;
mod resume;
mod shelf;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kvasir_core::{AdapterName, Clock, EndpointId, EngineKind, ModelName, OwnerJournal, OwnerSlot};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::connection::Redis;
use crate::supervision::supervise;
use exchange::Exchange;
use lane::{Lane, Seat};
use owner::OwnerPublisher;

pub use resume::{MOST_RESUME_BYTES, ResumeTooLarge, load_resume_state};
pub use status::{PublisherState, PublisherStatus};

/// A lease is renewed four times while it lasts.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// A lease that seems longer is taken for one of a server whose clock was ahead.
const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// One owner to publish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedOwner {
    /// Who it is.
    pub id: EndpointId,
    /// Its number in the journal.
    pub slot: OwnerSlot,
    /// The engine's served name.
    pub model: ModelName,
    /// Which engine.
    pub engine: EngineKind,
    /// Adapters that it serves.
    pub adapters: Vec<AdapterName>,
}

/// How owners are published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublisherOptions {
    /// How long an owner is believed after the last sign of its writer: a tenth of a second to a minute.
    pub lease: Duration,
    /// How long changes are gathered.
    pub flush: Duration,
    /// Over how long agents spread out after a store was emptied.
    pub spread: Duration,
    /// How old a delta may be before the chunks hold it. Each fold rewrites the chunks that changed, so a shorter time
    /// writes more; a longer one makes a router's start longer.
    pub fold_after: Duration,
    /// The longest wait after a failure.
    pub longest_back_off: Duration,
    /// Changes that the journal keeps for each owner while Redis does not take them.
    pub most_changes: usize,
    /// Entries that a stream keeps, about.
    pub most_deltas: u32,
    /// How long one round trip may take.
    pub call_limit: Duration,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            flush: Duration::from_millis(5),
            spread: Duration::from_secs(2),
            fold_after: Duration::from_secs(15),
            longest_back_off: Duration::from_secs(2),
            most_changes: 65_536,
            // Ten seconds of the busiest fleet that was measured, and there about 9 MiB over all 16 streams. The bound
            // is far above that: an entry of 512 changes has 4.6 kB, so streams full of those would have 600 MB.
            most_deltas: 8192,
            call_limit: Duration::from_secs(2),
        }
    }
}

/// Publishes owners until it is stopped. Works when Redis comes late, goes and comes back. Dropped, it ends at once and
/// its leases run out.
pub struct Publisher {
    seats: BTreeMap<EndpointId, Arc<Seat>>,
    lanes: Mutex<JoinSet<()>>,
    clock: Arc<dyn Clock>,
}

impl Publisher {
    /// Begins to publish; must be called inside a runtime. Each owner's changes are recorded in `journal` from here on.
    pub fn start(
        redis: &Redis,
        journal: Arc<dyn OwnerJournal>,
        owners: Vec<PublishedOwner>,
        options: PublisherOptions,
        clock: Arc<dyn Clock>,
        stop: &CancellationToken,
    ) -> Self {
        let options =
            PublisherOptions { lease: options.lease.clamp(SHORTEST_LEASE, LONGEST_LEASE), ..options };
        let writer = uuid::Uuid::new_v4().simple().to_string();
        let now = clock.now();
        let mut seats = BTreeMap::new();
        let mut lanes: BTreeMap<u8, Vec<Arc<Seat>>> = BTreeMap::new();
        for owner in owners {
            let exchange = Exchange::new(&owner, &writer, &options);
            let lane = if redis.is_cluster() { exchange.stream() } else { 0 };
            let machine = Mutex::new(OwnerPublisher::new(owner.id.clone(), owner.slot, options, now));
            let seat = Arc::new(Seat { exchange, machine });
            if seats.insert(owner.id, Arc::clone(&seat)).is_none() {
                lanes.entry(lane).or_default().push(seat);
            }
        }
        let mut tasks = JoinSet::new();
        for seats in lanes.into_values() {
            let lane = Lane {
                redis: redis.clone(),
                journal: Arc::clone(&journal),
                clock: Arc::clone(&clock),
                seats,
                flush: options.flush,
                call_limit: options.call_limit,
            };
            tasks.spawn(keep_going(Arc::new(lane), stop.clone()));
        }
        Self { seats, lanes: Mutex::new(tasks), clock }
    }

    /// How every owner does.
    pub fn status(&self) -> Vec<PublisherStatus> {
        let now = self.clock.now();
        self.seats.values().map(|seat| seat.machine.lock().status(now)).collect()
    }

    /// Hands in what a restarted agent is to find under [`load_resume_state`]; the newest one is kept. It is written while
    /// we are the owner's writer, and stays for ten minutes after the last sign of us. An unknown owner is ignored.
    ///
    /// # Errors
    /// It is larger than [`MOST_RESUME_BYTES`].
    pub fn set_resume_state(&self, owner: &EndpointId, state: Bytes) -> Result<(), ResumeTooLarge> {
        if state.len() > MOST_RESUME_BYTES {
            return Err(ResumeTooLarge(state.len()));
        }
        if let Some(seat) = self.seats.get(owner) {
            seat.machine.lock().set_resume_state(state);
        }
        Ok(())
    }

    /// Whether the agent hears what the owner's engine does; at the start it is taken to. While it does not, the lease is
    /// not renewed, so that it runs out and readers do not rely on what may be true no longer. Another agent may take the
    /// owner over then. From `true` on it goes on as before if we are still the writer, else as at the start. An unknown
    /// owner is ignored.
    pub fn set_heard(&self, owner: &EndpointId, heard: bool) {
        if let Some(seat) = self.seats.get(owner) {
            seat.machine.lock().set_heard(self.clock.now(), heard);
        }
    }

    /// After `stop`: waits until the last changes are sent and the leases given up; two or three seconds at most for each.
    pub async fn finished(self) {
        let mut lanes = self.lanes.into_inner();
        while lanes.join_next().await.is_some() {}
    }
}

async fn keep_going(lane: Arc<Lane>, stop: CancellationToken) {
    let begin = || Arc::clone(&lane).run(stop.clone());
    supervise("publishing owners", &stop, begin, || lane.start_over()).await;
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("owners", &self.seats.len()).finish_non_exhaustive()
    }
}
