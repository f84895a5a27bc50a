//! A decision by the size of the fleet: from the index in memory to ranked picks, or ranked pairs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use kvasir_core::{
    Address, BlockChain, BlockIndex, BoxFuture, Candidate, Candidates, CycleState, DataProducer, Endpoint,
    EndpointId, EngineKind, InferenceRequest, Load, ModelName, Needs, NoMeter, OwnerSlot, Plugin,
    ProduceError, Prompt, RequestId, RequestKind, Role, SystemClock,
};
use kvasir_kvcache::Index;
use kvasir_plugins::pickers::top_n::TopN;
use kvasir_plugins::producers::prefix_hits::PrefixHits;
use kvasir_plugins::scorers::kvasir_cost::KvasirCost;
use kvasir_scheduler::{Profile, Scheduler};
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::figures::Spread;
use crate::resident::{Feeder, PROMPT_BLOCKS};

/// Prompts that each pod holds; the first of them is one that every eighth pod holds, too.
const RESIDENT_PROMPTS: usize = 3;

/// Pods whose prompts are asked for.
const ASKED: usize = 64;

/// Pods of a group where prefill and decode are apart; a quarter of them prefills.
const GROUP: u32 = 8;

/// The label that names the group.
const KEY: &str = "group";

/// Ranked picks, the router's default.
const TOP_N: usize = 5;

/// Nothing here waits.
const DEADLINE: Duration = Duration::from_secs(60);

/// Decisions that warm the memory of the processor.
const WARM_UP: usize = 100;

/// Times `rounds` decisions of the default profile for prompts of 1,250 blocks that some pods hold, over `pods` pods: each
/// for a whole request, and for a pair of pods of one group.
///
/// # Errors
/// The index takes no more owners.
pub async fn measure(pods: u32, rounds: usize) -> anyhow::Result<Vec<Value>> {
    let (index, model) = (Arc::new(Index::default()), ModelName::from("bench"));
    let mut feeders = Vec::new();
    for slot in 0..pods {
        let mut feeder = Feeder::register(&index, slot, &model, RESIDENT_PROMPTS)?;
        for _ in 0..RESIDENT_PROMPTS {
            feeder.store(&index);
        }
        feeders.push(feeder);
    }
    let step = feeders.len().div_ceil(ASKED);
    let chains: Vec<BlockChain> = feeders.iter().step_by(step.max(1)).flat_map(Feeder::chains).collect();
    let mut rows = Vec::new();
    for apart in [false, true] {
        let pool = (0..pods).map(|slot| candidate(slot, &model, apart)).collect::<anyhow::Result<_>>()?;
        let row = Row { index: &index, model: &model, chains: &chains, pool: Candidates::new(pool), apart };
        rows.push(row.measure(rounds).await?);
    }
    Ok(rows)
}

struct Row<'a> {
    index: &'a Arc<Index>,
    model: &'a ModelName,
    chains: &'a [BlockChain],
    pool: Candidates,
    apart: bool,
}

impl Row<'_> {
    async fn measure(mut self, rounds: usize) -> anyhow::Result<Value> {
        let asked = Arc::new(Asked(Mutex::default()));
        let shared = Arc::clone(self.index) as Arc<dyn BlockIndex>;
        let producers: Vec<Arc<dyn DataProducer>> =
            vec![Arc::clone(&asked) as Arc<dyn DataProducer>, Arc::new(PrefixHits::new(shared))];
        let profile = Profile {
            filters: Vec::new(),
            scorers: vec![(Arc::new(KvasirCost::default()), 1.0)],
            picker: Arc::new(TopN::new(TOP_N)),
            observers: Vec::new(),
        };
        let clock = Arc::new(SystemClock);
        let scheduler = Scheduler::new(profile, producers, DEADLINE, Arc::new(NoMeter), clock, Needs::NONE);
        let request = request(self.model);
        let mut rng = StdRng::seed_from_u64(1);
        let (mut gather, mut decide, mut whole) = (Spread::new()?, Spread::new()?, Spread::new()?);
        for (round, chain) in self.chains.iter().cycle().take(rounds + WARM_UP).enumerate() {
            *asked.0.lock() = Some(chain.clone());
            self.pool.reset();
            let started = Instant::now();
            let cycle = scheduler.gather(&request, &self.pool).await;
            let gathered = started.elapsed();
            let decision = if self.apart {
                scheduler.decide_pairs(&cycle, &mut self.pool, Some(KEY), &mut rng)?
            } else {
                scheduler.decide(&cycle, &mut self.pool, &mut rng)?
            };
            let took = started.elapsed();
            anyhow::ensure!(
                decision.picks.iter().all(|pick| pick.prefill.is_some() == self.apart),
                "no pair"
            );
            if round >= WARM_UP {
                gather.record(gathered);
                decide.record(took.saturating_sub(gathered));
                whole.record(took);
            }
        }
        Ok(json!({
            "pods": self.pool.len(), "pairs": self.apart, "blocks": PROMPT_BLOCKS, "rounds": rounds,
            "gather_us": gather.json(), "decide_us": decide.json(), "whole_us": whole.json(),
        }))
    }
}

/// The prompt's hashes, known already: what tokens and hashing cost does not depend on the fleet.
struct Asked(Mutex<Option<BlockChain>>);

impl Plugin for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }
}

impl DataProducer for Asked {
    fn provides(&self) -> Needs {
        Needs::TOKENS | Needs::BLOCKS
    }

    fn produce<'a>(
        &'a self,
        _: &'a InferenceRequest,
        _: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            if let Some(chain) = self.0.lock().clone() {
                cycle.prompt_tokens = u32::try_from(chain.tokens()).unwrap_or(u32::MAX);
                cycle.chains.push(chain);
            }
            Ok(())
        })
    }
}

fn request(model: &ModelName) -> InferenceRequest {
    InferenceRequest {
        id: RequestId::new("bench"),
        kind: RequestKind::Chat,
        requested_model: "bench".into(),
        model: model.clone(),
        adapter: None,
        stream: true,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: Bytes::new(),
    }
}

fn candidate(slot: u32, model: &ModelName, apart: bool) -> anyhow::Result<Candidate> {
    let port = 10_000 + u16::try_from(slot).context("more pods than ports")?;
    let address = Address::parse(&format!("http://127.0.0.1:{port}")).map_err(anyhow::Error::msg)?;
    let role = match (apart, slot % GROUP < GROUP / 4) {
        (false, _) => Role::Both,
        (true, true) => Role::Prefill,
        (true, false) => Role::Decode,
    };
    let group = apart.then(|| (KEY.to_owned(), (slot / GROUP).to_string()));
    let endpoint = Endpoint {
        id: EndpointId::new("default", "127.0.0.1", port, 0),
        slot: OwnerSlot(slot),
        address,
        engine: EngineKind::Vllm,
        role,
        model: model.clone(),
        started_at: None,
        pin_rank: false,
        adapters: Vec::new(),
        labels: group.into_iter().collect(),
    };
    let load = Load { in_flight: slot % 9, decoding: slot % 7, ..Load::default() };
    Ok(Candidate { endpoint: Arc::new(endpoint), load })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_kinds_of_decision_are_timed() {
        let rows = measure(16, 3).await.unwrap();
        let kinds: Vec<(u64, bool)> =
            rows.iter().map(|row| (row["pods"].as_u64().unwrap(), row["pairs"].as_bool().unwrap())).collect();
        assert_eq!(kinds, [(16, false), (16, true)]);
        assert!(rows.iter().all(|row| row["whole_us"]["p50"].as_f64().is_some_and(|time| time > 0.0)));
    }
}
