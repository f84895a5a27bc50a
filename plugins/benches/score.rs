//! What the default scorer costs a decision, by the number of candidates.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use kvasir_core::{
    Address, Candidate, Candidates, Clock, CycleState, Endpoint, EndpointId, EngineKind, EngineSample,
    InFlightCost, InferenceRequest, Load, OwnerSlot, PlacementObserver, PrefixHit, Prompt, RequestId,
    RequestKind, Role, Scorer, SessionKey, SystemClock,
};
use kvasir_plugins::scorers::kvasir_cost::KvasirCost;
use kvasir_plugins::scorers::session_affinity::SessionAffinity;
use kvasir_settings::resolved::SessionAffinityArgs;

fn candidate(index: u32) -> Candidate {
    let url = format!("http://10.0.{}.{}:8000", index / 256, index % 256);
    let endpoint = Endpoint {
        id: EndpointId::new("default", format!("qwen-7d9f5c6b8-{index:05}"), 8000, 0),
        slot: OwnerSlot(index),
        address: Address::parse(&url).unwrap_or_else(|error| unreachable!("{error}")),
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: "m".into(),
        started_at: Some(1_700_000_000 + u64::from(index)),
        pin_rank: false,
        adapters: Vec::new(),
        labels: BTreeMap::new(),
    };
    let sample = EngineSample {
        running: index % 5,
        waiting: index % 3,
        kv_usage: f64::from(index % 100) / 100.0,
        kv_blocks: 10_000,
        block_size: 16,
        ..EngineSample::default()
    };
    let load = Load {
        in_flight: index % 9,
        prefill_tokens: u64::from(index * 37 % 4000),
        decoding: index % 7,
        sample: Some(sample),
        ..Load::default()
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
        session: Some(SessionKey(7)),
        body: Bytes::new(),
    };
    let mut cycle = CycleState::new(&request);
    cycle.prompt_tokens = 20_000;
    cycle.hits = (0..count)
        .map(|index| PrefixHit { tokens: index * 16, block_tokens: 16, ..PrefixHit::default() })
        .collect();
    cycle
}

/// Every endpoint has a pace of its own: each candidate takes the long way.
fn taught(pool: &Candidates, count: u32) -> KvasirCost {
    let scorer = KvasirCost::default();
    let idle: Vec<Candidate> = pool
        .all()
        .iter()
        .map(|candidate| Candidate { endpoint: Arc::clone(&candidate.endpoint), load: Load::default() })
        .collect();
    let idle = Candidates::new(idle);
    for _ in 0..20 {
        let cycle = cycle(count);
        scorer.score(&cycle, &idle, &mut vec![None; idle.len()]);
        for candidate in idle.all() {
            let took = Duration::from_millis(u64::from(candidate.endpoint.slot.0 % 7 + 1) * 300);
            scorer.dispatched(&cycle, &candidate.endpoint, InFlightCost::default());
            scorer.first_byte(&cycle, &candidate.endpoint, InFlightCost::default(), took);
            scorer.completed(&cycle, &candidate.endpoint, None);
        }
    }
    scorer
}

fn score(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("score");
    for count in [8, 100, 1000] {
        let pool = Candidates::new((0..count).map(candidate).collect());
        let cycle = cycle(count);
        let (mut out, mut expected) = (vec![None; pool.len()], Vec::with_capacity(pool.len()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let sessions = SessionAffinity::new(&SessionAffinityArgs::default(), clock);
        let scorers: [(&str, Box<dyn Scorer>); 3] = [
            ("kvasir-cost, nothing learned", Box::new(KvasirCost::default())),
            ("kvasir-cost", Box::new(taught(&pool, count))),
            ("session-affinity", Box::new(sessions)),
        ];
        for (name, scorer) in scorers {
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                bencher.iter(|| {
                    out.fill(None);
                    expected.clear();
                    scorer.score_and_expect(black_box(&cycle), black_box(&pool), &mut out, &mut expected);
                    black_box(&out);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, score);
criterion_main!(benches);
