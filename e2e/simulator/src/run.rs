//! One run: a fleet, its routers and the requests of a trace, event by event.
//!
//! Routers see what routers see: events of caches a few milliseconds late, scrapes up to a second old, each replica its
//! own requests at once and the others' every tenth of a second.

mod agenda;
mod ask;
mod oracle;
mod pod;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvasir_core::{SharedLoad, Usage};
use kvasir_kvcache::Batch;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::clock::{Nanos, VirtualClock, nanos, seconds};
use crate::engine::{EngineShape, StepOutcome, Work};
use crate::outcome::Fate;
use crate::policy::{Placement, Policy};
use crate::replica::{Ask, DecisionTime, Replica, Sent, endpoints};
use crate::trace::Trace;

use agenda::{Agenda, Event};
use ask::ask;
use pod::Pod;

/// One way between client, router and pod, seconds.
const HOP: f64 = 0.0003;

/// From the end of the step that changes a cache until a router has its events, seconds: 2.6 ms were measured of vLLM, and a router
/// under load takes some for itself.
const EVENT_DELAY: f64 = 0.005;

/// Seconds between two scrapes of a pod.
const SCRAPE_EVERY: f64 = 1.0;

/// The pods are scraped in so many groups, one after the other.
const SCRAPE_GROUPS: usize = 10;

/// Replicas tell each other their load so often, seconds.
const PEERS_EVERY: f64 = 0.1;

/// A refused client comes back after this, seconds.
const COME_BACK: f64 = 1.0;

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// One for each pod.
    pub shapes: Vec<EngineShape>,
    /// Router replicas.
    pub replicas: usize,
    /// Who chooses.
    pub policy: Policy,
    /// Of `kvasir-cost`; `None` is the default.
    pub affinity: Option<f64>,
    /// Of the routers' chance.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// One for each request of the trace.
    pub fates: Vec<Fate>,
    /// Wall-clock seconds of gathering, for each decision.
    pub gather: Vec<f64>,
    /// Wall-clock seconds of deciding.
    pub decide: Vec<f64>,
    /// Sequences that engines had to start over.
    pub preempted: u64,
    /// Simulated seconds.
    pub length: f64,
}

/// A request under way.
struct Running {
    replica: usize,
    sent: Sent,
    sent_at: Nanos,
    queued_at: Nanos,
    cached: u32,
}

struct Fleet<'a> {
    trace: &'a Trace,
    placement: Placement,
    clock: Arc<VirtualClock>,
    agenda: Agenda,
    now: Nanos,
    pods: Vec<Pod>,
    replicas: Vec<Replica>,
    follows_caches: bool,
    /// Next pod in turn, of each replica.
    turns: Vec<usize>,
    replica_seed: u64,
    rng: StdRng,
    running: Vec<Option<Box<Running>>>,
    /// Requests that wait for the end of another, by that one's number.
    followers: Vec<Vec<u32>>,
    ended: Vec<bool>,
    left: usize,
    result: RunResult,
    outcomes: Vec<StepOutcome>,
}

/// Runs `trace` as `setup` says. The same arguments give the same fates, on any machine.
///
/// # Errors
/// The policy's parts cannot be built, or a request fits into no pod.
pub fn run(setup: &Setup, trace: &Trace) -> anyhow::Result<RunResult> {
    let mut fleet = Fleet::new(setup, trace)?;
    fleet.play()?;
    Ok(fleet.result)
}

