//! How much waits at the endpoints in general, those that are fullest apart.

/// The share of the endpoints that is left out, from the fullest on: a hot prefix makes some queues long while the
/// others have room, and that is no reason to stay.
const LEFT_OUT: usize = 4;

/// Classes of values, by their number of bits.
const CLASSES: usize = u64::BITS as usize + 1;

/// Collects what waits at each endpoint. Values are kept by their number of bits, so that thousands need no list and no
/// order.
pub(super) struct Congestion {
    classes: [(usize, u64); CLASSES],
    endpoints: usize,
}

impl Congestion {
    /// The mean of `queued` tokens over three quarters of the endpoints, those with the least; 0 for one alone.
    pub(super) fn of(queued: impl Iterator<Item = u64>) -> f64 {
        let mut congestion = Self { classes: [(0, 0); CLASSES], endpoints: 0 };
        for tokens in queued {
            congestion.add(tokens);
        }
        congestion.mean()
    }

    fn add(&mut self, tokens: u64) {
        self.endpoints += 1;
        if let Some((count, sum)) = self.classes.get_mut((u64::BITS - tokens.leading_zeros()) as usize) {
            *count += 1;
            *sum = sum.saturating_add(tokens);
        }
    }

    /// Of the class where the limit falls, the mean counts for each that is taken.
    fn mean(&self) -> f64 {
        let taken = self.endpoints - self.endpoints.div_ceil(LEFT_OUT);
        let mut left = taken;
        let mut sum = 0.0;
        for (count, of_class) in self.classes.iter().filter(|(count, _)| *count > 0) {
            let part = left.min(*count);
            sum += *of_class as f64 * (part as f64 / *count as f64);
            left -= part;
        }
        if taken == 0 { 0.0 } else { sum / taken as f64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    fn of(queued: &[u64]) -> f64 {
        Congestion::of(queued.iter().copied())
    }

    #[test]
    fn the_fullest_quarter_does_not_count() {
        for (queued, mean) in [
            (&[][..], 0.0),
            (&[700], 0.0),
            (&[0, 900_000], 0.0),
            (&[100, 900_000], 100.0),
            (&[900_000, 0, 0, 0], 0.0),
            (&[900_000, 100, 100, 100], 100.0),
            (&[9_000, 9_000, 0, 0, 0, 0, 0, 0], 0.0),
            // Two of eight are left out; a third one counts.
            (&[9_000, 9_000, 9_000, 0, 0, 0, 0, 0], 1_500.0),
            // All of one class: whichever is left out, their mean is counted.
            (&[1_024, 1_500, 2_000, 2_047], 1_642.75),
        ] {
            assert!((of(queued) - mean).abs() < 1e-9, "{queued:?}: {}", of(queued));
        }
        assert!(of(&[u64::MAX, u64::MAX]).is_finite());
    }

    proptest! {
        #[test]
        fn it_is_within_a_class_of_the_trimmed_mean(queued in proptest::collection::vec(any::<u32>(), 2..200)) {
            let mut sorted = queued.clone();
            sorted.sort_unstable();
            sorted.truncate(queued.len() - queued.len().div_ceil(LEFT_OUT));
            let exact = sorted.iter().map(|value| f64::from(*value)).sum::<f64>() / sorted.len() as f64;
            let got = of(&queued.iter().map(|value| u64::from(*value)).collect::<Vec<_>>());
            prop_assert!(got >= exact - 1e-6 && got <= 2.0 * exact + 1.0, "{got} for {exact}");
        }
    }
}
