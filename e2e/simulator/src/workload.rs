//! What clients do: seven shapes of traffic and a mix of them, drawn anew for every seed.
//!
//! A population (groups, conversations, tasks, documents) is made just large enough for the wanted KV demand: the tokens
//! worth keeping at one time over the KV memory of the whole fleet. Each arrival picks one of it, the popular ones far
//! more often than the others (Zipf), and gets its next request or requests.

mod arrivals;
mod authors;
mod chance;

use kvasir_core::ModelName;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::Serialize;
use smallvec::SmallVec;

use crate::clock::{Nanos, nanos};
use crate::engine::EngineShape;
use crate::trace::{Planned, Segment, Trace};

use arrivals::{Arrivals, Modulation};

/// The model that everybody asks for.
pub fn model() -> ModelName {
    "simulated".into()
}

/// A shape of traffic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Half as many system prompts of 4,000 tokens as there are pods: each is worth more than one pod.
    SystemFew,
    /// As many system prompts of 6,000 tokens as the KV demand says, with questions of 1,200.
    SystemMany,
    /// Conversations of about eight turns under four system prompts.
    Chat,
    /// Tasks that branch: sibling requests at the same moment over a common trunk, which then grows.
    Agents,
    /// Shared prefixes, and now and then a crowd for one of them within half a second.
    Bursts,
    /// Questions about documents of 6,000 to 32,000 tokens.
    Documents,
    /// Short prompts that have nothing in common.
    Short,
    /// All of them, at a rate that swings and bursts.
    Mixed,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Self; 8] = [
        Self::SystemFew,
        Self::SystemMany,
        Self::Chat,
        Self::Agents,
        Self::Bursts,
        Self::Documents,
        Self::Short,
        Self::Mixed,
    ];

    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::SystemFew => "system-few",
            Self::SystemMany => "system-many",
            Self::Chat => "chat",
            Self::Agents => "agents",
            Self::Bursts => "bursts",
            Self::Documents => "documents",
            Self::Short => "short",
            Self::Mixed => "mixed",
        }
    }

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    fn modulation(self) -> Modulation {
        match self {
            Self::Mixed => Modulation::DAILY,
            Self::Bursts => Modulation::BURSTY,
            _ => Modulation::STEADY,
        }
    }
}

/// How much of a workload, on which fleet.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Demand {
    /// Pods.
    pub pods: u32,
    /// KV tokens of all pods together.
    pub fleet_tokens: u64,
    /// KV tokens of the smallest pod.
    pub pod_tokens: u64,
    /// Tokens worth keeping over `fleet_tokens`.
    pub kv_demand: f64,
    /// Work that comes over what the fleet can do, by [`Trace::mean_work`].
    pub utilisation: f64,
    /// Requests.
    pub requests: usize,
    /// The first so many requests warm up; they are not counted.
    pub warm_up: usize,
    /// All lengths are multiplied with it.
    pub length_scale: f64,
    /// Sum of the pods' speeds, in pods of the preset.
    pub speed: f64,
}

/// A request before its time is known.
#[derive(Clone, Debug)]
struct Draft {
    /// After the volley's begin.
    offset: Nanos,
    prompt: SmallVec<[Segment; 4]>,
    answer: Segment,
    session: u64,
    /// The number of the draft whose answer it continues.
    after: Option<u32>,
}

/// Who writes requests.
trait Author {
    /// Tokens worth keeping at one time.
    fn working_set(&self) -> u64;

    /// The next requests that come together; `number` is that of the first one.
    fn volley(&mut self, number: u32, rng: &mut StdRng) -> Vec<Draft>;
}

/// The requests of `workload` for this demand.
pub fn plan(workload: Workload, demand: &Demand, shape: &EngineShape, seed: u64) -> Trace {
    let mut rng = StdRng::seed_from_u64(seed ^ crate::trace::mix(workload as u64 + 1));
    let mut author = authors::author(workload, demand, &mut rng);
    let mut volleys: Vec<Vec<Draft>> = Vec::new();
    let mut count = 0;
    while count < demand.requests {
        let volley = author.volley(count as u32, &mut rng);
        count += volley.len();
        volleys.push(volley);
    }
    let working_set = author.working_set();
    let mut trace = Trace { requests: untimed(&volleys), warm_up: demand.warm_up, working_set };
    let rate = demand.utilisation * demand.speed / trace.mean_work(shape);
    let length = count as f64 / rate;
    let per_volley = count as f64 / volleys.len().max(1) as f64;
    let mut arrivals = Arrivals::new(rate / per_volley, length, workload.modulation());
    let times: Vec<Nanos> = volleys.iter().map(|_| nanos(arrivals.next(&mut rng))).collect();
    let starts =
        volleys.iter().zip(times).flat_map(|(volley, at)| volley.iter().map(move |draft| at + draft.offset));
    for (request, at) in trace.requests.iter_mut().zip(starts) {
        request.at = at;
    }
    in_order(trace)
}

fn untimed(volleys: &[Vec<Draft>]) -> Vec<Planned> {
    volleys
        .iter()
        .flatten()
        .map(|draft| Planned {
            at: 0,
            after: draft.after,
            prompt: draft.prompt.clone(),
            answer: draft.answer,
            session: draft.session,
        })
        .collect()
}

/// Sorted by time, with references to earlier requests corrected.
fn in_order(mut trace: Trace) -> Trace {
    let mut order: Vec<u32> = (0..trace.requests.len() as u32).collect();
    order.sort_by_key(|at| trace.requests[*at as usize].at);
    let mut place = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old as usize] = new as u32;
    }
    trace.requests = order
        .iter()
        .map(|old| {
            let request = trace.requests[*old as usize].clone();
            Planned { after: request.after.map(|before| place[before as usize]), ..request }
        })
        .collect();
    trace
}

#[cfg(test)]
mod tests;
