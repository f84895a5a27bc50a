//! One URL whose engine is asked and followed, for as long as its endpoints are there.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::Endpoint;
use kvasir_kvcache::{KvEventsSource, follow, parse_kv_event_sources};
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_upstream::{Discovery, discover};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::followers::Followers;
use super::{Learned, Learner, PLACEMENTS, reach};

/// For one question to an engine.
const ASK: Duration = Duration::from_secs(2);

/// Waits between questions to an engine that does not answer: doubled from the first to the last.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// How often it is looked whether an engine's caches are to be had from Redis or from the engine.
const CHOOSE: Duration = Duration::from_secs(2);

/// One URL. Data-parallel ranks share it.
#[derive(Debug)]
pub struct Site {
    learner: Arc<Learner>,
    /// The endpoints behind the URL. Never empty.
    ranks: Vec<Arc<Endpoint>>,
    url: String,
    /// Event sources that the settings name; empty asks the engine.
    configured: Vec<KvEventsSource>,
    stop: CancellationToken,
}

impl Site {
    /// The site of these endpoints; `None` without any.
    pub fn new(
        learner: &Arc<Learner>,
        ranks: Vec<Arc<Endpoint>>,
        configured: &[KvEventsSettings],
        stop: CancellationToken,
    ) -> Option<Self> {
        let url = ranks.first()?.address.url();
        let configured = configured.iter().map(source_of).collect();
        Some(Self { learner: Arc::clone(learner), ranks, url, configured, stop })
    }

