//! A whole door in front of a test's engines, with a scheduler that ranks them by name and says what it is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kvasir_admission::{Admission, AdmissionMode};
use kvasir_core::plugin::{Needs, Scores};
use kvasir_core::{
    Address, BoxFuture, Candidates, ConnectorKind, CycleState, DataProducer, Decision, DecisionRecord,
    Endpoint, EndpointId, EngineKind, InFlightCost, InferenceRequest, Pick, Picker, PlacementObserver,
    Plugin, PrefixHit, ProduceError, Role, Scorer, ScorerTotals, SystemClock, Usage,
};
use kvasir_kvcache::Index;
use kvasir_scheduler::{Profile, Scheduler};
use kvasir_settings::resolved::{AdmissionSettings, Limits};
use kvasir_state::plan::Disaggregation;
use kvasir_state::{Plan, PlanEndpoint, PlanModel, ResponseMemory, RetryBudget, State, StateOptions};
use kvasir_telemetry::{AccessLogger, Metrics};
use kvasir_tokenize::Chain;
use kvasir_upstream::{HyperSideClient, SideClientOptions};
use parking_lot::Mutex;
use rand::Rng;
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use crate::listener::Grace;
use crate::page::Counted;
use crate::{
    ByteBudget, Connections, Coordination, DecisionRing, Doors, Exhibits, Gateway, Ports, Readiness,
    Scheduled, Scheduling, Turnstile,
};

/// What the observers were told, one line for each call.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn say(&self, line: String) {
        self.0.lock().push(line);
    }
}

/// All parts of the scheduler in one: a prompt of 100 tokens, of which `p1` holds 64 and decode endpoints 16.
struct Parts(Told);

impl Plugin for Parts {
    fn name(&self) -> &'static str {
        "by-name"
    }
}

impl DataProducer for Parts {
    fn provides(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn produce<'a>(
        &'a self,
        _: &'a InferenceRequest,
        pool: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        cycle.prompt_tokens = 100;
        let hit = |pod: &str| match pod {
            "p1" => 64,
            pod if pod.starts_with('d') => 16,
            _ => 0,
        };
        let hits = pool.all().iter().map(|candidate| PrefixHit {
            tokens: hit(&candidate.endpoint.id.pod),
            block_tokens: 16,
            ..PrefixHit::default()
        });
        cycle.hits = hits.collect();
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Scorer for Parts {
    fn score(&self, _: &CycleState, pool: &Candidates, out: &mut Scores) {
        for (index, candidate) in pool.kept() {
            let digit = candidate.endpoint.id.pod.chars().last().and_then(|last| last.to_digit(10)).unwrap();
            out[index] = Some(f64::from(100 - digit));
        }
    }

    fn score_and_expect(
        &self,
        cycle: &CycleState,
        pool: &Candidates,
        out: &mut Scores,
        expected: &mut Scores,
    ) {
        self.score(cycle, pool, out);
        *expected = out.iter().map(|score| score.map(|_| 0.25)).collect();
    }
}

impl Picker for Parts {
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
        picks.sort_by(|one, other| other.total.total_cmp(&one.total));
        Decision { picks, scores, filtered: Vec::new() }
    }
}

impl PlacementObserver for Parts {
    fn dispatched(&self, _: &CycleState, endpoint: &Endpoint, cost: InFlightCost) {
        self.0.say(format!("dispatched {} {}", endpoint.id.pod, cost.prefill_tokens));
    }

    fn first_byte(&self, _: &CycleState, endpoint: &Endpoint, _: InFlightCost, _: Duration) {
        self.0.say(format!("first_byte {}", endpoint.id.pod));
    }

    fn completed(&self, _: &CycleState, endpoint: &Endpoint, usage: Option<&Usage>) {
        let cached = usage.and_then(|usage| usage.cached_tokens);
        self.0.say(format!("completed {} {cached:?}", endpoint.id.pod));
    }

