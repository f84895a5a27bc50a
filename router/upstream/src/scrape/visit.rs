//! One visit to one engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{Method, StatusCode};
use kvasir_core::{
    Clock, Endpoint, EndpointId, EngineAdapters, EngineKind, EngineSample, SampleError, SampleSink,
    SideClient, SideError, SideRequest, SideResponse, UpstreamTls,
};

use super::{ScrapeOptions, ScrapeTarget};
use crate::interval_mean::IntervalMean;
use crate::metrics_page::{MetricsPage, PageNumbers, read_metrics};
use crate::model_list::read_model_list;

/// An engine's health answer is empty or a few words.
const MAX_HEALTH_BYTES: usize = 64 << 10;

/// What is remembered from one visit of a site to the next.
pub(super) type Memory = HashMap<EndpointId, Latencies>;

/// The latency histograms of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latencies {
    ttft: IntervalMean,
    tpot: IntervalMean,
}

/// What to do on a visit.
pub(super) struct Visit {
    pub(super) url: Arc<str>,
    pub(super) targets: Vec<ScrapeTarget>,
    pub(super) memory: Memory,
    pub(super) list_models: bool,
}

/// Where a visit goes.
#[derive(Clone, Copy)]
struct Site<'v> {
    url: &'v str,
    tls: Option<&'v UpstreamTls>,
}

/// What every visit uses.
pub(super) struct Visitor {
    pub(super) client: Arc<dyn SideClient>,
    pub(super) sink: Arc<dyn SampleSink>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: ScrapeOptions,
}

impl Visitor {
    /// Makes the calls of a visit side by side, so that a page that hangs does not hold up the health probe. Gives
    /// back what to remember for the next visit.
    pub(super) async fn visit(&self, visit: Visit) -> Memory {
        let Visit { url, targets, mut memory, list_models } = visit;
        let probe = targets.iter().any(|target| target.probe);
        // All are behind one URL, and spoken to in one way.
        let site =
            Site { url: &url, tls: targets.first().and_then(|first| first.endpoint.address.tls.as_ref()) };
        let models = async {
            if list_models {
                self.list_models(site, &targets).await;
            }
        };
        let health = async {
            if probe {
                self.probe(site, &targets).await;
            }
        };
        tokio::join!(self.scrape(site, &targets, &mut memory), models, health);
        memory
    }

    async fn scrape(&self, site: Site<'_>, targets: &[ScrapeTarget], memory: &mut Memory) {
        let before: Vec<u32> = targets.iter().map(|target| self.in_flight(target, targets)).collect();
        let answer = self.get(site, "/metrics", self.options.max_bytes).await;
        let now = self.clock.now();
        let mut pages = Pages { answer: answer.map_err(sample_error), read: Vec::new() };
        for (target, before) in targets.iter().zip(before) {
            let endpoint = &*target.endpoint;
            let siblings = siblings(target, targets).count();
            let result = pages.numbers(endpoint, siblings).map(|(numbers, adapters)| {
                self.sink.adapters_seen(&endpoint.id, adapters);
                if let (Some(asleep), Some(hook)) = (numbers.asleep, &self.options.on_sleep) {
                    hook(&endpoint.id, asleep);
                }
                // A request that came or went while the page was on its way is in one of the two counts; the
                // larger one never makes our own request look like somebody else's.
                let in_flight = before.max(self.in_flight(target, targets));
                to_sample(&numbers, memory.entry(endpoint.id.clone()).or_default(), now, in_flight)
            });
            self.sink.sampled(&endpoint.id, result);
        }
        memory.retain(|id, _| targets.iter().any(|target| target.endpoint.id == *id));
    }

    /// Requests in flight at `target`: its own where it is pinned; else, as the engine spreads them, the mean over the
    /// ranks it chooses among.
    fn in_flight(&self, target: &ScrapeTarget, targets: &[ScrapeTarget]) -> u32 {
        let (mut sum, mut count) = (0_u32, 0_u32);
        for sibling in siblings(target, targets) {
            sum = sum.saturating_add(self.sink.in_flight(&sibling.endpoint.id));
            count += 1;
        }
        sum.div_ceil(count.max(1))
    }

    /// Tells the models; a failure leaves what was known.
    async fn list_models(&self, site: Site<'_>, targets: &[ScrapeTarget]) {
        let answer = match self.get(site, "/v1/models", self.options.max_bytes).await {
            Ok(answer) if answer.status == StatusCode::OK => answer,
            Ok(_) | Err(_) => return,
        };
        match read_model_list(&answer.body) {
            Ok(models) => {
                let adapters = models.iter().filter(|model| model.is_adapter());
                let adapters: Vec<String> = adapters.map(|model| model.id.clone()).collect();
                let names: Vec<String> = models.into_iter().map(|model| model.id).collect();
                for target in targets {
                    self.sink.adapters_listed(&target.endpoint.id, adapters.clone());
                    self.sink.models_listed(&target.endpoint.id, names.clone());
                }
            }
            Err(reason) => tracing::debug!(url = site.url, reason, "the model list cannot be read"),
        }
    }