    /// Learns until the site's token is cancelled. When this has ended, nothing of the site writes into the index any
    /// more.
    pub async fn run(self) {
        self.start_over();
        let mut followers = Followers::new(&self.stop);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.learn(&mut followers) => self.stop.cancelled().await,
        }
        followers.end(&self.stop).await;
    }

    /// Where an earlier site followed the same endpoint, what it knew is nobody's any more: nobody reads on.
    fn start_over(&self) {
        let sources = self.learner.sharing.sources();
        for endpoint in self.ranks.iter().filter(|endpoint| sources.is_direct(endpoint.slot)) {
            sources.leave(endpoint.slot);
            let index = &self.learner.gateway.index;
            if let Err(error) = index.register(endpoint.slot, &endpoint.model, PLACEMENTS) {
                tracing::warn!(endpoint = %endpoint.id, %error, "what the endpoint caches is not known");
            }
        }
    }

    /// Starts following configured sources at once. Else what is published in Redis is taken from there, and only where
    /// nothing is, the engine is asked for its sources, until it answers.
    async fn learn(&self, followers: &mut Followers) {
        if !self.configured.is_empty() {
            self.follow(&self.configured, followers);
            let discovery = self.ask().await;
            return self.report(discovery, self.configured.clone()).await;
        }
        let sharing = &self.learner.sharing;
        sharing.first_sync().await;
        let discovery = self.ask().await;
        let answered = discovery.as_ref().is_some_and(answered);
        let sources = match &discovery {
            Some(found) if !self.is_published() => self.sources_in(found),
            _ => Vec::new(),
        };
        self.follow(&sources, followers);
        self.report(discovery, sources).await;
        if sharing.mirrors() && self.learner.follows {
            self.keep_choosing(followers).await;
        } else if !answered {
            self.keep_asking(followers).await;
        }
    }

    async fn report(&self, discovery: Option<Discovery>, sources: Vec<KvEventsSource>) {
        let learned = Learned { url: self.url.clone(), discovery, sources, ranks: self.ranks.clone() };
        // Nobody listens any more at the end of the process.
        let _ = self.learner.reports.send(learned).await;
    }

    fn is_published(&self) -> bool {
        self.learner.sharing.publishes(self.ranks.iter().map(|endpoint| &endpoint.id))
    }

    /// Whether some of what is known was read from Redis.
    fn is_mirrored(&self) -> bool {
        let is_ours = |slot| self.ranks.iter().any(|endpoint| endpoint.slot == slot);
        self.learner.gateway.index.stats().iter().any(|stats| stats.mirrored && is_ours(stats.slot))
    }

    /// Redis or the engine's own sources, for as long as the site is there: what is published is taken from Redis, and an
    /// engine that nobody publishes any more, as far as Redis tells or since Redis tells nothing, is followed directly where
    /// it names its sources.
    async fn keep_choosing(&self, followers: &mut Followers) {
        let mut differed = false;
        let (mut wait, mut next) = (ASK_AGAIN.0, Instant::now());
        loop {
            tokio::time::sleep(CHOOSE).await;
            let published = self.is_published();
            // Twice in a row: an agent that is started again takes its owner up at once.
            let differs = published == followers.any();
            if !std::mem::replace(&mut differed, differs) || !differs {
                continue;
            }
            if published {
                followers.end(&self.stop).await;
                let sources = self.learner.sharing.sources();
                self.ranks.iter().for_each(|endpoint| sources.leave(endpoint.slot));
                tracing::info!(url = %self.url, "an agent publishes this engine; what it holds is taken from Redis");
                (wait, next) = (ASK_AGAIN.0, Instant::now());
                continue;
            }
            if Instant::now() < next {
                continue;
            }
            wait = (wait * 2).min(ASK_AGAIN.1);
            next = Instant::now() + wait;
            let Some(found) = self.ask().await else { continue };
            let sources = self.sources_in(&found);
            // To follow is to begin with nothing. What was read from Redis, however old, is not given up for ports that
            // are closed to us.
            if self.is_mirrored() && !reach::all_open(&sources).await {
                continue;
            }
            self.follow(&sources, followers);
            if followers.any() {
                tracing::info!(url = %self.url, "nobody publishes this engine; its own events are followed");
            }
        }
    }

    /// Asks the engine, unless it is not to be asked now: it left, or its pod is not ready.
    async fn ask(&self) -> Option<Discovery> {
        let _turn = self.learner.asks.acquire().await.ok()?;
        let state = &self.learner.gateway.state;
        // As it is spoken to now.
        let endpoint = state.endpoint_by_slot(self.ranks.first()?.slot)?;
        if !self.ranks.iter().any(|rank| state.is_ready(&rank.id)) {
            return None;
        }
        Some(discover(self.learner.client.as_ref(), &endpoint.address, endpoint.engine, ASK).await)
    }

    /// For an engine that is not up yet.
    async fn keep_asking(&self, followers: &mut Followers) {
        let mut wait = ASK_AGAIN.0;
        loop {
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(ASK_AGAIN.1);
            if let Some(found) = self.ask().await.filter(answered) {
                let sources = self.sources_in(&found);
                self.follow(&sources, followers);
                return self.report(Some(found), sources).await;
            }
        }
    }

    /// The event sources an engine names.
    fn sources_in(&self, found: &Discovery) -> Vec<KvEventsSource> {
        let (Some(body), Some(first)) = (&found.event_sources_body, self.ranks.first()) else {
            return Vec::new();
        };
        parse_kv_event_sources(body, &first.address.host).unwrap_or_else(|error| {
            tracing::warn!(url = %self.url, %error, "/kv_event_sources cannot be read");
            Vec::new()
        })
    }

    /// Starts one follower for each rank that has a source.
    fn follow(&self, sources: &[KvEventsSource], followers: &mut Followers) {
        if !self.learner.follows {
            return;
        }
        for source in sources {
            let rank = source.rank.unwrap_or(0);
            let Some(endpoint) = self.ranks.iter().find(|endpoint| endpoint.id.rank == rank) else {
                tracing::warn!(
                    url = %self.url, rank,
                    "the engine has more data-parallel ranks than configured; set dataParallel of the endpoint, or \
                     the annotation kvasir.io/data-parallel-ranks of the pod"
                );
                continue;
            };
            let index = Arc::clone(&self.learner.gateway.index);
            self.learner.sharing.sources().follow(endpoint.slot);
            // Registered anew with the source's name: nothing is known yet that could be lost.
            if let Err(error) = index.register(endpoint.slot, &endpoint.model, source.to_string()) {
                tracing::warn!(endpoint = %endpoint.id, %error, "the endpoint's events are not followed");
                continue;
            }
            let clock = Arc::clone(&self.learner.clock);
            followers.add(follow(index, endpoint.slot, source.clone(), clock, followers.token()));
        }
    }
}

/// Whether the engine could be asked at all.
fn answered(found: &Discovery) -> bool {
    !found.served_models.is_empty() || found.event_sources_body.is_some()
}

fn source_of(settings: &KvEventsSettings) -> KvEventsSource {
    KvEventsSource::configured(&settings.endpoint, settings.replay.as_deref(), &settings.topic, settings.rank)
}
