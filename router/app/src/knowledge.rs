//! What the router learns by itself beside the requests: event sources, event streams, loads, capacities.

mod reach;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    BlockSize, Clock, Endpoint, EndpointId, EngineKind, EngineSample, Needs, SampleError, SampleSink,
    SideClient,
};
use kvasir_gateway::Gateway;
use kvasir_kvcache::{Index, KvEventsSource, OwnerStats, follow, parse_kv_event_sources};
use kvasir_settings::Settings;
use kvasir_settings::resolved::{EndpointSettings, KvEventsSettings};
use kvasir_state::{Attempt, State};
use kvasir_upstream::{Discovery, ScrapeOptions, ScrapeTarget, Scraper, discover};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::findings;
use crate::house::House;
use crate::sharing::Sharing;

/// For one question to an engine.
const ASK: Duration = Duration::from_secs(2);

/// Waits between questions to an engine that does not answer: doubled from the first to the last.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// How long readiness waits for every engine's caches to be known. An engine that hangs must not keep the router
/// from serving the others.
const FIRST_KNOWLEDGE: Duration = Duration::from_secs(5);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is looked whether an engine's caches are to be had from Redis or from the engine.
const CHOOSE: Duration = Duration::from_secs(2);

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

    fn probed(&self, endpoint: &EndpointId, healthy: bool) {
        self.state.probed(endpoint, healthy);
    }
}

/// Starts everything that learns. Ends with `stop`.
pub fn start(
    house: &House,
    settings: &Settings,
    sharing: &Arc<Sharing>,
    stop: &CancellationToken,
) -> Learning {
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
    let mut watchers = JoinSet::new();
    let follows = gateway.scheduler.profile().needs().contains(Needs::PREFIX_HITS);
    for model in &settings.models {
        for endpoint in &model.endpoints {
            let ranks = ranks_of(gateway, endpoint);
            let site = Site {
                gateway: Arc::clone(gateway),
                client: Arc::clone(&house.client) as Arc<dyn SideClient>,
                clock: Arc::clone(&house.clock),
                endpoint: endpoint.clone(),
                ranks,
                engine: model.engine,
                follows,
                sharing: Arc::clone(sharing),
                stop: stop.clone(),
            };
            watchers.spawn(site.learn());
        }
    }
    Learning { watchers, gateway: Arc::clone(gateway) }
}

/// Everything that is being learned.
#[derive(Debug)]
pub struct Learning {
    watchers: JoinSet<Learned>,
    gateway: Arc<Gateway>,
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
    /// Waits until what the engines hold is known, as far as it can be, or a few seconds have passed; prints what
    /// was found. Engines that answer later are picked up whenever they do.
    pub async fn first_knowledge(mut self) {
        let deadline = tokio::time::Instant::now() + FIRST_KNOWLEDGE;
        let mut learned = Vec::new();
        while let Ok(Some(Ok(found))) = tokio::time::timeout_at(deadline, self.watchers.join_next()).await {
            learned.push(found);
        }
        // Tokenizers load at the same time; without them the first requests would be routed by load.
        let _ = tokio::time::timeout_at(deadline, self.gateway.tokens.loaded()).await;
        let followed: Vec<_> = learned
            .iter()
            .filter(|found| !found.sources.is_empty())
            .flat_map(|found| found.ranks.clone())
            .collect();
        while tokio::time::Instant::now() < deadline && !self.all_known(&followed) {
            tokio::time::sleep(LOOK).await;
        }
        findings::print(&self.gateway, &learned);
        findings::print_tokens(&self.gateway);
        // The watchers that still ask go on without anybody waiting for them.
        self.watchers.detach_all();
    }

    fn all_known(&self, followed: &[Arc<Endpoint>]) -> bool {
        let known: HashMap<_, OwnerStats> =
            self.gateway.index.stats().into_iter().map(|stats| (stats.slot, stats)).collect();
        followed.iter().all(|endpoint| known.get(&endpoint.slot).is_some_and(findings::settled))
    }
}

/// One URL whose engine is asked and followed.
struct Site {
    gateway: Arc<Gateway>,
    client: Arc<dyn SideClient>,
    clock: Arc<dyn Clock>,
    endpoint: EndpointSettings,
    ranks: Vec<Arc<Endpoint>>,
    engine: EngineKind,
    /// Whether any scorer asks who holds what.
    follows: bool,
    sharing: Arc<Sharing>,
    stop: CancellationToken,
}

impl Site {
    /// Starts following configured sources at once. Else what is published in Redis is taken from there, and only where
    /// nothing is, the engine is asked for its sources, until it answers.
    async fn learn(self) -> Learned {
        let url = self.endpoint.address.url();
        if !self.endpoint.kv_events.is_empty() {
            let sources: Vec<_> = self.endpoint.kv_events.iter().map(source_of).collect();
            drop(self.follow(&sources));
            let discovery = self.ask_once().await;
            return Learned { url, discovery, sources, ranks: self.ranks };
        }
        self.sharing.first_sync().await;
        let discovery = self.ask_once().await;
        let answered = discovery.as_ref().is_some_and(answered);
        let published = self.is_published();
        let sources = match &discovery {
            Some(found) if !published => self.sources_in(found),
            _ => Vec::new(),
        };
        let followed = self.follow(&sources);
        let learned = Learned { url, discovery, sources, ranks: self.ranks.clone() };
        if self.sharing.mirrors() && self.follows {
            tokio::spawn(self.keep_choosing(followed));
        } else if !answered {
            tokio::spawn(self.keep_asking());
        }
        learned
    }

