//! `kvasir-cost`: prefers the endpoint where the answer begins soonest for the least new work. The default.
//!
//! What stands between a request and its first token at an endpoint is counted in prompt tokens, as *work*:
//!
//! ```text
//! own  = prompt - cached - 0.7 x loadable      what the engine computes; blocks on slower tiers are loaded
//! work = own
//!      + queued                                uncached tokens of requests there that wait for their first byte
//!      + foreign waiting x typical             requests that no router of ours sent
//!      + 32 x generating                       places in each engine step
//!      + 4 x KV shortage                       tokens that do not fit into the engine's free KV cache
//!
//! expected = fixed + each x work + adapter     seconds until the first token
//! company  = 2 x requests there x answer       what they and this one cost each other while they generate
//! cost     = expected + each x ((3 x affinity - 1) x own + company)
//!                     + fleet's each x 20 x affinity x congestion x own
//! score    = 100 x (1 - cost / worst cost)
//! ```
//!
//! `fixed` and `each` are the endpoint's pace, learned from streamed answers: the fleet's, unless the endpoint plainly
//! differs (see [`pace`](self::pace) and `fleets`). The fleet's own `fixed` is left out of the cost, since all pay it.
//! With equal paces everything is weighed in tokens, and the pace is only the unit. `answer` is the length of a typical
//! answer, or `max_tokens` where that is less.
//!
//! Own work weighs more than waiting, because others pay for it too: those that queue behind it, and those whose blocks
//! leave the cache for it. It weighs the more the longer they all queue: `congestion` is what is queued at an endpoint, as
//! a mean that leaves the fullest quarter out, over the prompt's length. Where everybody queues, computing once more
//! what another endpoint holds makes all queues longer, and a fleet that begins with it never catches up; where most
//! endpoints have room, a hot one is left. So a burst of siblings stays together behind the one prefill they share, and
//! spills once the queue costs more than prefilling again. Company spreads prompts that many endpoints could serve: a prompt that all
//! share is soon held by as many as it takes.
//!
//! Costs within 64 tokens' time of the least, or within 4 % of it, count as equal: knowledge of the fleet is a tenth of
//! a second old, and routers that all follow the last millisecond meet at one endpoint. Among equals the one with fewest
//! requests wins, then the one that this router chose longest ago, then chance. Prefill endpoints take no turns, so that
//! retries find another one among equals. Where other routers send too, nearby counts of requests are equal as well. So short prompts, and those that share a first block only, spread evenly.
//!
//! Where prefill and decode are apart, the prefill run counts own, queued, foreign and shortage; the decode run counts
//! 32 for each request there, company, the KV shortage, and a twentieth of what would have to be transferred.
//!
//! Without tokens nothing is known to be held, and the estimated length is compared with the load alone.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `affinity` | 1 | 0 to 4; at 1, a second of prefill saved is worth waiting 3 s where others have room, at 0 only load counts |
//!
//! ```yaml
//! scheduler:
//!   pluginConfig:
//!     - name: kvasir-cost
//!       args: {affinity: 1}
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: kvasir-cost, weight: 1}
//! ```

mod congestion;
mod fleets;
pub mod pace;
mod ranking;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvasir_core::{
    AdapterStanding, Candidate, Candidates, CycleState, Endpoint, EngineSample, InFlightCost, Load, Needs,
    Phase, PlacementObserver, Plugin, Role, Scorer, Scores, Usage,
};
use kvasir_settings::resolved::KvasirCostArgs;

use self::congestion::Congestion;
use self::fleets::Fleets;
use self::pace::Pace;
use self::ranking::{is_shared, requests};

/// What this request's own uncached tokens weigh against queued ones at an affinity of 1. At 1 a second copy of a 4k
/// prompt is sent elsewhere as soon as the first one is being prefilled (fault RTE-04), and where the caches are just
/// large enough for what comes again, copies drive each other out and hit rates collapse (below 3 in the simulator,
/// with long documents on uneven pods). Far above it one endpoint keeps a hot prefix for too long (RTE-01).
const OWN_WORK_WEIGHT: f64 = 3.0;

/// What own work weighs more for each prompt's length that is queued everywhere. In the simulator, long documents on a
/// fleet with a tenth more work than it can do: without it 48 % of the tokens come out of caches, with 8 about 93 %, with
/// 20 nearly all that can. More costs bursts some hundredths of their p90 and saves nothing.
const CONGESTION_WEIGHT: f64 = 20.0;

/// Shorter prompts are measured as if they were this long: what little can be saved of them is not worth a queue.
const CONGESTED_PROMPT: f64 = 1024.0;

/// What a request there costs for each token of an answer, in prompt tokens: both sit in the same steps, and each makes
/// them longer for the other. With 0, a few common prompts crowd a few endpoints, and answers take a third longer than
/// when placed by chance; above 3, conversations leave their caches.
const COMPANY_SHARE: f64 = 2.0;

/// Tokens of an answer, until answers have told what is typical.
const ANSWER_TOKENS: f64 = 128.0;

