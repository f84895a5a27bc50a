//! Small parts for this crate's tests: endpoints, requests, a fixed scorer, a counting meter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::{
    Address, Candidate, Candidates, Clock, CycleState, Decision, Endpoint, EndpointId, EngineKind, Filter,
    InferenceRequest, Load, ModelName, OwnerSlot, Pick, Picker, Plugin, Prompt, RequestId, RequestKind, Role,
    ScheduleMeter, Scorer, ScorerTotals, Scores,
};
use parking_lot::Mutex;
use rand::Rng;

pub fn endpoint(index: u32) -> Arc<Endpoint> {
    Arc::new(Endpoint {
        id: EndpointId::new("default", format!("pod-{index}"), 8000, 0),
        slot: OwnerSlot(index),
        address: Address::parse(&format!("http://pod-{index}:8000")).unwrap(),
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: "m".into(),
        started_at: None,
        pin_rank: false,
        adapters: Vec::new(),
        labels: std::collections::BTreeMap::new(),
    })
}

pub fn pool(count: u32) -> Candidates {
    Candidates::new(
        (0..count).map(|index| Candidate { endpoint: endpoint(index), load: Load::default() }).collect(),
    )
}

pub fn request() -> InferenceRequest {
    InferenceRequest {
        id: RequestId::new("r1"),
        kind: RequestKind::Chat,
        requested_model: "m".into(),
        model: "m".into(),
        adapter: None,
        stream: false,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: Bytes::from_static(b"{}"),
    }
}

pub fn cycle() -> CycleState {
    CycleState::new(&request())
}

/// Gives every candidate the score at its index.
pub struct Fixed(pub &'static str, pub Vec<Option<f64>>);

impl Plugin for Fixed {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl Scorer for Fixed {
    fn score(&self, _: &CycleState, _: &Candidates, out: &mut Scores) {
        out.clone_from(&self.1);
    }
}

/// Drops the candidates whose slot is listed.
pub struct Drops(pub &'static str, pub Vec<u32>);

impl Plugin for Drops {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl Filter for Drops {
    fn filter(&self, _: &CycleState, pool: &mut Candidates) {
        pool.retain(|candidate| !self.1.contains(&candidate.endpoint.slot.0));
    }
}

/// Ranks by total, lower index first.
pub struct Ranking;

impl Plugin for Ranking {
    fn name(&self) -> &'static str {
        "ranking"
    }
}

impl Picker for Ranking {
    fn pick(&self, scores: ScorerTotals, pool: &Candidates, _: &mut dyn Rng) -> Decision {
        let mut picks: Vec<Pick> = pool
            .kept()
            .map(|(index, candidate)| Pick {
                index,
                endpoint: Arc::clone(&candidate.endpoint),
                prefill: None,
                total: scores.totals[index].unwrap_or_default(),
            })
            .collect();
        picks.sort_by(|a, b| b.total.total_cmp(&a.total));
        Decision { picks, scores, filtered: Vec::new() }
    }
}

/// Remembers what it was told.
#[derive(Default)]
pub struct Heard {
    pub ran: Mutex<Vec<(&'static str, &'static str, Duration)>>,
    pub failed: Mutex<Vec<(&'static str, &'static str)>>,
}

impl ScheduleMeter for Heard {
    fn plugin_ran(&self, _: &ModelName, plugin: &'static str, kind: &'static str, took: Duration) {
        self.ran.lock().push((plugin, kind, took));
    }
    fn match_ratio(&self, _: &ModelName, _: &'static str, _: f64) {}
    fn produce_failed(&self, _: &ModelName, producer: &'static str, reason: &'static str) {
        self.failed.lock().push((producer, reason));
    }
    fn prefix_evicted(&self, _: &ModelName, _: u64) {}
}

/// Moves on by a millisecond at every reading.
pub struct Ticking(Mutex<Instant>);

impl Default for Ticking {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Clock for Ticking {
    fn now(&self) -> Instant {
        let mut now = self.0.lock();
        *now += Duration::from_millis(1);
        *now
    }
}
