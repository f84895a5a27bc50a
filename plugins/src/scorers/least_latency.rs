//! `least-latency`: prefers endpoints whose engine answered fast lately.
//!
//! Time to first token and time per output token each map linearly to 100 (the fastest candidate) .. 0 (the
//! slowest); 100 when all are equal. `score = trunc(ttft x w + tpot x (1 - w))`. A candidate without both times
//! gets 50 and does not set the scale.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `TTFTTPOTWeightFactor` (w) | 0.5 | 0 to 1; the share of time to first token |
//!
//! ```yaml
//! scheduler:
//!   pluginConfig:
//!     - name: least-latency
//!       args: {TTFTTPOTWeightFactor: 0.5}
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: least-latency, weight: 1}
//! ```

use kvasir_core::{Candidates, CycleState, Load, Plugin, Scorer, Scores};
use kvasir_settings::resolved::LeastLatencyArgs;

/// Given to a candidate whose times are not known.
const NEUTRAL: f64 = 50.0;

/// The scorer.
#[derive(Clone, Debug)]
pub struct LeastLatency {
    ttft_share: f64,
}

impl LeastLatency {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "least-latency";

    /// With its arguments.
    pub fn new(args: &LeastLatencyArgs) -> Self {
        Self { ttft_share: args.ttft_tpot_weight_factor }
    }
}

impl Plugin for LeastLatency {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for LeastLatency {
    fn score(&self, _: &CycleState, pool: &Candidates, out: &mut Scores) {
        let mut ttft = Span::NOTHING;
        let mut tpot = Span::NOTHING;
        for (_, candidate) in pool.kept() {
            if let Some((first, each)) = times(&candidate.load) {
                ttft.cover(first);
                tpot.cover(each);
            }
        }
        super::fill(pool, out, |_, candidate| {
            let score = times(&candidate.load).map_or(NEUTRAL, |(first, each)| {
                (ttft.place(first) * self.ttft_share + tpot.place(each) * (1.0 - self.ttft_share)).trunc()
            });
            Some(score)
        });
    }
}

/// Both times in seconds, when both are known.
fn times(load: &Load) -> Option<(f64, f64)> {
    let sample = load.sample?;
    (sample.ttft_seconds > 0.0 && sample.tpot_seconds > 0.0)
        .then_some((sample.ttft_seconds, sample.tpot_seconds))
}

/// The range of one kind of time.
struct Span {
    least: f64,
    most: f64,
}

impl Span {
    const NOTHING: Self = Self { least: f64::INFINITY, most: f64::NEG_INFINITY };

    fn cover(&mut self, value: f64) {
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// 100 for the least, 0 for the most.
    fn place(&self, value: f64) -> f64 {
        if self.most > self.least { (self.most - value) / (self.most - self.least) * 100.0 } else { 100.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cycle, pool_of, sampled, scores_of};
    use kvasir_core::EngineSample;

    #[test]
    fn scores_follow_the_formula() {
        let equal = [(0.2, 0.01), (0.2, 0.01), (0.0, 0.01)];
        let spread = [(0.2, 0.01), (0.4, 0.02), (0.3, 0.03)];
        let unknown = [(0.0, 0.0), (0.2, 0.0), (9.0, 9.0)];
        for (share, times, expected) in [
            (0.5, spread, [100.0, 25.0, 25.0]),
            (1.0, spread, [100.0, 0.0, 50.0]),
            (0.0, spread, [100.0, 50.0, 0.0]),
            (0.5, equal, [100.0, 100.0, 50.0]),
            (0.5, unknown, [50.0, 50.0, 100.0]),
        ] {
            let pool = pool_of(times.map(|(ttft_seconds, tpot_seconds)| {
                sampled(EngineSample { ttft_seconds, tpot_seconds, ..EngineSample::default() })
            }));
            let scorer = LeastLatency::new(&LeastLatencyArgs { ttft_tpot_weight_factor: share });
            assert_eq!(scores_of(&scorer, &cycle(), &pool), expected.map(Some), "{share} {times:?}");
        }
    }

    #[test]
    fn an_endpoint_that_was_never_scraped_is_neutral() {
        let scorer = LeastLatency::new(&LeastLatencyArgs::default());
        assert_eq!(scores_of(&scorer, &cycle(), &pool_of([Load::default()])), [Some(50.0)]);
    }
}
