//! The router's side of the simulation: from what it knows of the pods to a choice.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{
    Address, BlockChain, BlockHash, BlockSize, Candidate, Candidates, Completeness, CycleState, Endpoint,
    EndpointId, EngineKind, InferenceRequest, Load, OwnerSlot, Picker, PrefixHit, Prompt, RequestId,
    RequestKind, Role, Scorer, ScorerTotals,
};
use kvasir_plugins::pickers::top_n::TopN;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::fleet::{BLOCK, Pod};

/// Who chooses.
pub enum Policy {
    /// Knows every cache and every backlog, and takes the pod with the earliest first token.
    Oracle,
    /// A scorer alone, on what the router knows.
    Scorer(Box<dyn Scorer>),
}

impl Policy {
    /// The pod for a request.
    pub fn choose(&self, pods: &[Pod], blocks: &[u64], tokens: usize, now: u64, rng: &mut StdRng) -> usize {
        match self {
            Self::Oracle => {
                let costs: Vec<_> = pods
                    .iter()
                    .map(|pod| (pod.time_to_first_token(blocks, tokens, now), pod.in_flight))
                    .collect();
                let best = costs.iter().min().unwrap();
                let equals: Vec<usize> = (0..pods.len()).filter(|pod| costs[*pod] == *best).collect();
                *equals.choose(rng).unwrap()
            }
            Self::Scorer(scorer) => {
                let pool = candidates(pods);
                let cycle = cycle(pods, blocks, tokens);
                let mut totals = vec![None; pool.len()];
                scorer.score(&cycle, &pool, &mut totals);
                let scores = ScorerTotals { lines: Vec::new(), totals };
                TopN::new(1).pick(scores, &pool, rng).picks[0].index
            }
        }
    }
}

fn cycle(pods: &[Pod], blocks: &[u64], tokens: usize) -> CycleState {
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
    cycle.prompt_tokens = tokens as u32;
    let block_size = BlockSize::new(BLOCK as u32).unwrap();
    cycle.chains.push(BlockChain { block_size, hashes: blocks.iter().copied().map(BlockHash).collect() });
    cycle.hits = pods
        .iter()
        .map(|pod| PrefixHit {
            tokens: pod.held(blocks) as u32,
            block_tokens: BLOCK as u32,
            completeness: Some(Completeness::Exact),
            ..PrefixHit::default()
        })
        .collect();
    cycle
}

fn candidates(pods: &[Pod]) -> Candidates {
    let candidate = |(index, pod): (usize, &Pod)| {
        let endpoint = Endpoint {
            id: EndpointId::new("default", format!("pod-{index}"), 8000, 0),
            slot: OwnerSlot(index as u32),
            address: Address::parse(&format!("http://pod-{index}:8000")).unwrap(),
            engine: EngineKind::Vllm,
            role: Role::Both,
            model: "m".into(),
            started_at: None,
            pin_rank: false,
            adapters: Vec::new(),
            labels: BTreeMap::new(),
        };
        let load = Load {
            in_flight: pod.in_flight,
            prefill_tokens: pod.prefill_tokens,
            decoding: pod.decoding,
            peers_in_flight: 0,
            sample: None,
            foreign_faded: 0.0,
            adapter: kvasir_core::AdapterStanding::Unknown,
        };
        Candidate { endpoint: Arc::new(endpoint), load }
    };
    Candidates::new(pods.iter().enumerate().map(candidate).collect())
}