    fn is_published(&self) -> bool {
        self.sharing.publishes(self.ranks.iter().map(|endpoint| &endpoint.id))
    }

    /// Whether some of what is known was read from Redis.
    fn is_mirrored(&self) -> bool {
        let is_ours = |slot| self.ranks.iter().any(|endpoint| endpoint.slot == slot);
        self.gateway.index.stats().iter().any(|stats| stats.mirrored && is_ours(stats.slot))
    }

    /// Redis or the engine's own sources, for as long as the router runs: what is published is taken from Redis, and an
    /// engine that nobody publishes any more, as far as Redis tells or since Redis tells nothing, is followed directly where
    /// it names its sources.
    async fn keep_choosing(self, mut followed: Option<CancellationToken>) {
        let mut differed = false;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(CHOOSE) => {}
            }
            let published = self.is_published();
            // Twice in a row: an agent that is started again takes its owner up at once.
            let differs = published == followed.is_some();
            if !std::mem::replace(&mut differed, differs) || !differs {
                continue;
            }
            if let Some(stop) = followed.take_if(|_| published) {
                stop.cancel();
                self.ranks.iter().for_each(|endpoint| self.sharing.sources().leave(endpoint.slot));
                tracing::info!(url = %self.endpoint.address.url(), "an agent publishes this engine; what it holds is taken from Redis");
                continue;
            }
            let Some(found) = self.ask_once().await else { return };
            let sources = self.sources_in(&found);
            // To follow is to begin with nothing. What was read from Redis, however old, is not given up for ports that
            // are closed to us.
            if self.is_mirrored() && !reach::all_open(&sources).await {
                continue;
            }
            followed = self.follow(&sources);
            if followed.is_some() {
                tracing::info!(url = %self.endpoint.address.url(), "nobody publishes this engine; its own events are followed");
            }
        }
    }

    async fn ask_once(&self) -> Option<Discovery> {
        tokio::select! {
            () = self.stop.cancelled() => None,
            found = discover(self.client.as_ref(), &self.endpoint.address, self.engine, ASK) => Some(found),
        }
    }

    /// For an engine that is not up yet.
    async fn keep_asking(self) {
        let mut wait = ASK_AGAIN.0;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = (wait * 2).min(ASK_AGAIN.1);
            let Some(found) = self.ask_once().await else { return };
            if answered(&found) {
                let sources = self.sources_in(&found);
                drop(self.follow(&sources));
                let learned = Learned {
                    url: self.endpoint.address.url(),
                    discovery: Some(found),
                    sources,
                    ranks: self.ranks.clone(),
                };
                findings::print(&self.gateway, &[learned]);
                return;
            }
        }
    }

    /// The event sources an engine names.
    fn sources_in(&self, found: &Discovery) -> Vec<KvEventsSource> {
        let Some(body) = &found.event_sources_body else { return Vec::new() };
        parse_kv_event_sources(body, &self.endpoint.address.host).unwrap_or_else(|error| {
            tracing::warn!(url = %self.endpoint.address.url(), %error, "/kv_event_sources cannot be read");
            Vec::new()
        })
    }

    /// Starts one follower for each rank that has a source; gives what ends them, where there is one.
    fn follow(&self, sources: &[KvEventsSource]) -> Option<CancellationToken> {
        if !self.follows || sources.is_empty() {
            return None;
        }
        let stop = self.stop.child_token();
        for source in sources {
            let rank = source.rank.unwrap_or(0);
            let Some(endpoint) = self.ranks.iter().find(|endpoint| endpoint.id.rank == rank) else {
                tracing::warn!(
                    url = %self.endpoint.address.url(), rank,
                    "the engine has more data-parallel ranks than configured; set dataParallel of the endpoint"
                );
                continue;
            };
            let index = Arc::clone(&self.gateway.index);
            self.sharing.sources().follow(endpoint.slot);
            // Registered anew with the source's name: nothing is known yet that could be lost.
            if let Err(error) = index.register(endpoint.slot, &endpoint.model, source.to_string()) {
                tracing::warn!(endpoint = %endpoint.id, %error, "the endpoint's events are not followed");
                continue;
            }
            drop(follow(index, endpoint.slot, source.clone(), Arc::clone(&self.clock), stop.clone()));
        }
        Some(stop)
    }
}

/// Whether the engine could be asked at all.
fn answered(found: &Discovery) -> bool {
    !found.served_models.is_empty() || found.event_sources_body.is_some()
}

fn ranks_of(gateway: &Gateway, endpoint: &EndpointSettings) -> Vec<Arc<Endpoint>> {
    gateway
        .state
        .scrape_targets()
        .into_iter()
        .map(|(known, _)| known)
        .filter(|known| known.address == endpoint.address)
        .collect()
}

fn source_of(settings: &KvEventsSettings) -> KvEventsSource {
    KvEventsSource::configured(&settings.endpoint, settings.replay.as_deref(), &settings.topic, settings.rank)
}
