//! `least-request` as a scorer: prefers endpoints with few requests, above all few that the engine has not begun.
//!
//! `base = in_flight + 100 x max(in_flight - running, 0)`, where `in_flight` is what this router and its
//! live peers have sent there and `running` is what the engine reports (0 without a scrape). `score = trunc((most - base) / most x 100)` with
//! `most` the largest base among the candidates; 100 for all when that is 0.
//!
//! No parameters of its own; `maxWaitingRequests` belongs to the filter of the same name.
//!
//! ```yaml
//! scheduler:
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: least-request, weight: 1}
//! ```

use kvasir_core::{Candidates, CycleState, Load, Plugin, Scorer, Scores};

/// What a request counts that was sent but that the engine has not begun.
const NOT_RUNNING_WEIGHT: f64 = 100.0;

/// The scorer.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRequest;

impl LeastRequest {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "least-request";
}

impl Plugin for LeastRequest {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for LeastRequest {
    fn score(&self, _: &CycleState, pool: &Candidates, out: &mut Scores) {
        let most = pool.kept().map(|(_, candidate)| base(&candidate.load)).fold(0.0, f64::max);
        super::fill(pool, out, |_, candidate| {
            let score =
                if most > 0.0 { ((most - base(&candidate.load)) / most * 100.0).trunc() } else { 100.0 };
            Some(score)
        });
    }
}

fn base(load: &Load) -> f64 {
    let running = load.sample.map_or(0, |sample| sample.running);
    let not_running = load.in_flight.saturating_sub(running);
    f64::from(load.in_flight) + f64::from(not_running) * NOT_RUNNING_WEIGHT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cycle, pool_of, scores_of};
    use kvasir_core::EngineSample;

    fn load((in_flight, running): (u32, u32)) -> Load {
        let sample = Some(EngineSample { running, ..EngineSample::default() });
        Load { in_flight, sample, ..Load::default() }
    }

    #[test]
    fn scores_follow_the_formula() {
        for (loads, expected) in [
            ([(1, 0), (2, 0), (3, 0)], [66.0, 33.0, 0.0]),
            ([(5, 5), (5, 0), (0, 0)], [99.0, 0.0, 100.0]),
            ([(0, 0), (0, 7), (0, 0)], [100.0, 100.0, 100.0]),
            ([(2, 9), (2, 2), (1, 1)], [0.0, 0.0, 50.0]),
        ] {
            let pool = pool_of(loads.map(load));
            assert_eq!(scores_of(&LeastRequest, &cycle(), &pool), expected.map(Some), "{loads:?}");
        }
    }

    #[test]
    fn an_endpoint_that_was_never_scraped_runs_nothing() {
        let pool = pool_of([Load { in_flight: 1, ..Load::default() }, Load::default()]);
        assert_eq!(scores_of(&LeastRequest, &cycle(), &pool), [Some(0.0), Some(100.0)]);
    }

    #[test]
    fn a_dropped_endpoint_does_not_set_the_scale() {
        let mut pool = pool_of([load((1, 1)), load((2, 2)), load((100, 0))]);
        pool.retain(|candidate| candidate.load.in_flight < 100);
        assert_eq!(scores_of(&LeastRequest, &cycle(), &pool), [Some(50.0), Some(0.0), None]);
    }
}
