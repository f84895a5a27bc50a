//! What the router learns by itself beside the requests: event sources, event streams, loads, capacities.

mod followers;
mod reach;
mod site;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    BlockSize, Clock, Endpoint, EndpointId, EngineAdapters, EngineSample, Needs, SampleError, SampleSink,
    SideClient,
};
use kvasir_gateway::Gateway;
use kvasir_kvcache::{Index, KvEventsSource, OwnerStats};
use kvasir_settings::Settings;
use kvasir_state::{Attempt, State};
use kvasir_upstream::{Discovery, ScrapeOptions, ScrapeTarget, Scraper};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::findings;
use crate::house::House;
use crate::sharing::Sharing;

pub use site::Site;

/// What the index shows as the source of an endpoint whose events nobody reads.
pub const PLACEMENTS: &str = "placements";

/// How long readiness waits for every engine's caches to be known. An engine that hangs must not keep the router
/// from serving the others.
const FIRST_KNOWLEDGE: Duration = Duration::from_secs(5);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Engines that are asked at once. A fleet of thousands appears in one moment when a cluster's router starts.
const ASKED_AT_ONCE: usize = 64;

/// Reports that wait to be told.
const REPORTS: usize = 1024;

/// How long reports are gathered, so that a scaled-up fleet is told of in one go.
const GATHER: Duration = Duration::from_secs(1);

/// Writes scrapes into the registry, and capacities into the index.
#[derive(Debug)]
struct Sampler {
    state: Arc<State>,
    index: Arc<Index>,
}

impl SampleSink for Sampler {
    fn in_flight(&self, endpoint: &EndpointId) -> u32 {
        self.state.in_flight(endpoint)
    }

    fn sampled(&self, endpoint: &EndpointId, result: Result<EngineSample, SampleError>) {
        if let (Ok(sample), Some(known)) = (&result, self.state.endpoint(endpoint))
            && sample.kv_blocks > 0
            && let Some(size) = BlockSize::new(sample.block_size)
        {
            self.index.set_capacity(known.slot, sample.kv_blocks as usize, size);
        }
        // An engine that refuses connections is taken out before a request has to find out.
        if matches!(result, Err(SampleError::Connect(_))) {
            self.state.report(endpoint, Attempt::ConnectFailed);
        }
        self.state.sampled(endpoint, result);
    }

    fn models_listed(&self, endpoint: &EndpointId, models: Vec<String>) {
        self.state.models_listed(endpoint, models);
    }

    fn adapters_listed(&self, endpoint: &EndpointId, adapters: Vec<String>) {
        self.state.adapters_listed(endpoint, adapters);
    }

    fn adapters_seen(&self, endpoint: &EndpointId, adapters: Option<EngineAdapters>) {
        self.state.adapters_seen(endpoint, adapters);
    }

    fn probed(&self, endpoint: &EndpointId, healthy: bool) {
        self.state.probed(endpoint, healthy);
    }
}

/// Visits the endpoints of the state, whichever they are, until `stop`.
pub fn watch_loads(house: &House, settings: &Settings, sharing: &Arc<Sharing>, stop: &CancellationToken) {
    let gateway = &house.gateway;
    let sink = Arc::new(Sampler { state: Arc::clone(&gateway.state), index: Arc::clone(&gateway.index) });
    let state = Arc::clone(&gateway.state);
    let asleep = Arc::clone(&gateway.state);
    let slept = Arc::clone(&gateway.index);
    let sources = Arc::clone(sharing);
    let options = ScrapeOptions {
        interval: settings.scrape_interval,
        // A sleeping engine has given its cache up without an event (fault case KVE-08).
        on_sleep: Some(Arc::new(move |endpoint, sleeping| {
            asleep.set_asleep(endpoint, sleeping);
            let news =
                sources.sources().set_asleep(endpoint, sleeping, |known| asleep.endpoint(known).is_some());
            if news
                && sleeping
                && let Some(endpoint) = asleep.endpoint(endpoint)
                // What comes from Redis comes anew when the engine is awake; a follower goes on where it is.
                && !slept.lapse(endpoint.slot)
            {
                slept.reset(endpoint.slot);
            }
        })),
        ..ScrapeOptions::default()
    };
    let targets = Arc::new(move || {
        state.scrape_targets().into_iter().map(|(endpoint, probe)| ScrapeTarget { endpoint, probe }).collect()
    });
    let client = Arc::clone(&house.client) as Arc<dyn SideClient>;
    let _scraper = Scraper::start(client, sink, targets, options, Arc::clone(&house.clock), stop.clone());
}