/// What one generating request costs a newcomer, in prompt tokens: it takes a place in each engine step and makes
/// it longer, but hardly delays a prefill.
const DECODE_TOKENS: f64 = 32.0;

/// What one token costs for which there is no free KV memory: it comes free as others finish generating, which is
/// slower than prefilling.
const KV_SHORTAGE_WEIGHT: f64 = 4.0;

/// From here on an engine of unknown KV capacity is taken to run short; below it admits without waiting.
const KV_USAGE_HIGH: f64 = 0.9;

/// Uncached tokens of a request that another router sent, until our own requests have told what is typical.
const TYPICAL_TOKENS: f64 = 512.0;

/// Share of each new value in a mean.
const TYPICAL_STEP: f64 = 1.0 / 64.0;

/// A value counts as this many times the mean at most, for one client, or an engine that counts wrongly, is not typical.
const TYPICAL_MOST: f64 = 16.0;

/// From a smaller mean, as from this one: tokens.
const TYPICAL_LEAST: f64 = 64.0;

/// The part of a token's prefill that is saved when its block is loaded from a slower tier. From the host's memory nearly
/// all is, from a disk hardly anything; events name the tier, a hit does not.
const LOADED_CREDIT: f64 = 0.7;

/// What transferring a token's KV costs of computing it, between machines of one room.
const TRANSFER_SHARE: f64 = 0.05;

/// Seconds until an adapter can be used where there is room for it: a load from the disk.
const ADAPTER_ABSENT: f64 = 0.3;

/// Where all places are taken, somebody's generation has to end first. So it does where requests wait for the adapter
/// already: with room there, they would not.
const ADAPTER_BLOCKED: f64 = 1.0;

/// The scorer, which is also the observer that learns the endpoints' paces and, over all models, the size of a typical
/// request.
#[derive(Debug)]
pub struct KvasirCost {
    affinity: f64,
    fleets: Fleets,
    /// Uncached tokens of a typical prompt.
    typical: Mean,
    /// Tokens of a typical answer.
    answer: Mean,
}

impl KvasirCost {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "kvasir-cost";

    /// Knows no requests yet.
    pub fn new(args: &KvasirCostArgs) -> Self {
        Self {
            affinity: args.affinity,
            fleets: Fleets::new(),
            typical: Mean::from(TYPICAL_TOKENS),
            answer: Mean::from(ANSWER_TOKENS),
        }
    }

    /// The pace that is reckoned with at `endpoint`.
    pub fn pace_of(&self, endpoint: &Endpoint) -> Pace {
        match self.fleets.of(&endpoint.model).map(|fleet| fleet.known()) {
            Some((prior, answers)) => self.fleets.pace(endpoint, prior, answers),
            None => Pace::UNSEEN,
        }
    }

    /// What a token that is computed once more costs all who queue, seconds.
    fn congestion(&self, cycle: &CycleState, pool: &Candidates, prior: Pace) -> f64 {
        let queued = Congestion::of(pool.kept().map(|(_, candidate)| candidate.load.prefill_tokens));
        let congestion = queued / f64::from(cycle.prompt_tokens).max(CONGESTED_PROMPT);
        CONGESTION_WEIGHT * self.affinity * congestion * f64::from(prior.each)
    }

    /// Costs into `out`, in seconds; expectations into `expected` where it is as long. Gives the fleet's pace.
    fn cost(
        &self,
        cycle: &CycleState,
        pool: &Candidates,
        out: &mut Scores,
        mut expected: Option<&mut Scores>,
    ) -> Pace {
        let typical = self.typical.get();
        let answer = self.answer.get().min(cycle.max_tokens.map_or(f64::INFINITY, f64::from));
        let company_share = if pool.phase() == Phase::Prefill { 0.0 } else { COMPANY_SHARE * answer };
        let shared = is_shared(pool);
        let fleet = self.fleets.of(&cycle.model).map(|fleet| fleet.known());
        let (prior, answers) = fleet.unwrap_or((Pace::UNSEEN, 0));
        let own_extra = OWN_WORK_WEIGHT * self.affinity - 1.0;
        let congestion = self.congestion(cycle, pool, prior);
        super::fill(pool, out, |index, Candidate { endpoint, load }| {
            let work = Work::of(cycle, index, load, pool.phase(), typical);
            let pace = if fleet.is_some() { self.fleets.pace(endpoint, prior, answers) } else { prior };
            let adapter = adapter_seconds(load.adapter);
            let teaches = work.known && adapter == 0.0;
            self.fleets.saw(endpoint, cycle, if teaches { work.total } else { f64::NAN });
            if let Some(slot) = expected.as_mut().and_then(|expected| expected.get_mut(index)) {
                *slot = Some(pace.time(work.total) + adapter);
            }
            let apart = f64::from((pace.fixed - prior.fixed).max(0.0));
            let company = requests(load, shared) * company_share;
            let tokens = work.total + own_extra * work.own + company;
            Some(apart + f64::from(pace.each) * tokens + congestion * work.own + adapter)
        });
        prior
    }
}

impl Default for KvasirCost {
    fn default() -> Self {
        Self::new(&KvasirCostArgs::default())
    }
}