impl<'a> Fleet<'a> {
    fn new(setup: &Setup, trace: &'a Trace) -> anyhow::Result<Self> {
        let largest =
            trace.requests.iter().map(|request| request.prompt_tokens() + request.answer.tokens).max();
        let smallest = setup.shapes.iter().map(EngineShape::kv_tokens).min().context("a fleet has pods")?;
        anyhow::ensure!(
            u64::from(largest.unwrap_or_default()) + 64 <= smallest,
            "a request of {largest:?} tokens does not fit into a pod of {smallest}; use larger pods or a smaller \
             --length-scale"
        );
        let clock = Arc::new(VirtualClock::new());
        let placement = setup.policy.placement(setup.affinity);
        let settings = match &placement {
            Placement::Scheduler(_) => placement.settings(),
            // Nobody asks its scheduler; it only keeps the books.
            _ => Policy::Random.placement(None).settings(),
        };
        let endpoints = endpoints(&setup.shapes, &crate::workload::model())?;
        let replicas = (0..setup.replicas.max(1))
            .map(|number| {
                let seed = crate::trace::mix(setup.seed ^ (number as u64 + 1) << 32);
                Replica::new(&settings, endpoints.clone(), &setup.shapes, &clock, seed)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let follows_caches = replicas.iter().any(Replica::follows_caches);
        let count = trace.requests.len();
        let mut rng = StdRng::seed_from_u64(crate::trace::mix(setup.seed));
        let turns = replicas.iter().map(|_| rng.random_range(0..setup.shapes.len())).collect();
        Ok(Self {
            trace,
            placement,
            clock,
            agenda: Agenda::default(),
            now: 0,
            pods: setup.shapes.iter().map(|shape| Pod::new(*shape)).collect(),
            replicas,
            follows_caches,
            turns,
            replica_seed: setup.seed,
            rng,
            running: (0..count).map(|_| None).collect(),
            followers: vec![Vec::new(); count],
            ended: vec![false; count],
            left: count,
            result: RunResult { fates: vec![Fate::default(); count], ..RunResult::default() },
            outcomes: Vec::new(),
        })
    }

    fn play(&mut self) -> anyhow::Result<()> {
        for (number, request) in self.trace.requests.iter().enumerate() {
            self.agenda.add(request.at, Event::Comes(number as u32));
        }
        for group in 0..SCRAPE_GROUPS {
            let at = nanos(SCRAPE_EVERY * (group as f64 + 1.0) / SCRAPE_GROUPS as f64);
            self.agenda.add(at, Event::Scrape(group));
        }
        self.agenda.add(nanos(PEERS_EVERY), Event::TellPeers);
        while self.left > 0 {
            let (at, event) = self.agenda.next().context("the simulation stands still")?;
            self.now = at;
            self.clock.set(at);
            self.happens(event)?;
        }
        self.result.length = seconds(self.now);
        self.result.preempted = self.pods.iter().map(|pod| pod.engine.sums().preempted).sum();
        Ok(())
    }

    fn happens(&mut self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Comes(request) => self.comes(request)?,
            Event::Queues { request, pod } => self.queues(request, pod),
            Event::StepEnds(pod) => self.step_ends(pod),
            Event::FirstByte(request) => self.first_byte(request),
            Event::Ends(request) => self.ends(request),
            Event::CacheChanges { pod, batch } => {
                self.replicas.iter().for_each(|replica| replica.cache_changed(pod, &batch));
            }
            Event::Scrape(group) => self.scrape(group),
            Event::TellPeers => self.tell_peers(),
        }
        Ok(())
    }

    /// A request is at a router.
    fn comes(&mut self, number: u32) -> anyhow::Result<()> {
        let at = number as usize;
        let planned = &self.trace.requests[at];
        if let Some(before) = planned.after.filter(|before| !self.ended[*before as usize]) {
            self.followers[before as usize].push(number);
            return Ok(());
        }
        let fate = &mut self.result.fates[at];
        if fate.refused == 0 {
            fate.came = self.now;
        }
        // By number, so that every policy gets a request at the same replica.
        let replica = crate::trace::mix(self.replica_seed ^ u64::from(number)) as usize % self.replicas.len();
        let work = planned.work(number, self.pods[0].engine.shape().block_size);
        (fate.prompt, fate.answer) = (work.prompt, work.answer);
        let ask = ask(&work, planned.session, self.replicas[replica].model());
        let Some(sent) = self.choose(replica, &ask, &work)? else {
            self.result.fates[at].refused += 1;
            self.agenda.add(self.now + nanos(COME_BACK), Event::Comes(number));
            return Ok(());
        };
        let pod = sent.pod;
        self.result.fates[at].pod = pod as u32;
        let way = self.pods[pod].engine.shape().rates.way_in(work.prompt);
        let queued_at = self.now + nanos(HOP + way);
        self.pods[pod].coming.push((queued_at, work));
        let running = Running { replica, sent, sent_at: self.now, queued_at, cached: 0 };
        self.running[at] = Some(Box::new(running));
        self.agenda.add(queued_at, Event::Queues { request: number, pod });
        Ok(())
    }

    /// The pod for a request; `None` when it is refused.
    fn choose(&mut self, replica: usize, ask: &Ask, work: &Work) -> anyhow::Result<Option<Sent>> {
        let pod = match &self.placement {
            Placement::Scheduler(_) => {
                let mut time = DecisionTime::default();
                let sent = self.replicas[replica].place(ask, &mut time);
                self.result.gather.push(time.gather.as_secs_f64());
                self.result.decide.push(time.decide.as_secs_f64());
                return match sent {
                    Ok(sent) => Ok(Some(sent)),
                    Err(kvasir_core::ScheduleError::AllFiltered(_)) => Ok(None),
                    Err(error) => Err(error.into()),
                };
            }
            Placement::InTurn => {
                let turn = &mut self.turns[replica];
                *turn = (*turn + 1) % self.pods.len();
                *turn
            }
            Placement::Oracle(wish) => oracle::best_pod(*wish, &self.pods, work, self.now, &mut self.rng),
        };
        Ok(Some(self.replicas[replica].place_at(ask, pod)))
    }

    fn queues(&mut self, request: u32, pod: usize) {
        let coming = &mut self.pods[pod].coming;
        let Some(place) = coming.iter().position(|(_, work)| work.request == request) else { return };
        let (_, work) = coming.remove(place);
        self.pods[pod].engine.enqueue(work);
        self.begin_step(pod);
    }

    fn begin_step(&mut self, number: usize) {
        let pod = &mut self.pods[number];
        if pod.engine.is_stepping() {
            return;
        }
        let Some(took) = pod.engine.begin_step() else { return };
        pod.step_ends = self.now + nanos(took).max(1);
        self.agenda.add(pod.step_ends, Event::StepEnds(number));
    }

    /// The routers hear of the blocks of a step when it has ended: vLLM collects events while it schedules and publishes
    /// them with the step's results.
    fn tell_caches(&mut self, number: usize) {
        let pod = &mut self.pods[number];
        let events = pod.engine.take_events();
        if events.is_empty() || !self.follows_caches {
            return;
        }
        let batch =
            Batch { seq: pod.batches, ts: seconds(self.now), rank: Some(0), events, ..Batch::default() };
        pod.batches += 1;
        let at = self.now + nanos(EVENT_DELAY);
        self.agenda.add(at, Event::CacheChanges { pod: number, batch: Box::new(batch) });
    }

    fn step_ends(&mut self, number: usize) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.pods[number].engine.end_step(&mut outcomes);
        self.tell_caches(number);
        for outcome in outcomes.drain(..) {
            match outcome {
                StepOutcome::FirstToken { request, cached } => {
                    if let Some(running) = self.running[request as usize].as_mut() {
                        running.cached = cached;
                        let waited = seconds(self.now.saturating_sub(running.queued_at));
                        let (sum, count) = &mut self.pods[number].first_tokens;
                        (*sum, *count) = (*sum + waited, *count + 1);
                    }
                    self.agenda.add(self.now + nanos(HOP), Event::FirstByte(request));
                }
                StepOutcome::Ended { request } => {
                    self.agenda.add(self.now + nanos(HOP), Event::Ends(request));
                }
            }
        }
        self.outcomes = outcomes;
        self.begin_step(number);
    }

