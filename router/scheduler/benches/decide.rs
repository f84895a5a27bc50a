//! What one decision costs, by the number of candidates: for a whole request, and for a pair of the same group.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use kvasir_core::{
    Address, BlockChain, BlockSize, Candidate, Candidates, CycleState, Decision, Endpoint, EndpointId,
    EngineKind, EngineSample, Filter, InferenceRequest, Load, Needs, NoMeter, OwnerSlot, Pick, Picker,
    Plugin, PrefixHit, Prompt, RequestId, RequestKind, Role, Scorer, ScorerTotals, Scores, SystemClock,
};
use kvasir_scheduler::{Profile, Scheduler};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Drops full queues, as `least-request` does.
struct Queues;

impl Plugin for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }
}

impl Filter for Queues {
    fn filter(&self, _: &CycleState, pool: &mut Candidates) {
        pool.retain(|candidate| candidate.load.sample.is_none_or(|sample| sample.waiting < 10));
    }
}

/// Arithmetic over hits and load, of the weight of a real scorer.
struct Work;

impl Plugin for Work {
    fn name(&self) -> &'static str {
        "work"
    }
}

impl Scorer for Work {
    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        for (index, candidate) in pool.kept() {
            let uncached = cycle.prompt_tokens.saturating_sub(cycle.reusable_tokens(index));
            let queued = candidate.load.prefill_tokens + u64::from(candidate.load.decoding) * 32;
            out[index] = Some(100.0 / (1.0 + f64::from(uncached) + queued as f64));
        }
    }
}

/// The best five.
struct Best;

impl Plugin for Best {
    fn name(&self) -> &'static str {
        "best"
    }
}

impl Picker for Best {
    fn pick(&self, scores: ScorerTotals, pool: &Candidates, rng: &mut dyn Rng) -> Decision {
        let mut ranked: Vec<(f64, u64, usize)> = pool
            .kept()
            .map(|(index, _)| {
                (scores.totals.get(index).copied().flatten().unwrap_or(0.0), rng.next_u64(), index)
            })
            .collect();
        ranked.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let picks = ranked
            .into_iter()
            .take(5)
            .filter_map(|(total, _, index)| {
                let endpoint = Arc::clone(&pool.all().get(index)?.endpoint);
                Some(Pick { index, endpoint, prefill: None, total })
            })
            .collect();
        Decision { picks, scores, filtered: Vec::new() }
    }
}

/// Candidates of a group; a quarter of them prefills.
const GROUP: u32 = 8;

/// The same with a part and a group.
fn paired(index: u32) -> Candidate {
    let Candidate { endpoint, load } = candidate(index);
    let mut endpoint = Arc::unwrap_or_clone(endpoint);
    endpoint.role = if index % GROUP < GROUP / 4 { Role::Prefill } else { Role::Decode };
    endpoint.labels.insert("group".to_owned(), (index / GROUP).to_string());
    Candidate { endpoint: Arc::new(endpoint), load }
}

fn candidate(index: u32) -> Candidate {
    let address = Address::parse(&format!("http://10.0.{}.{}:8000", index / 256, index % 256));
    let endpoint = Endpoint {
        id: EndpointId::new("default", format!("pod-{index}"), 8000, 0),
        slot: OwnerSlot(index),
        address: address.unwrap_or_else(|error| unreachable!("{error}")),
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: "m".into(),
        started_at: None,
        pin_rank: false,
        adapters: Vec::new(),
        labels: std::collections::BTreeMap::new(),
    };
    let sample = EngineSample { waiting: index % 11, running: index % 5, ..EngineSample::default() };
    let load = Load {
        in_flight: index % 9,
        prefill_tokens: u64::from(index * 37 % 4000),
        decoding: index % 7,
        peers_in_flight: 0,
        sample: Some(sample),
        foreign_faded: 0.0,
        adapter: kvasir_core::AdapterStanding::Unknown,
    };
    Candidate { endpoint: Arc::new(endpoint), load }
}

fn cycle(count: u32) -> CycleState {
    let request = InferenceRequest {
        id: RequestId::new("r"),
        kind: RequestKind::Chat,
        requested_model: "m".into(),
        model: "m".into(),
        adapter: None,
        stream: true,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: Bytes::new(),
    };
    let mut cycle = CycleState::new(&request);
    cycle.prompt_tokens = 20_000;
    cycle.chains.push(BlockChain { block_size: BlockSize::DEFAULT, hashes: Arc::new([]) });
    cycle.hits = (0..count)
        .map(|index| PrefixHit { tokens: index * 16, block_tokens: 16, ..PrefixHit::default() })
        .collect();
    cycle
}

fn decide(criterion: &mut Criterion) {
    let profile = Profile {
        filters: vec![Arc::new(Queues)],
        scorers: vec![(Arc::new(Work), 1.0), (Arc::new(Work), 0.5)],
        picker: Arc::new(Best),
        observers: Vec::new(),
    };
    let scheduler = Scheduler::new(
        profile,
        Vec::new(),
        Duration::from_millis(50),
        Arc::new(NoMeter),
        Arc::new(SystemClock),
        Needs::NONE,
    );
    let mut group = criterion.benchmark_group("decide");
    for count in [4, 64, 1000] {
        let cycle = cycle(count);
        let mut pool = Candidates::new((0..count).map(candidate).collect());
        let mut rng = StdRng::seed_from_u64(7);
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                pool.reset();
                black_box(scheduler.decide(black_box(&cycle), &mut pool, &mut rng))
            });
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("decide pairs");
    for count in [8, 64, 1000] {
        let cycle = cycle(count);
        let mut pool = Candidates::new((0..count).map(paired).collect());
        let mut rng = StdRng::seed_from_u64(7);
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                pool.reset();
                black_box(scheduler.decide_pairs(black_box(&cycle), &mut pool, Some("group"), &mut rng))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