impl Plugin for KvasirCost {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for KvasirCost {
    fn needs(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        let prior = self.cost(cycle, pool, out, None);
        ranking::rank(pool, prior, &self.fleets, out);
    }

    fn score_and_expect(
        &self,
        cycle: &CycleState,
        pool: &Candidates,
        out: &mut Scores,
        expected: &mut Scores,
    ) {
        expected.resize(pool.len(), None);
        let prior = self.cost(cycle, pool, out, Some(expected));
        ranking::rank(pool, prior, &self.fleets, out);
    }
}

impl PlacementObserver for KvasirCost {
    fn dispatched(&self, cycle: &CycleState, endpoint: &Endpoint, cost: InFlightCost) {
        // A decode endpoint is sent prompts that were computed elsewhere.
        if endpoint.role != Role::Decode {
            self.typical.learn(f64::from(cost.prefill_tokens));
        }
        self.fleets.left(endpoint, cycle);
    }

    fn first_byte(&self, cycle: &CycleState, endpoint: &Endpoint, _: InFlightCost, took: Duration) {
        self.fleets.began(endpoint, cycle, took.as_secs_f64());
    }

    fn completed(&self, cycle: &CycleState, endpoint: &Endpoint, usage: Option<&Usage>) {
        // A prefill endpoint generates one token for whoever decodes.
        if let Some(usage) = usage.filter(|_| endpoint.role != Role::Prefill) {
            self.answer.learn(usage.completion_tokens as f64);
        }
        self.fleets.ended(endpoint, cycle);
    }

    fn failed(&self, _: &CycleState, _: &Endpoint) {}
}

/// A mean that follows about the last hundred values. Bits of an `f64`.
#[derive(Debug)]
struct Mean(AtomicU64);

impl From<f64> for Mean {
    fn from(first: f64) -> Self {
        Self(AtomicU64::new(first.to_bits()))
    }
}

impl Mean {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Of two at the same moment one may be lost: a mean can bear that.
    fn learn(&self, value: f64) {
        let before = self.get();
        let value = value.min(TYPICAL_MOST * before.max(TYPICAL_LEAST));
        self.0.store((before + (value - before) * TYPICAL_STEP).to_bits(), Ordering::Relaxed);
    }
}

/// What stands between a request and its first token at one endpoint, tokens.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Work {
    /// All of it.
    total: f64,
    /// The part that the request brings.
    own: f64,
    /// Whether it is known well enough to learn a pace from.
    known: bool,
}

impl Work {
    fn of(cycle: &CycleState, index: usize, load: &Load, phase: Phase, typical: f64) -> Self {
        let prompt = f64::from(cycle.prompt_tokens);
        let queued = load.prefill_tokens as f64;
        let foreign = load.foreign();
        let shortage = load.sample.map_or(0.0, |sample| kv_shortage(prompt + queued, &sample, typical));
        let held = f64::from(cycle.reusable_tokens(index));
        let waits = shortage * KV_SHORTAGE_WEIGHT;
        if phase == Phase::Decode {
            // Those that another endpoint still prefills come here as well.
            let generating = f64::from(load.in_flight) + f64::from(foreign);
            let total = generating * DECODE_TOKENS + waits + (prompt - held).max(0.0) * TRANSFER_SHARE;
            return Self { total, own: 0.0, known: false };
        }
        let loaded = LOADED_CREDIT * f64::from(cycle.loadable_tokens(index));
        let own = (prompt - held - loaded).max(0.0);
        // Who of the waiting ones is ours cannot be told; while others are there, those are taken to wait.
        let foreign_waiting = load.sample.map_or(0, |sample| sample.waiting).min(foreign);
        let generating = match phase {
            Phase::Prefill => 0.0,
            Phase::Whole | Phase::Decode => f64::from(load.decoding) + f64::from(foreign - foreign_waiting),
        };
        let total = own + queued + f64::from(foreign_waiting) * typical + generating * DECODE_TOKENS + waits;
        Self { total, own, known: foreign == 0 && shortage == 0.0 }
    }
}

/// Tokens of `wanted` for which the engine has no free KV memory. Cached blocks that nobody uses are free memory,
/// but using them takes them, so the whole prompt counts.
fn kv_shortage(wanted: f64, sample: &EngineSample, typical: f64) -> f64 {
    let capacity = f64::from(sample.kv_blocks) * f64::from(sample.block_size);
    if capacity > 0.0 {
        (wanted - capacity * (1.0 - sample.kv_usage)).max(0.0)
    } else {
        typical * ((sample.kv_usage - KV_USAGE_HIGH) / (1.0 - KV_USAGE_HIGH)).max(0.0)
    }
}

fn adapter_seconds(standing: AdapterStanding) -> f64 {
    match standing {
        AdapterStanding::Unknown | AdapterStanding::Resident => 0.0,
        AdapterStanding::Absent => ADAPTER_ABSENT,
        AdapterStanding::Loading | AdapterStanding::Full => ADAPTER_BLOCKED,
    }
}

#[cfg(test)]
mod tests;