    fn first_byte(&mut self, request: u32) {
        let Some(running) = self.running[request as usize].as_mut() else { return };
        let fate = &mut self.result.fates[request as usize];
        (fate.first, fate.cached) = (self.now, running.cached);
        let took = Duration::from_nanos(self.now - running.sent_at);
        self.replicas[running.replica].first_byte(&mut running.sent, took);
    }

    fn ends(&mut self, request: u32) {
        let at = request as usize;
        let Some(running) = self.running[at].take() else { return };
        let fate = &mut self.result.fates[at];
        fate.ended = self.now;
        let usage = Usage {
            prompt_tokens: u64::from(fate.prompt),
            completion_tokens: u64::from(fate.answer),
            cached_tokens: Some(u64::from(fate.cached)),
        };
        self.replicas[running.replica].completed(&running.sent, &usage);
        self.ended[at] = true;
        self.left -= 1;
        for follower in std::mem::take(&mut self.followers[at]) {
            self.agenda.add(self.now + nanos(HOP), Event::Comes(follower));
        }
    }

    fn scrape(&mut self, group: usize) {
        for (number, pod) in self.pods.iter_mut().enumerate().skip(group).step_by(SCRAPE_GROUPS) {
            let sample = pod.sample();
            for replica in &mut self.replicas {
                replica.sampled(number, sample);
            }
        }
        self.agenda.add(self.now + nanos(SCRAPE_EVERY), Event::Scrape(group));
    }

    fn tell_peers(&mut self) {
        for pod in 0..self.pods.len() {
            let own: Vec<SharedLoad> = self.replicas.iter().map(|replica| replica.own(pod)).collect();
            let all = own.iter().fold(SharedLoad::default(), |all, one| SharedLoad {
                in_flight: all.in_flight + one.in_flight,
                prefill_tokens: all.prefill_tokens + one.prefill_tokens,
                decoding: all.decoding + one.decoding,
            });
            for (replica, own) in self.replicas.iter_mut().zip(own) {
                let peers = SharedLoad {
                    in_flight: all.in_flight - own.in_flight,
                    prefill_tokens: all.prefill_tokens - own.prefill_tokens,
                    decoding: all.decoding - own.decoding,
                };
                replica.set_peers(pod, peers);
            }
        }
        self.agenda.add(self.now + nanos(PEERS_EVERY), Event::TellPeers);
    }
}

#[cfg(test)]
mod tests;
