//! One router replica: the real scheduler over the real block index, with what this replica has seen so far.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kvasir_core::{
    Address, BlockSize, BoxFuture, Candidate, Candidates, Clock, Completeness, CycleState, Endpoint,
    EndpointId, EngineSample, InFlightCost, InferenceRequest, Load, ModelName, Needs, NoMeter, OwnerSlot,
    PlacementObserver, Role, ScheduleError, SharedLoad, TokenIds, TokenSource, TokenizeError, Tokenized,
    Tokenizer, Usage,
};
use kvasir_kvcache::placements::DEFAULT_LIFETIME;
use kvasir_kvcache::{Batch, Index, Placements};
use kvasir_plugins::{Built, Parts};
use kvasir_scheduler::{Profile, Scheduler};
use kvasir_settings::resolved::SchedulerSettings;
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::clock::VirtualClock;
use crate::engine::EngineShape;

/// Gathering has no deadline here: nothing in it waits, and the machine's speed must not show in the results.
const NO_DEADLINE: Duration = Duration::from_secs(3600);

/// Fleets above this forget the hits of a request once it was sent; nobody reads them later, and thousands of requests
/// with thousands of hits each are gigabytes.
const KEEP_HITS: usize = 256;

/// Gives out the ids of the one request that is being placed.
#[derive(Default)]
struct SimulatedTokens {
    current: Mutex<Option<TokenIds>>,
}

impl Tokenizer for SimulatedTokens {
    fn encode<'a>(&'a self, _: &'a InferenceRequest) -> BoxFuture<'a, Result<Tokenized, TokenizeError>> {
        let ids = self.current.lock().clone();
        Box::pin(async move {
            let ids = ids.ok_or(TokenizeError::NoBackend)?;
            Ok(Tokenized { ids, source: TokenSource::Local, took: Duration::ZERO, whole: true })
        })
    }
}

/// The pods, as every replica names them.
pub(crate) fn endpoints(shapes: &[EngineShape], model: &ModelName) -> anyhow::Result<Vec<Arc<Endpoint>>> {
    let address = |at: usize| {
        let [_, high, middle, low] = (at as u32).to_be_bytes();
        Address::parse(&format!("http://10.{high}.{middle}.{low}:8000")).map_err(anyhow::Error::msg)
    };
    let endpoint = |at: usize| {
        anyhow::Ok(Arc::new(Endpoint {
            id: EndpointId::new("default", format!("pod-{at}"), 8000, 0),
            slot: OwnerSlot(at as u32),
            address: address(at)?,
            engine: kvasir_core::EngineKind::Vllm,
            role: Role::Both,
            model: model.clone(),
            pin_rank: false,
            adapters: Vec::new(),
            labels: std::collections::BTreeMap::new(),
            started_at: None,
        }))
    };
    (0..shapes.len()).map(endpoint).collect()
}

/// What this replica knows of one pod's load.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    own: SharedLoad,
    peers: SharedLoad,
    sample: Option<EngineSample>,
}

/// What a decision needs of a request.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) request: InferenceRequest,
    pub(crate) ids: TokenIds,
}

/// A request on its way at a pod.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) pod: usize,
    cycle: CycleState,
    cost: InFlightCost,
    first_byte: bool,
}

/// How long the router's own code took, by the machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecisionTime {
    pub(crate) gather: Duration,
    pub(crate) decide: Duration,
}

/// One replica.
pub(crate) struct Replica {
    scheduler: Scheduler,
    index: Arc<Index>,
    tokens: Arc<SimulatedTokens>,
    endpoints: Vec<Arc<Endpoint>>,
    views: Vec<View>,
    rng: StdRng,
    runtime: tokio::runtime::Runtime,
    model: ModelName,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("scheduler", &self.scheduler).finish_non_exhaustive()
    }
}

impl Replica {
    /// A replica that knows the pods and that their caches are empty.
    pub(crate) fn new(
        settings: &SchedulerSettings,
        endpoints: Vec<Arc<Endpoint>>,
        shapes: &[EngineShape],
        clock: &Arc<VirtualClock>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
        let model = endpoints.first().map(|first| first.model.clone()).context("a fleet has pods")?;
        let index = Arc::new(Index::new(Arc::clone(&clock)));
        for (endpoint, shape) in endpoints.iter().zip(shapes) {
            let size = BlockSize::new(shape.block_size).unwrap_or(BlockSize::DEFAULT);
            index.register(endpoint.slot, &model, "simulated")?;
            index.set_capacity(endpoint.slot, shape.kv_blocks as usize, size);
            index.set_completeness(endpoint.slot, Completeness::Exact);
        }
        let tokens = Arc::new(SimulatedTokens::default());
        let parts = Parts {
            index: Arc::clone(&index) as _,
            tokenizer: Arc::clone(&tokens) as _,
            meter: Arc::new(NoMeter),
            seed,
        };
        let scheduler = scheduler(settings, parts, &index, clock)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let views = vec![View::default(); endpoints.len()];
        let rng = StdRng::seed_from_u64(seed);
        Ok(Self { scheduler, index, tokens, endpoints, views, rng, runtime, model })
    }

    /// The model that is asked for.
    pub(crate) fn model(&self) -> &ModelName {
        &self.model
    }

    /// Whether its scheduler asks who holds what.
    pub(crate) fn follows_caches(&self) -> bool {
        self.scheduler.uses_tokens()
    }

