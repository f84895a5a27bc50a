//! A choice by weight.

use rand::{Rng, RngExt as _};

/// Items with their shares. Those without a share are not kept.
#[derive(Debug)]
pub(crate) struct Weighted<T> {
    /// With the sum of the weights up to and including each.
    items: Vec<(u64, T)>,
}

impl<T> Weighted<T> {
    pub(crate) fn new(items: impl IntoIterator<Item = (T, u32)>) -> Self {
        let mut sum = 0;
        let items = items.into_iter().filter(|(_, weight)| *weight > 0).map(|(item, weight)| {
            sum += u64::from(weight);
            (sum, item)
        });
        Self { items: items.collect() }
    }

    /// One of the items, each with its share of the calls; `None` when there is none. Calls know nothing of each other.
    pub(crate) fn pick(&self, rng: &mut dyn Rng) -> Option<&T> {
        let (total, only) = self.items.last()?;
        if self.items.len() == 1 {
            return Some(only);
        }
        let drawn = rng.random_range(0..*total);
        let at = self.items.partition_point(|(sum, _)| *sum <= drawn);
        self.items.get(at).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn nothing_is_chosen_where_nothing_has_weight() {
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(Weighted::<u8>::new([]).pick(&mut rng), None);
        assert_eq!(Weighted::new([("a", 0)]).pick(&mut rng), None);
        assert_eq!(Weighted::new([("a", 0), ("b", 3)]).pick(&mut rng), Some(&"b"));
        let most = Weighted::new([("a", u32::MAX), ("b", u32::MAX)]);
        assert!((0..100).filter(|_| most.pick(&mut rng) == Some(&"a")).count().abs_diff(50) < 30);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// 20,000 draws stray from a share by more than 2.5 points in one of 10^12 runs.
        #[test]
        fn each_item_has_its_share(weights in prop::collection::vec(0..100_u32, 1..8), seed: u64) {
            let mut rng = StdRng::seed_from_u64(seed);
            let choice = Weighted::new(weights.iter().copied().enumerate());
            let total: u32 = weights.iter().sum();
            let mut counts = vec![0_u32; weights.len()];
            for _ in 0..20_000 {
                match choice.pick(&mut rng) {
                    Some(item) => counts[*item] += 1,
                    None => prop_assert_eq!(total, 0),
                }
            }
            for (count, weight) in counts.iter().zip(&weights).filter(|_| total > 0) {
                let (share, wanted) = (f64::from(*count) / 20_000.0, f64::from(*weight) / f64::from(total));
                prop_assert!((share - wanted).abs() < 0.025, "{counts:?} for {weights:?}");
            }
        }
    }
}
