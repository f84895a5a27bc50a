//! What happens between a request's last byte and its pick, stage by stage, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use kvasir_core::{
    Address, BlockIndex, BoxFuture, CacheScope, Candidate, Candidates, CycleState, DataProducer, Endpoint,
    EndpointId, EngineKind, InferenceRequest, Load, ModelName, Needs, NoMeter, OwnerSlot, PrefixHit,
    RequestId, RequestKind, Role, SystemClock, TokenSlot, TokenSource, TokenizeError, Tokenized, Tokenizer,
};
use kvasir_kvcache::{Index, hash};
use kvasir_plugins::pickers::top_n::TopN;
use kvasir_plugins::producers::{blocks::Blocks, prefix_hits::PrefixHits, tokens::Tokens};
use kvasir_plugins::scorers::kvasir_cost::KvasirCost;
use kvasir_scheduler::{Profile, Scheduler};
use kvasir_tokenize::LocalTokenizer;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::resident::{BLOCK, Feeder};

/// Gathering has all the time it wants here: lateness is what is measured.
const DEADLINE: Duration = Duration::from_secs(60);

/// Ranked picks, the router's default.
const TOP_N: usize = 5;

/// Prompts that fill each owner before anything is timed: 62,500 blocks.
const RESIDENT_PROMPTS: usize = 50;

/// Prompts that an owner has room for, those that are timed included.
const MOST_PROMPTS: usize = 1000;

/// Stages in the order of the path.
pub const STAGES: [&str; 6] = ["scan", "template", "tokens", "hashes", "index walk", "scores"];

/// The parts that decide, without what carries requests.
pub struct Decider {
    tokenizer: Arc<LocalTokenizer>,
    index: Arc<Index>,
    scheduler: Scheduler,
    model: ModelName,
    pool: Candidates,
    feeders: Vec<Feeder>,
    rng: StdRng,
    requests: u64,
}

impl std::fmt::Debug for Decider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decider").field("tokenizer", &self.tokenizer).finish_non_exhaustive()
    }
}

impl Decider {
    /// With one tokenizer's directory and so many owners, full of blocks.
    ///
    /// # Errors
    /// The tokenizer cannot be loaded.
    pub fn new(directory: &Path, owners: u32) -> anyhow::Result<Self> {
        let tokenizer =
            LocalTokenizer::load(directory, None).with_context(|| directory.display().to_string())?;
        tokenizer.warm_up();
        let tokenizer = Arc::new(tokenizer);
        let (index, model) = (Arc::new(Index::default()), ModelName::from("bench"));
        let mut feeders = Vec::new();
        for slot in 0..owners {
            let mut feeder = Feeder::register(&index, slot, &model, MOST_PROMPTS)?;
            for _ in 0..RESIDENT_PROMPTS {
                feeder.store(&index);
            }
            feeders.push(feeder);
        }
        let shared = Arc::clone(&index) as Arc<dyn BlockIndex>;
        let producers: Vec<Arc<dyn DataProducer>> = vec![
            Arc::new(Tokens::new(Arc::new(Inline(Arc::clone(&tokenizer))))),
            Arc::new(Blocks::new(Arc::clone(&shared))),
            Arc::new(PrefixHits::new(shared)),
        ];
        let profile = Profile {
            filters: Vec::new(),
            scorers: vec![(Arc::new(KvasirCost::default()), 1.0)],
            picker: Arc::new(TopN::new(TOP_N)),
            observers: Vec::new(),
        };
        let clock = Arc::new(SystemClock);
        let scheduler = Scheduler::new(profile, producers, DEADLINE, Arc::new(NoMeter), clock, Needs::NONE);
        let pool = (0..owners).map(|slot| candidate(slot, &model)).collect::<anyhow::Result<_>>()?;
        let (pool, rng) = (Candidates::new(pool), StdRng::seed_from_u64(1));
        Ok(Self { tokenizer, index, scheduler, model, pool, feeders, rng, requests: 0 })
    }