    /// Gathers and decides with the router's own code, and takes note of where the request goes.
    ///
    /// # Errors
    /// Every pod was dropped by a filter.
    pub(crate) fn place(&mut self, ask: &Ask, time: &mut DecisionTime) -> Result<Sent, ScheduleError> {
        *self.tokens.current.lock() = Some(Arc::clone(&ask.ids));
        let mut pool = self.candidates();
        let begun = Instant::now();
        let cycle = self.runtime.block_on(self.scheduler.gather(&ask.request, &pool));
        let gathered = Instant::now();
        let decision = self.scheduler.decide(&cycle, &mut pool, &mut self.rng)?;
        time.gather = gathered - begun;
        time.decide = gathered.elapsed();
        let pod = decision.picks.first().map(|pick| pick.index).ok_or(ScheduleError::NoCandidates)?;
        Ok(self.send(cycle, pod))
    }

    /// Takes note that a request goes to `pod`, whoever chose it.
    pub(crate) fn place_at(&mut self, ask: &Ask, pod: usize) -> Sent {
        let mut cycle = CycleState::new(&ask.request);
        cycle.prompt_tokens = ask.ids.len() as u32;
        self.send(cycle, pod)
    }

    fn candidates(&self) -> Candidates {
        let all = self.endpoints.iter().zip(&self.views).map(|(endpoint, view)| Candidate {
            endpoint: Arc::clone(endpoint),
            load: Load {
                in_flight: view.own.in_flight + view.peers.in_flight,
                prefill_tokens: view.own.prefill_tokens + view.peers.prefill_tokens,
                decoding: view.own.decoding + view.peers.decoding,
                peers_in_flight: view.peers.in_flight,
                sample: view.sample,
                ..Load::default()
            },
        });
        Candidates::new(all.collect())
    }

    fn send(&mut self, mut cycle: CycleState, pod: usize) -> Sent {
        let hit = cycle.hits.get(pod).copied().unwrap_or_default();
        let cost = InFlightCost {
            prefill_tokens: cycle.prompt_tokens.saturating_sub(cycle.reusable_tokens(pod)),
            confirmed_tokens: hit.tokens.saturating_sub(hit.predicted_tokens),
        };
        self.scheduler.dispatched(&cycle, &self.endpoints[pod], cost);
        let own = &mut self.views[pod].own;
        own.in_flight += 1;
        own.prefill_tokens += u64::from(cost.prefill_tokens);
        if self.endpoints.len() > KEEP_HITS {
            cycle.hits = Vec::new();
        }
        Sent { pod, cycle, cost, first_byte: false }
    }

    /// The first byte of an answer is here.
    pub(crate) fn first_byte(&mut self, sent: &mut Sent, took: Duration) {
        let own = &mut self.views[sent.pod].own;
        own.prefill_tokens -= u64::from(sent.cost.prefill_tokens);
        own.decoding += 1;
        sent.first_byte = true;
        self.scheduler.first_byte(&sent.cycle, &self.endpoints[sent.pod], sent.cost, took);
    }

    /// An answer ended.
    pub(crate) fn completed(&mut self, sent: &Sent, usage: &Usage) {
        let own = &mut self.views[sent.pod].own;
        own.in_flight -= 1;
        own.decoding -= u32::from(sent.first_byte);
        self.scheduler.completed(&sent.cycle, &self.endpoints[sent.pod], Some(usage));
    }

    /// A batch of a pod's events arrived.
    pub(crate) fn cache_changed(&self, pod: usize, batch: &Batch) {
        self.index.apply(OwnerSlot(pod as u32), batch);
    }

    /// A scrape of a pod ended.
    pub(crate) fn sampled(&mut self, pod: usize, sample: EngineSample) {
        let view = &mut self.views[pod];
        let in_flight_at_scrape = view.own.in_flight + view.peers.in_flight;
        view.sample = Some(EngineSample { in_flight_at_scrape, ..sample });
    }

    /// What this replica has in flight at a pod.
    pub(crate) fn own(&self, pod: usize) -> SharedLoad {
        self.views[pod].own
    }

    /// What the other replicas have in flight at a pod, as they say.
    pub(crate) fn set_peers(&mut self, pod: usize, load: SharedLoad) {
        self.views[pod].peers = load;
    }
}

/// As the router itself puts it together: placements are remembered where somebody asks for prefixes.
fn scheduler(
    settings: &SchedulerSettings,
    parts: Parts,
    index: &Arc<Index>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Scheduler> {
    let meter = Arc::clone(&parts.meter);
    let built = kvasir_plugins::build(settings, parts).context("the scheduler's plugins")?;
    let Built { filters, scorers, picker, producers, mut observers, .. } = built;
    let cache_aware = scorers.iter().any(|(scorer, _)| scorer.needs().contains(Needs::PREFIX_HITS));
    let extra = if cache_aware {
        let placements = Placements::new(Arc::clone(index), DEFAULT_LIFETIME);
        observers.push(Arc::new(placements) as Arc<dyn PlacementObserver>);
        Needs::BLOCKS
    } else {
        Needs::NONE
    };
    let profile = Profile { filters, scorers, picker, observers };
    Ok(Scheduler::new(profile, producers, NO_DEADLINE, meter, clock, extra))
}