    /// Tells what the probe showed. An engine without `/health` shows nothing, so it comes back by trial alone.
    async fn probe(&self, site: Site<'_>, targets: &[ScrapeTarget]) {
        let healthy = match self.get(site, "/health", MAX_HEALTH_BYTES).await {
            Ok(answer) if answer.status.is_success() => true,
            Ok(answer) if answer.status.is_client_error() => return,
            Ok(_) | Err(_) => false,
        };
        for target in targets.iter().filter(|target| target.probe) {
            self.sink.probed(&target.endpoint.id, healthy);
        }
    }

    async fn get(&self, site: Site<'_>, path: &str, max_bytes: usize) -> Result<SideResponse, SideError> {
        let request = SideRequest {
            method: Method::GET,
            url: format!("{}{path}", site.url),
            tls: site.tls.cloned(),
            body: Bytes::new(),
            timeout: self.options.timeout,
            max_bytes,
        };
        self.client.call(request).await
    }
}

/// The ranks that the engine chooses among for a request to `target`: itself alone where it is pinned.
fn siblings<'t>(
    target: &'t ScrapeTarget,
    targets: &'t [ScrapeTarget],
) -> impl Iterator<Item = &'t ScrapeTarget> {
    let (own, pinned) = (&target.endpoint.id, target.endpoint.pin_rank);
    targets.iter().filter(move |other| {
        let id = &other.endpoint.id;
        if pinned {
            id == own
        } else {
            (&id.namespace, &id.pod, id.port) == (&own.namespace, &own.pod, own.port)
        }
    })
}

/// The page as each kind of engine reads it; endpoints behind one URL are of one kind but for a mistake.
struct Pages {
    answer: Result<SideResponse, SampleError>,
    read: Vec<(EngineKind, Result<MetricsPage, SampleError>)>,
}

impl Pages {
    /// What the page says of `endpoint`, one of so many ranks that the engine chooses among.
    fn numbers(
        &mut self,
        endpoint: &Endpoint,
        siblings: usize,
    ) -> Result<(PageNumbers, Option<EngineAdapters>), SampleError> {
        let page = match self.read.iter().position(|(kind, _)| *kind == endpoint.engine) {
            Some(index) => self.read.get(index),
            None => {
                self.read.push((endpoint.engine, read_answer(&self.answer, endpoint.engine)));
                self.read.last()
            }
        };
        let Some((_, page)) = page else { return Err(SampleError::Garbage("no page".to_owned())) };
        let page = page.as_ref().map_err(Clone::clone)?;
        let numbers = if endpoint.pin_rank {
            page.numbers(Some(endpoint.id.rank))
                .ok_or_else(|| SampleError::Garbage(format!("no numbers of rank {}", endpoint.id.rank)))?
        } else {
            page.mean_numbers(u32::try_from(siblings).unwrap_or(u32::MAX))
        };
        Ok((numbers, page.adapters()))
    }
}

fn read_answer(
    answer: &Result<SideResponse, SampleError>,
    engine: EngineKind,
) -> Result<MetricsPage, SampleError> {
    let answer = answer.as_ref().map_err(Clone::clone)?;
    if answer.status != StatusCode::OK {
        return Err(SampleError::Garbage(format!("status {}", answer.status.as_u16())));
    }
    read_metrics(&answer.body, engine)
}

fn to_sample(numbers: &PageNumbers, latencies: &mut Latencies, now: Instant, in_flight: u32) -> EngineSample {
    EngineSample {
        running: numbers.running,
        waiting: numbers.waiting,
        kv_usage: numbers.kv_usage,
        ttft_seconds: latencies.ttft.update(now, numbers.ttft),
        tpot_seconds: latencies.tpot.update(now, numbers.tpot),
        kv_blocks: numbers.kv_blocks,
        block_size: numbers.block_size,
        in_flight_at_scrape: in_flight,
    }
}

fn sample_error(error: SideError) -> SampleError {
    match error {
        SideError::Connect(text) => SampleError::Connect(text),
        SideError::Timeout => SampleError::Timeout,
        other @ (SideError::TooLarge(_) | SideError::Bad(_)) => SampleError::Garbage(other.to_string()),
    }
}
