//! What a decision costs on fleets of different sizes, by the machine's clock.

use std::fmt::Write as _;

use serde::Serialize;

use crate::experiment::Experiment;
use crate::outcome::quantile;
use crate::policy::Policy;
use crate::workload::Workload;

/// Requests for each pod, so that caches are filled and the run stays short.
const REQUESTS_PER_POD: usize = 6;

/// Requests at least, so that percentiles mean something.
const LEAST_REQUESTS: usize = 2000;

/// A fleet's size and the cost of a decision there.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FleetCost {
    /// Pods.
    pub pods: usize,
    /// Requests of the run.
    pub requests: usize,
    /// Hit rate of the requests that counted.
    pub hit_rate: f64,
    /// Hit rate of one boundless cache.
    pub ideal_hit_rate: f64,
    /// Seconds of gathering and deciding, median.
    pub decision_p50: f64,
    /// 99th percentile of the same.
    pub decision_p99: f64,
    /// Seconds of gathering alone, median.
    pub gather_p50: f64,
    /// Wall-clock seconds of the whole run.
    pub took: f64,
}

/// Runs the default profile on `pods` pods under the mixed workload.
///
/// # Errors
/// As [`crate::run::run`].
pub fn measure(experiment: &Experiment, pods: usize) -> anyhow::Result<FleetCost> {
    let requests = (pods * REQUESTS_PER_POD).max(LEAST_REQUESTS);
    let seed = experiment.seeds.first().copied().unwrap_or_default();
    let sized = Experiment { pods, requests, ..experiment.clone() };
    let begun = std::time::Instant::now();
    let (figures, result) = sized.run_one(Workload::Mixed, Policy::KvasirCost, seed)?;
    let took = begun.elapsed().as_secs_f64();
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let both = sorted(result.gather.iter().zip(&result.decide).map(|(one, other)| one + other).collect());
    Ok(FleetCost {
        pods,
        requests,
        hit_rate: figures.hit_rate,
        ideal_hit_rate: sized.trace(Workload::Mixed, seed).ideal_hit_rate(),
        decision_p50: quantile(&both, 0.5),
        decision_p99: quantile(&both, 0.99),
        gather_p50: quantile(&sorted(result.gather), 0.5),
        took,
    })
}

/// The sizes as a table; empty for none.
pub fn table(fleets: &[FleetCost]) -> String {
    let mut out = String::new();
    if fleets.is_empty() {
        return out;
    }
    out.push_str("   pods  requests  hit rate %  ideal %  decision p50 us  p99 us  gather p50 us  run s\n");
    for fleet in fleets {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:>7} {:>9} {:>11.1} {:>8.1} {:>16.0} {:>7.0} {:>14.0} {:>6.1}",
            fleet.pods,
            fleet.requests,
            100.0 * fleet.hit_rate,
            100.0 * fleet.ideal_hit_rate,
            1e6 * fleet.decision_p50,
            1e6 * fleet.decision_p99,
            1e6 * fleet.gather_p50,
            fleet.took
        );
    }
    out
}
