//! `random`: a whole number from 0 to 100 for each endpoint, anew for each request.
//!
//! No parameters. Meant to stand alone: beside other scorers it only blurs them.
//!
//! ```yaml
//! scheduler:
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: random, weight: 1}
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use kvasir_core::{Candidates, CycleState, Plugin, Scorer, Scores};
use xxhash_rust::xxh64::xxh64;

/// The scorer. Chance is a hash of a counter, so that scoring takes no lock and a seed repeats a run.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    drawn: AtomicU64,
}

impl Random {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "random";

    /// Draws that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0) }
    }

    fn draw(&self) -> f64 {
        let turn = self.drawn.fetch_add(1, Ordering::Relaxed);
        (xxh64(&turn.to_le_bytes(), self.seed) % 101) as f64
    }
}

impl Plugin for Random {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for Random {
    fn score(&self, _: &CycleState, pool: &Candidates, out: &mut Scores) {
        super::fill(pool, out, |_, _| Some(self.draw()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cycle, pool_of, scores_of};
    use kvasir_core::Load;

    #[test]
    fn every_number_from_0_to_100_comes_about_equally_often() {
        let scorer = Random::new(5);
        let pool = pool_of([Load::default(); 4]);
        let mut seen = [0_u32; 101];
        for _ in 0..10_100 {
            for score in scores_of(&scorer, &cycle(), &pool) {
                seen[score.unwrap() as usize] += 1;
            }
        }
        // 400 of each are expected, with a standard deviation of 20.
        assert!(seen.iter().all(|count| (300..500).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_seed_repeats_a_run_and_requests_differ() {
        let pool = pool_of([Load::default(); 8]);
        let run = |seed| {
            let scorer = Random::new(seed);
            [scores_of(&scorer, &cycle(), &pool), scores_of(&scorer, &cycle(), &pool)]
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_ne!(run(1)[0], run(1)[1]);
    }
}