/// What learning about any engine needs.
pub struct Learner {
    gateway: Arc<Gateway>,
    client: Arc<dyn SideClient>,
    clock: Arc<dyn Clock>,
    sharing: Arc<Sharing>,
    /// Whether any scorer asks who holds what.
    follows: bool,
    asks: Semaphore,
    reports: mpsc::Sender<Learned>,
}

impl std::fmt::Debug for Learner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Learner").field("follows", &self.follows).finish_non_exhaustive()
    }
}

impl Learner {
    /// A learner, and where what it finds is told. `first` says how many sites are learned about at the start.
    pub fn new(
        house: &House,
        sharing: &Arc<Sharing>,
        first: watch::Receiver<Option<usize>>,
    ) -> (Arc<Self>, Learning) {
        let gateway = &house.gateway;
        let (reports, told) = mpsc::channel(REPORTS);
        let learner = Self {
            gateway: Arc::clone(gateway),
            client: Arc::clone(&house.client) as Arc<dyn SideClient>,
            clock: Arc::clone(&house.clock),
            sharing: Arc::clone(sharing),
            follows: gateway.scheduling.scheduler().profile().needs().contains(Needs::PREFIX_HITS),
            asks: Semaphore::new(ASKED_AT_ONCE),
            reports,
        };
        let learning =
            Learning { gateway: Arc::clone(gateway), reports: told, first, told_tokens: BTreeSet::new() };
        (Arc::new(learner), learning)
    }
}

/// Everything that is being learned, as it is told.
#[derive(Debug)]
pub struct Learning {
    gateway: Arc<Gateway>,
    reports: mpsc::Receiver<Learned>,
    first: watch::Receiver<Option<usize>>,
    /// Models whose tokens were told of.
    told_tokens: BTreeSet<kvasir_core::ModelName>,
}

/// What was found at one URL.
#[derive(Debug)]
pub struct Learned {
    /// As configured.
    pub url: String,
    /// What the engine said; `None` while it does not answer.
    pub discovery: Option<Discovery>,
    /// Where events are taken from, for each rank.
    pub sources: Vec<KvEventsSource>,
    /// The endpoints behind the URL.
    pub ranks: Vec<Arc<Endpoint>>,
}

impl Learning {
    /// Waits for the first plan, then until what its engines hold is known, as far as it can be, or a few seconds have
    /// passed; prints what was found. Engines that answer later are picked up whenever they do.
    pub async fn first_knowledge(&mut self) {
        // A household that is gone has no first plan any more.
        let expected = self.first.wait_for(Option::is_some).await.ok().and_then(|count| *count);
        let deadline = Instant::now() + FIRST_KNOWLEDGE;
        let mut learned = Vec::new();
        while learned.len() < expected.unwrap_or_default() {
            match tokio::time::timeout_at(deadline, self.reports.recv()).await {
                Ok(Some(found)) => learned.push(found),
                Ok(None) | Err(_) => break,
            }
        }
        // Tokenizers load at the same time; without them the first requests would be routed by load.
        let _ = tokio::time::timeout_at(deadline, self.gateway.tokens.loaded()).await;
        let followed: Vec<_> = learned
            .iter()
            .filter(|found| !found.sources.is_empty())
            .flat_map(|found| found.ranks.clone())
            .collect();
        while Instant::now() < deadline && !self.all_known(&followed) {
            tokio::time::sleep(LOOK).await;
        }
        self.tell(&learned);
    }

    /// Prints what is found later, until `stop`.
    pub async fn keep_telling(mut self, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                () = stop.cancelled() => return,
                found = self.reports.recv() => found,
            };
            let Some(first) = first else { return };
            let mut learned = vec![first];
            let until = Instant::now() + GATHER;
            while let Ok(Some(found)) = tokio::time::timeout_at(until, self.reports.recv()).await {
                learned.push(found);
            }
            self.tell(&learned);
        }
    }

    fn tell(&mut self, learned: &[Learned]) {
        findings::print(&self.gateway, learned);
        findings::print_tokens(&self.gateway, &mut self.told_tokens);
    }

    fn all_known(&self, followed: &[Arc<Endpoint>]) -> bool {
        let known: HashMap<_, OwnerStats> =
            self.gateway.index.stats().into_iter().map(|stats| (stats.slot, stats)).collect();
        // One that has gone meanwhile is not waited for.
        followed.iter().all(|endpoint| known.get(&endpoint.slot).is_none_or(findings::settled))
    }
}
