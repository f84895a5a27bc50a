//! `top-n`: the best totals first, equal ones in random order.
//!
//! Picks are ranked by descending total; among equals chance decides, because a stable order would send every
//! cold request to the same endpoint. The first pick takes the request, the others are its retry list.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `top_n` | 5 | picks kept; at least 1 |

use std::sync::Arc;

use kvasir_core::{Candidates, Decision, Pick, Picker, Plugin, ScorerTotals};
use rand::Rng;
use rand::seq::SliceRandom;

/// The picker.
#[derive(Clone, Copy, Debug)]
pub struct TopN {
    most: usize,
}

impl TopN {
    /// The name in metrics.
    pub const NAME: &'static str = "top-n";

    /// Keeps the best `most`, at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1) }
    }
}

impl Plugin for TopN {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Picker for TopN {
    fn pick(&self, scores: ScorerTotals, pool: &Candidates, mut rng: &mut dyn Rng) -> Decision {
        let mut ranked: Vec<(usize, f64)> = pool
            .kept()
            .map(|(index, _)| (index, scores.totals.get(index).copied().flatten().unwrap_or_default()))
            .collect();
        ranked.shuffle(&mut rng);
        // Stable, so the shuffle decides among equals.
        ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let picks = ranked
            .into_iter()
            .take(self.most)
            .filter_map(|(index, total)| {
                let endpoint = Arc::clone(&pool.all().get(index)?.endpoint);
                Some(Pick { index, endpoint, prefill: None, total })
            })
            .collect();
        Decision { picks, scores, filtered: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pool_of;
    use kvasir_core::Load;
    use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn picks(most: usize, totals: Vec<Option<f64>>, pool: &Candidates, seed: u64) -> Vec<(usize, f64)> {
        let scores = ScorerTotals { lines: Vec::new(), totals };
        let decision = TopN::new(most).pick(scores, pool, &mut StdRng::seed_from_u64(seed));
        decision.picks.iter().map(|pick| (pick.index, pick.total)).collect()
    }

    #[test]
    fn the_best_come_first() {
        let pool = pool_of([Load::default(); 4]);
        let totals = vec![Some(1.0), Some(9.0), None, Some(-2.0)];
        assert_eq!(picks(3, totals.clone(), &pool, 1), [(1, 9.0), (0, 1.0), (2, 0.0)]);
        assert_eq!(picks(0, totals, &pool, 1), [(1, 9.0)]);
    }

    #[test]
    fn equals_share_the_requests() {
        let pool = pool_of([Load::default(); 4]);
        let mut first = [0_u32; 4];
        for seed in 0..4000 {
            let totals = vec![Some(5.0), Some(7.0), Some(7.0), Some(7.0)];
            first[picks(1, totals, &pool, seed)[0].0] += 1;
        }
        assert_eq!(first[0], 0);
        // 1333 of each are expected, with a standard deviation of 30.
        assert!(first[1..].iter().all(|count| (1180..1490).contains(count)), "{first:?}");
    }

    fn case() -> impl Strategy<Value = (Vec<(bool, i8)>, usize, u64)> {
        (1_usize..20).prop_flat_map(|count| {
            (
                proptest::collection::vec((any::<bool>(), any::<i8>()), count),
                Just(count).prop_flat_map(|count| 1..=count + 2),
                any::<u64>(),
            )
        })
    }

    proptest! {
        #[test]
        fn picks_are_kept_ranked_and_the_best((entries, most, seed) in case()) {
            let mut pool = pool_of(vec![Load::default(); entries.len()]);
            pool.retain(|candidate| entries[candidate.endpoint.slot.0 as usize].0);
            // Dropped candidates carry a high total here: the mask alone must keep them out.
            let totals = entries
                .iter()
                .map(|(kept, total)| Some(if *kept { f64::from(*total) } else { 1e9 }))
                .collect();
            let picked = picks(most, totals, &pool, seed);
            prop_assert_eq!(picked.len(), most.min(pool.kept_count()));
            prop_assert!(picked.iter().all(|(index, _)| pool.is_kept(*index)));
            prop_assert!(picked.is_sorted_by(|one, other| one.1 >= other.1));
            let worst = picked.last().map_or(f64::INFINITY, |(_, total)| *total);
            for (index, (kept, total)) in entries.iter().enumerate() {
                if *kept && !picked.iter().any(|(pick, _)| *pick == index) {
                    prop_assert!(f64::from(*total) <= worst);
                }
            }
        }
    }
}