    fn failed(&self, _: &CycleState, endpoint: &Endpoint) {
        self.0.say(format!("failed {}", endpoint.id.pod));
    }
}

pub struct House {
    pub address: SocketAddr,
    pub gateway: Arc<Gateway>,
    pub told: Told,
    stop: CancellationToken,
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl House {
    /// Opens the door of a model `m` whose prefill endpoints are `p1`, `p2`, ... and decode endpoints `d1`, `d2`, ...
    pub async fn open(
        connector: ConnectorKind,
        prefills: &[&Engine],
        decodes: &[&Engine],
        adjust: impl FnOnce(&mut Limits),
    ) -> Self {
        Self::with_log(connector, prefills, decodes, adjust, None).await
    }

    /// The same, with an access log.
    pub async fn with_log(
        connector: ConnectorKind,
        prefills: &[&Engine],
        decodes: &[&Engine],
        adjust: impl FnOnce(&mut Limits),
        access_log: Option<AccessLogger>,
    ) -> Self {
        let mut limits = kvasir_settings::Settings::default().limits;
        adjust(&mut limits);
        let clock: Arc<SystemClock> = Arc::new(SystemClock);
        let state = Arc::new(State::new(clock.clone(), StateOptions::default()));
        let named = |prefix: char, role: Role, engines: &[&Engine]| -> Vec<PlanEndpoint> {
            let endpoint =
                |(at, engine): (usize, &&Engine)| planned(&format!("{prefix}{}", at + 1), role, engine);
            engines.iter().enumerate().map(endpoint).collect()
        };
        let mut endpoints = named('d', Role::Decode, decodes);
        endpoints.extend(named('p', Role::Prefill, prefills));
        let model = PlanModel {
            name: "m".into(),
            served: "m".into(),
            aliases: Vec::new(),
            adapters: Vec::new(),
            endpoints,
            disaggregation: Some(Disaggregation { group_key: None, connector }),
        };
        state.replace(Plan { models: vec![model], ..Plan::default() });
        let metrics = Arc::new(Metrics::new().unwrap());
        let told = Told::default();
        let parts = Arc::new(Parts(told.clone()));
        let profile = Profile {
            filters: Vec::new(),
            scorers: vec![(parts.clone(), 1.0)],
            picker: parts.clone(),
            observers: vec![parts.clone()],
        };
        let deadline = Duration::from_secs(5);
        let scheduler = Scheduler::new(
            profile,
            vec![parts],
            deadline,
            metrics.clone(),
            clock.clone(),
            Needs::PREFIX_HITS,
        );
        let client = Arc::new(HyperSideClient::new(SideClientOptions::default()));
        let admission = Admission::new(AdmissionMode::Off, clock.clone(), metrics.clone(), state.clone());
        let readiness = Arc::new(Readiness::default());
        let gateway = Arc::new(Gateway {
            turnstile: Turnstile::new(admission, AdmissionSettings::Off),
            scheduling: Scheduling::new(Scheduled {
                scheduler: Arc::new(scheduler),
                prefix_cache_entries: Counted(Arc::new(|| None)),
                session: None,
            }),
            index: Arc::new(Index::new(clock.clone())),
            tokens: Arc::new(Chain::new(Vec::new(), client, state.clone(), clock.clone())),
            metrics,
            access_log,
            headers: Default::default(),
            connections: Connections::new(&limits, 4),
            ring: DecisionRing::new(16),
            responses: ResponseMemory::new(16, Duration::from_secs(60)),
            retry_budget: RetryBudget::new(1.0),
            buffers: ByteBudget::new(limits.max_buffered_bytes),
            coordination: Coordination::default(),
            exhibits: Exhibits::default(),
            ports: Ports::default(),
            metrics_on_router_port: false,
            limits,
            state,
            readiness,
            clock,
        });
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let doors = Doors::bind(any, any, any).unwrap();
        let [address, ..] = doors.addresses().unwrap();
        let stop = CancellationToken::new();
        let grace = Grace { settle: Duration::ZERO, drain: Duration::ZERO };
        tokio::spawn(doors.serve(gateway.clone(), stop.clone(), stop.clone(), grace));
        Self { address, gateway, told, stop }
    }

    /// The record of the last request, once it is settled.
    pub async fn record(&self) -> DecisionRecord {
        loop {
            if let Some(record) = self.gateway.ring.get("test") {
                return record;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the observers heard `line`.
    pub async fn hears(&self, line: &str) {
        while !self.told.lines().iter().any(|told| told == line) {
            tokio::task::yield_now().await;
        }
    }

    /// What is in flight at all endpoints together.
    pub fn in_flight(&self) -> u32 {
        self.gateway.state.endpoints().iter().map(|status| status.load.in_flight).sum()
    }
}

fn planned(pod: &str, role: Role, engine: &Engine) -> PlanEndpoint {
    PlanEndpoint {
        id: EndpointId::new("ns", pod, engine.address.port(), 0),
        address: Address::parse(&format!("http://{}", engine.address)).unwrap(),
        engine: EngineKind::Vllm,
        role,
        pin_rank: false,
        labels: Default::default(),
        started_at: None,
        ready: true,
    }
}
