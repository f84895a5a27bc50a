//! Placement with perfect knowledge of every cache, queue and running answer.

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::HOP;
use super::pod::Pod;
use crate::clock::{Nanos, seconds};
use crate::engine::{Forecast, Work};
use crate::policy::Wish;

/// Forecasts that differ by less are equal: a thousandth of a second is nothing to anybody.
const EQUAL_SECONDS: f64 = 0.001;

/// The pod that `wish` is best served by. Among equals chance decides.
pub(super) fn best_pod(wish: Wish, pods: &[Pod], work: &Work, now: Nanos, rng: &mut StdRng) -> usize {
    let forecasts: Vec<Forecast> = pods
        .iter()
        .map(|pod| {
            let ahead: Vec<(f64, &Work)> =
                pod.coming.iter().map(|(at, work)| (seconds(at.saturating_sub(now)), work)).collect();
            let ready = HOP + pod.engine.shape().rates.way_in(work.prompt);
            pod.engine.forecast(&ahead, work, ready, seconds(pod.step_ends.saturating_sub(now)))
        })
        .collect();
    let soonest = |forecast: &Forecast| forecast.first_token;
    let least = forecasts.iter().map(soonest).fold(f64::INFINITY, f64::min);
    let equals: Vec<usize> = match wish {
        Wish::Soonest => near(&forecasts, |forecast| forecast.first_token <= least + EQUAL_SECONDS),
        Wish::MostReuse => {
            let best =
                forecasts.iter().position(|forecast| forecast.first_token <= least).unwrap_or_default();
            let patience = pods.get(best).map_or(0.0, |pod| pod.engine.shape().prefill_alone(work.prompt, 0));
            let allowed = |forecast: &Forecast| forecast.first_token <= least + patience;
            let most = forecasts.iter().filter(|forecast| allowed(forecast)).map(|forecast| forecast.cached);
            let most = most.max().unwrap_or_default();
            let first = forecasts
                .iter()
                .filter(|forecast| allowed(forecast) && forecast.cached == most)
                .map(soonest)
                .fold(f64::INFINITY, f64::min);
            near(&forecasts, |forecast| {
                allowed(forecast) && forecast.cached == most && forecast.first_token <= first + EQUAL_SECONDS
            })
        }
    };
    equals.get(rng.random_range(0..equals.len().max(1))).copied().unwrap_or_default()
}

fn near(forecasts: &[Forecast], is_equal: impl Fn(&Forecast) -> bool) -> Vec<usize> {
    (0..forecasts.len()).filter(|at| is_equal(&forecasts[*at])).collect()
}
