//! `gpu-usage`: prefers endpoints whose engine has KV cache to spare.
//!
//! `score = trunc((1 - kv_usage) x 100)`, in floating point: 0.9 gives 9, not 10. An endpoint without a scrape
//! counts as empty.
//!
//! No parameters.
//!
//! ```yaml
//! scheduler:
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: gpu-usage, weight: 1}
//! ```

use kvasir_core::{Candidates, CycleState, Plugin, Scorer, Scores};

/// The scorer.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuUsage;

impl GpuUsage {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "gpu-usage";
}

impl Plugin for GpuUsage {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for GpuUsage {
    fn score(&self, _: &CycleState, pool: &Candidates, out: &mut Scores) {
        super::fill(pool, out, |_, candidate| {
            let usage = candidate.load.sample.map_or(0.0, |sample| sample.kv_usage);
            Some(((1.0 - usage) * 100.0).trunc())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cycle, pool_of, sampled, scores_of};
    use kvasir_core::{EngineSample, Load};

    #[test]
    fn scores_follow_the_formula() {
        for (kv_usage, expected) in
            [(0.0, 100.0), (0.9, 9.0), (0.8, 19.0), (0.55, 44.0), (0.5, 50.0), (1.0, 0.0)]
        {
            let pool = pool_of([sampled(EngineSample { kv_usage, ..EngineSample::default() })]);
            assert_eq!(scores_of(&GpuUsage, &cycle(), &pool), [Some(expected)], "{kv_usage}");
        }
        assert_eq!(scores_of(&GpuUsage, &cycle(), &pool_of([Load::default()])), [Some(100.0)]);
    }
}
