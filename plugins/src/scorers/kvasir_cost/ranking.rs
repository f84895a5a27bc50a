//! From costs to scores, and what decides among endpoints of nearly the same cost.

use kvasir_core::{Candidate, Candidates, Load, Phase, Scores};

use super::fleets::Fleets;
use super::pace::Pace;

/// Differences up to this are not worth concentrating load for: about one engine step.
const NEAR_TIE_TOKENS: f64 = 64.0;

/// Nor are those up to this share of the least cost: the estimate of a long queue is no better than that.
const NEAR_TIE_SHARE: f64 = 0.04;

/// Costs become scores: those near the least are ordered by the number of requests and then by whose turn it is, and all
/// are measured by the worst.
///
/// Prefill endpoints take no turns: the retries of one request share those of them that are equal, and turns would leave
/// a single best one to all retries.
pub(super) fn rank(pool: &Candidates, prior: Pace, fleets: &Fleets, costs: &mut Scores) {
    let best = costs.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let near = (NEAR_TIE_TOKENS * f64::from(prior.each)).max(NEAR_TIE_SHARE * best);
    let (shared, count) = (is_shared(pool), pool.kept_count() as f64);
    let turns = pool.phase() != Phase::Prefill;
    for (candidate, slot) in pool.all().iter().zip(costs.iter_mut()) {
        if let Some(cost) = slot.as_mut().filter(|cost| **cost <= best + near) {
            let turn = if turns { recency(candidate, fleets, count) } else { 0.0 };
            let crowd = requests(&candidate.load, shared) + turn;
            *cost = best + near * crowd / (1.0 + crowd);
        }
    }
    let worst = costs.iter().flatten().copied().fold(0.0, f64::max);
    for cost in costs.iter_mut().flatten() {
        *cost = if worst > 0.0 { 100.0 * (1.0 - *cost / worst) } else { 100.0 };
    }
}

/// Whether other routers send to these endpoints too.
pub(super) fn is_shared(pool: &Candidates) -> bool {
    pool.kept().any(|(_, candidate)| candidate.load.peers_in_flight > 0)
}

/// Requests there. Where others send too, the last digits of the number are of the past.
pub(super) fn requests(load: &Load, shared: bool) -> f64 {
    let requests = load.in_flight.saturating_add(load.foreign());
    f64::from(if shared { rounded(requests) } else { requests })
}

/// From nearly 1 for the endpoint that was chosen last towards 0, by half in as many requests as there are endpoints, and
/// always less than a request. Taking
/// turns keeps arrivals apart better than chance does, and needs to know nothing of the others' moment.
fn recency(candidate: &Candidate, fleets: &Fleets, count: f64) -> f64 {
    fleets.since(&candidate.endpoint).map_or(0.0, |since| count / (count + 1.0 + f64::from(since)))
}

/// The number with its three leading bits: exact to 7, in steps of an eighth to a quarter of it above.
pub(super) fn rounded(requests: u32) -> u32 {
    let dropped = (u32::BITS - requests.leading_zeros()).saturating_sub(3);
    requests >> dropped << dropped
}
