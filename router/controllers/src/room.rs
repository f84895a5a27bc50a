//! The start of everything: watches, the translator, the lease, the writer.

mod refusals;
mod translator;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::Client;
use kvasir_state::Plan;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bootstrap::{Site, bootstrap};
use crate::lease::{Campaign, ClusterLease, Leadership};
use crate::translate::Options;
use crate::watch::{KindStatus, Store, WatchedKind, Watches};
use crate::writer::{ClusterStatus, Outbox, Pace, Writer, WriterCounts};
use translator::{Counts, Translator};

/// Takes every new plan.
pub trait PlanSink: Send + Sync {
    /// Makes the plan the one that requests are routed by. Called one at a time, on a thread that may block, with the
    /// first plan once every kind was listed.
    fn apply(&self, plan: Plan);
}

/// What the room does, and how fast.
#[derive(Clone, Debug)]
pub struct RoomOptions {
    /// Which kinds count, and how they are translated.
    pub translate: Options,
    /// The one namespace whose objects count; `None` for all.
    pub watch_namespace: Option<String>,
    /// The router's own namespace: of the lease, and of the Gateway `default`.
    pub namespace: String,
    /// This replica's name, which no other has: that of its pod.
    pub replica: String,
    /// The name of the lease.
    pub lease: String,
    /// The port of the Gateway `default`.
    pub port: u16,
    /// Ports of listeners that cannot be opened now, each with the reason, as they come and go.
    pub failed_ports: watch::Receiver<BTreeMap<u16, String>>,
    /// How many plans a second.
    pub max_rate: NonZeroU32,
    /// How many statuses a second are written.
    pub status_rate: NonZeroU32,
    /// How many statuses are written at once after a pause.
    pub status_burst: NonZeroU32,
}

impl RoomOptions {
    /// The name of the lease where nothing else is said.
    pub const LEASE: &str = "kvasir-router";

    /// The usual options of a replica.
    pub fn new(namespace: impl Into<String>, replica: impl Into<String>, port: u16) -> Self {
        const PLANS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);
        const STATUSES: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);
        Self {
            translate: Options::default(),
            watch_namespace: None,
            namespace: namespace.into(),
            replica: replica.into(),
            lease: Self::LEASE.to_owned(),
            port,
            failed_ports: watch::channel(BTreeMap::new()).1,
            max_rate: PLANS,
            status_rate: STATUSES,
            status_burst: STATUSES,
        }
    }
}

/// How the room is doing.
#[derive(Clone, Debug)]
pub struct RoomStatus {
    /// Whether the first plan was applied.
    pub synced: bool,
    /// Every kind that is watched.
    pub kinds: Vec<KindStatus>,
    /// How many plans were made.
    pub translations: u64,
    /// How long the last one took, its use included.
    pub last_translation: Option<Duration>,
    /// How many objects the last one passed over.
    pub skipped: u64,
    /// Whether this replica leads.
    pub leader: bool,
    /// Which replica holds the lease, as far as is known.
    pub lease_holder: Option<String>,
    /// How many statuses were written.
    pub statuses_written: u64,
    /// How many writes failed, or left nothing.
    pub status_failures: u64,
    /// How many statuses wait to be written.
    pub statuses_waiting: usize,
}

/// The room, at work until its token is cancelled.
pub struct Room {
    store: Arc<Store>,
    synced: watch::Receiver<bool>,
    counts: Arc<Counts>,
    leadership: Leadership,
    outbox: Arc<Outbox>,
    written: Arc<WriterCounts>,
    tasks: TaskTracker,
}

impl Room {
    /// Starts to watch. Never fails: what cannot be reached is tried until it can, and said in [`Room::status`].
    /// Must be called in a tokio runtime.
    pub fn start(
        client: Client,
        options: RoomOptions,
        sink: Arc<dyn PlanSink>,
        stop: CancellationToken,
    ) -> Self {
        let kinds = WatchedKind::wanted(&options.translate);
        let store = Arc::new(Store::new(kinds.iter().copied()));
        let tasks = TaskTracker::new();
        let lease = ClusterLease::new(client.clone(), &options.namespace, &options.lease);
        let (campaign, leadership) = Campaign::new(lease, &options.replica);
        let outbox = Arc::new(Outbox::default());
        let written = Arc::new(WriterCounts::default());
        let writer = Writer::new(
            ClusterStatus(client.clone()),
            Arc::clone(&outbox),
            leadership.clone(),
            options.translate.controller_name.clone(),
            Pace::new(options.status_rate, options.status_burst),
            Arc::clone(&written),
        );
        let (translator, synced, counts) = Translator::new(
            Arc::clone(&store),
            options.translate.clone(),
            Duration::from_secs(1) / options.max_rate.get(),
            sink,
            (leadership.clone(), Arc::clone(&outbox)),
        );
        let translator = translator.heeding(options.failed_ports.clone());
        let site = Site {
            namespace: options.namespace,
            watched: options.watch_namespace.clone(),
            port: options.port,
        };
        let watches = Watches {
            client: client.clone(),
            namespace: options.watch_namespace,
            store: Arc::clone(&store),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        for kind in kinds {
            watches.start(kind);
        }
        tasks.spawn(campaign.run(stop.clone()));
        spawn_until(&tasks, &stop, writer.run());
        spawn_until(&tasks, &stop, translator.run());
        if options.translate.gateway_api {
            spawn_until(&tasks, &stop, bootstrap(client, options.translate, site));
        }
        tasks.close();
        Self { store, synced, counts, leadership, outbox, written, tasks }
    }

    /// Waits until the first plan was applied. Forever, if the room is stopped before.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        if synced.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the first plan was applied.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The kinds that were not listed in full yet; the first plan waits for them.
    pub fn pending(&self) -> Vec<&'static str> {
        self.store.pending()
    }

    /// Everything that is watched, as it was last seen.
    pub fn objects(&self) -> Arc<crate::Objects> {
        self.store.objects()
    }

    /// How the room is doing.
    pub fn status(&self) -> RoomStatus {
        let counts = self.counts.read();
        RoomStatus {
            synced: self.is_synced(),
            kinds: self.store.kinds(),
            translations: counts.translations,
            last_translation: counts.last,
            skipped: counts.skipped,
            leader: self.leadership.holds(),
            lease_holder: self.leadership.holder(),
            statuses_written: self.written.written.load(Ordering::Relaxed),
            status_failures: self.written.failed.load(Ordering::Relaxed),
            statuses_waiting: self.outbox.len(),
        }
    }

    /// Waits until everything has ended after the token was cancelled; the lease is given back then.
    pub async fn ended(&self) {
        self.tasks.wait().await;
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("status", &self.status()).finish_non_exhaustive()
    }
}

fn spawn_until(
    tasks: &TaskTracker,
    stop: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let stop = stop.clone();
    tasks.spawn(async move {
        stop.run_until_cancelled(work).await;
    });
}
