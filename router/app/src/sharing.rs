//! What the router shares with other replicas through Redis: the view of caches, and the load in flight.

mod mode;
mod sink;
mod view;

use std::sync::Arc;
use std::time::Duration;

use kvasir_coordination::kthena::{Garbage, GarbageOptions};
use kvasir_coordination::load::{LoadExchange, LoadOptions};
use kvasir_coordination::{
    BreakerLimits, KthenaLookup, LookupOptions, Mirror, MirrorOptions, Redis, RedisSetupError, UsageExchange,
    UsageOptions,
};
use kvasir_core::{BlockLookup, Clock, EndpointId, LoadBoard, MirrorSink, Needs, UsageBoard};
use kvasir_plugins::{HitSource, StoreLookup};
use kvasir_settings::resolved::AdmissionSettings;
use kvasir_settings::{CoordinationMode, Settings, SharedLoadMode};
use kvasir_state::State;
use tokio_util::sync::CancellationToken;

use crate::house::House;
use sink::Sink;
pub use sink::Sources;
use view::View;

/// How long the start waits for what is published to be loaded. Redis must not keep the router from serving.
const FIRST_SYNC: Duration = Duration::from_secs(3);

/// A way to Redis, and the lookup over it. No I/O before the router serves.
pub struct Store {
    /// The connection.
    pub redis: Redis,
    /// Another one, for work that no request waits for and that brings large answers.
    pub background: Redis,
    /// Where it is, without secrets.
    pub name: String,
    /// Asks kthena's layout.
    pub lookup: KthenaLookup,
    /// Which requests ask it, and which the index.
    pub source: Arc<HitSource>,
}

impl Store {
    /// Prepares what the settings name; `None` without a Redis.
    ///
    /// # Errors
    /// A certificate or key file that cannot be used.
    pub fn prepare(settings: &Settings) -> Result<Option<Self>, RedisSetupError> {
        let Some(redis_settings) = &settings.redis else { return Ok(None) };
        let redis = Redis::new(redis_settings.clone())?;
        let options = LookupOptions {
            budget: settings.scheduler.args.kvcache_aware.query_budget,
            breaker: BreakerLimits::default(),
        };
        let lookup = KthenaLookup::new(redis.clone(), options);
        Ok(Some(Self {
            redis,
            background: Redis::new(redis_settings.clone())?,
            name: redis_settings.to_string(),
            lookup,
            source: Arc::new(HitSource::new(settings.coordination.into())),
        }))
    }

    /// What the plugins need of it.
    pub fn for_plugins(&self) -> StoreLookup {
        StoreLookup {
            lookup: Arc::new(self.lookup.clone()) as Arc<dyn BlockLookup>,
            source: Arc::clone(&self.source),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Everything that runs over Redis.
pub struct Sharing {
    mirror: Option<Arc<Mirror>>,
    load: Option<LoadExchange>,
    usage: Option<UsageExchange>,
    sources: Arc<Sources>,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}

impl Sharing {
    /// Starts what the settings ask for; must be called inside a runtime. Without a Redis nothing runs.
    pub fn start(house: &House, settings: &Settings, stop: &CancellationToken) -> Arc<Self> {
        let sources = Arc::new(Sources::default());
        let Some(store) = &house.store else {
            return Arc::new(Self { mirror: None, load: None, usage: None, sources });
        };
        let gateway = &house.gateway;
        let clock = Arc::clone(&house.clock);
        let asks_for_prefixes = gateway.scheduling.scheduler().profile().needs().contains(Needs::PREFIX_HITS);
        let mirrors = asks_for_prefixes && settings.coordination != Some(CoordinationMode::Query);
        let mirror = mirrors.then(|| {
            let sink = Sink::new(house, Arc::clone(&sources), &store.name);
            let options = MirrorOptions { grace: settings.mirror_grace, ..MirrorOptions::default() };
            let sink = Arc::new(sink) as Arc<dyn MirrorSink>;
            Arc::new(Mirror::start(&store.redis, sink, options, Arc::clone(&clock), stop))
        });
        let load = load_exchange(store, settings, &gateway.state, &clock, stop);
        let usage = usage_exchange(store, settings, house, stop);
        // kthena's sidecars remove nothing that a dead pod left, whoever reads it.
        let garbage = Garbage::start(store.background.clone(), GarbageOptions::default(), stop.clone());
        if asks_for_prefixes && settings.coordination.is_none() {
            let source = Arc::clone(&store.source);
            tokio::spawn(mode::look_for_kthena(store.background.clone(), source, stop.clone()));
        }
        let view = View::new(store, Arc::clone(&gateway.state), mirror.clone(), garbage)
            .with_exchanges(load.clone(), usage.clone());
        gateway.coordination.show(Arc::new(view));
        Arc::new(Self { mirror, load, usage, sources })
    }

    /// Waits until what is published is loaded, or for a short time.
    pub async fn first_sync(&self) {
        if let Some(mirror) = &self.mirror {
            let _ = tokio::time::timeout(FIRST_SYNC, mirror.first_sync()).await;
        }
    }

    /// Whether all these owners are published in Redis now.
    pub fn publishes<'a>(&self, mut owners: impl Iterator<Item = &'a EndpointId>) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| owners.all(|owner| mirror.publishes(owner)))
    }

    /// Whether owners may come from Redis at all.
    pub fn mirrors(&self) -> bool {
        self.mirror.is_some()
    }

    /// Who is followed directly.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Withdraws our part of what is shared; bounded. Called after the stop.
    pub async fn finished(&self) {
        if let Some(load) = &self.load {
            load.finished().await;
        }
        if let Some(usage) = &self.usage {
            usage.finished().await;
        }
    }
}

fn load_exchange(
    store: &Store,
    settings: &Settings,
    state: &Arc<State>,
    clock: &Arc<dyn Clock>,
    stop: &CancellationToken,
) -> Option<LoadExchange> {
    if settings.shared_load == SharedLoadMode::Off {
        return None;
    }
    let board = Arc::clone(state) as Arc<dyn LoadBoard>;
    let options = LoadOptions::new(settings.shared_load, settings.replica_name.clone());
    Some(LoadExchange::start(store.redis.clone(), board, options, Arc::clone(clock), stop.clone()))
}

/// What users used is shared wherever it decides about anything.
fn usage_exchange(
    store: &Store,
    settings: &Settings,
    house: &House,
    stop: &CancellationToken,
) -> Option<UsageExchange> {
    if !matches!(settings.admission, AdmissionSettings::Fairness(_)) {
        return None;
    }
    let board = Arc::clone(house.gateway.turnstile.admission()) as Arc<dyn UsageBoard>;
    let options = UsageOptions::new(settings.replica_name.clone());
    let clock = Arc::clone(&house.clock);
    Some(UsageExchange::start(store.redis.clone(), board, options, clock, stop.clone()))
}