    /// `fastokens` or `tokenizers`.
    pub fn encoder(&self) -> &'static str {
        self.tokenizer.encoder_name()
    }

    /// The time of each stage, and the ids.
    ///
    /// # Errors
    /// A body that this model's template or tokenizer does not take.
    pub fn stages(&mut self, body: &Bytes) -> anyhow::Result<([Duration; STAGES.len()], Vec<u32>)> {
        let mut watch = Watch::start();
        let request = self.request(body)?;
        watch.lap();
        let rendered = self.tokenizer.render_body(RequestKind::Chat, body)?.context("no chat")?;
        watch.lap();
        let ids = self.tokenizer.encode_text(&rendered, false)?;
        watch.lap();
        let chain = hash::chain(&CacheScope::default(), BLOCK, &ids, None);
        watch.lap();
        let owners: Vec<OwnerSlot> = self.feeders.iter().map(|feeder| feeder.slot).collect();
        let mut hits = vec![PrefixHit::default(); owners.len()];
        let chains = [chain];
        self.index.walk(&self.model, &chains, &owners, &mut hits);
        watch.lap();
        let mut cycle = CycleState::new(&request);
        cycle.prompt_tokens = ids.len() as u32;
        cycle.tokens = TokenSlot::Ready(tokenized(ids.clone(), Duration::ZERO));
        cycle.chains = chains.into_iter().collect();
        cycle.hits = hits;
        self.pool.reset();
        watch.skip();
        self.scheduler.decide(&cycle, &mut self.pool, &mut self.rng)?;
        watch.lap();
        Ok((watch.laps, ids))
    }

    /// The time of the whole path as the router walks it, and the ids.
    ///
    /// # Errors
    /// As [`Self::stages`].
    pub async fn whole(&mut self, body: &Bytes) -> anyhow::Result<(Duration, Vec<u32>)> {
        let started = Instant::now();
        let request = self.request(body)?;
        self.pool.reset();
        let cycle = self.scheduler.gather(&request, &self.pool).await;
        let decision = self.scheduler.decide(&cycle, &mut self.pool, &mut self.rng)?;
        let took = started.elapsed();
        anyhow::ensure!(!decision.picks.is_empty(), "nobody was picked");
        match cycle.tokens {
            TokenSlot::Ready(tokens) => Ok((took, tokens.ids.to_vec())),
            other => anyhow::bail!("no tokens: {other:?}"),
        }
    }

    /// One owner has computed these ids.
    pub fn computed(&mut self, prompt: u64, ids: &[u32]) {
        let owner = prompt as usize % self.feeders.len().max(1);
        if let Some(feeder) = self.feeders.get_mut(owner) {
            feeder.store_ids(&self.index, prompt | 1 << 50, ids);
        }
    }

    fn request(&mut self, body: &Bytes) -> anyhow::Result<InferenceRequest> {
        let scan = kvasir_wire::scan(RequestKind::Chat, body).map_err(|error| anyhow::anyhow!("{error}"))?;
        self.requests += 1;
        Ok(InferenceRequest {
            id: RequestId::new(self.requests.to_string()),
            kind: RequestKind::Chat,
            requested_model: scan.model.into(),
            model: self.model.clone(),
            adapter: None,
            stream: scan.stream,
            prompt: scan.prompt,
            cache_salt: scan.cache_salt,
            skips_cache: scan.skips_cache,
            max_tokens: scan.max_tokens,
            session: None,
            body: body.clone(),
        })
    }
}

/// The times of one kind of request.
#[derive(Debug)]
pub struct Case {
    name: &'static str,
    stages: Vec<Spread>,
    sum: Spread,
    whole: Spread,
}

impl Case {
    /// No times yet.
    ///
    /// # Errors
    /// As [`Spread::new`].
    pub fn new(name: &'static str) -> anyhow::Result<Self> {
        let stages = STAGES.iter().map(|_| Spread::new()).collect::<anyhow::Result<_>>()?;
        Ok(Self { name, stages, sum: Spread::new()?, whole: Spread::new()? })
    }

    /// Times one body stage by stage.
    ///
    /// # Errors
    /// As [`Decider::stages`].
    pub fn stages(&mut self, decider: &mut Decider, body: &Bytes) -> anyhow::Result<Vec<u32>> {
        let (laps, ids) = decider.stages(body)?;
        for (spread, lap) in self.stages.iter_mut().zip(laps) {
            spread.record(lap);
        }
        self.sum.record(laps.iter().sum());
        Ok(ids)
    }

    /// Times one body as a whole.
    ///
    /// # Errors
    /// As [`Decider::whole`].
    pub async fn whole(&mut self, decider: &mut Decider, body: &Bytes) -> anyhow::Result<Vec<u32>> {
        let (took, ids) = decider.whole(body).await?;
        self.whole.record(took);
        Ok(ids)
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let stages: Vec<Value> = STAGES
            .iter()
            .zip(&self.stages)
            .map(|(name, spread)| json!({ "stage": name, "us": spread.json() }))
            .collect();
        json!({ "case": self.name, "stages": stages, "sum_us": self.sum.json(), "whole_us": self.whole.json() })
    }
}

/// Laps of a stopwatch.
struct Watch {
    last: Instant,
    laps: [Duration; STAGES.len()],
    next: usize,
}

impl Watch {
    fn start() -> Self {
        Self { last: Instant::now(), laps: [Duration::ZERO; STAGES.len()], next: 0 }
    }

    fn lap(&mut self) {
        let now = Instant::now();
        if let Some(lap) = self.laps.get_mut(self.next) {
            *lap = now - self.last;
        }
        self.next += 1;
        self.last = now;
    }

    /// What was done since the last lap belongs to no stage.
    fn skip(&mut self) {
        self.last = Instant::now();
    }
}

/// Encodes where it is called. The router does it on threads of their own, which adds two hand-overs.
struct Inline(Arc<LocalTokenizer>);

impl Tokenizer for Inline {
    fn encode<'a>(
        &'a self,
        request: &'a InferenceRequest,
    ) -> BoxFuture<'a, Result<Tokenized, TokenizeError>> {
        Box::pin(async move {
            let started = Instant::now();
            let ids = self.0.encode_request(request)?;
            Ok(tokenized(ids, started.elapsed()))
        })
    }
}

fn tokenized(ids: Vec<u32>, took: Duration) -> Tokenized {
    Tokenized { ids: ids.into(), source: TokenSource::Local, took, whole: true }
}

fn candidate(slot: u32, model: &ModelName) -> anyhow::Result<Candidate> {
    let address =
        Address::parse(&format!("http://127.0.0.1:{}", 10_000 + slot)).map_err(anyhow::Error::msg)?;
    let endpoint = Endpoint {
        id: EndpointId::new("default", "127.0.0.1", address.port, 0),
        slot: OwnerSlot(slot),
        address,
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: model.clone(),
        started_at: None,
        pin_rank: false,
        adapters: Vec::new(),
        labels: std::collections::BTreeMap::new(),
    };
    Ok(Candidate { endpoint: Arc::new(endpoint), load: Load::default() })
}
