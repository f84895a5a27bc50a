//! How long work takes an endpoint: a line from tokens to seconds, learned from what was seen.

/// Fixed seconds, and seconds for each token of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// Seconds that every request takes: the network, the engine's own bookkeeping, one step.
    pub fixed: f32,
    /// Seconds for each token.
    pub each: f32,
}

impl Pace {
    /// What an endpoint is taken to need before anybody has seen one of its fleet: 20,000 tokens a second, about an 8B
    /// model on one accelerator of 80 GB. It is replaced after a few answers, and until then it is the same for all, so
    /// only what is given in seconds (loading an adapter) is weighed by it.
    pub const UNSEEN: Self = Self { fixed: 0.01, each: 5.0e-5 };

    /// From a laptop's 50 tokens a second to more than any accelerator has shown.
    const EACH: (f32, f32) = (1.0e-7, 2.0e-2);
    /// What takes longer than this whatever it is asked is queueing, not a fixed cost.
    const FIXED: (f32, f32) = (0.0, 2.0);

    /// Seconds for `work` tokens.
    pub fn time(self, work: f64) -> f64 {
        f64::from(self.fixed) + f64::from(self.each) * work
    }

    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.fixed.to_bits()) << 32 | u64::from(self.each.to_bits())
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self { fixed: f32::from_bits((bits >> 32) as u32), each: f32::from_bits(bits as u32) }
    }

    fn clamped(fixed: f64, each: f64) -> Self {
        Self {
            fixed: (fixed as f32).clamp(Self::FIXED.0, Self::FIXED.1),
            each: (each as f32).clamp(Self::EACH.0, Self::EACH.1),
        }
    }
}

/// Work at which an error in the fixed part and one in the slope weigh alike, tokens: short of a chunk of chunked prefill.
const KNEE: f64 = 512.0;

/// A time that is more than this many times longer or shorter than expected counts as that many times: one stall
/// (compilation, preemption, a paused process) must not become the endpoint's pace.
const OUTLIER: f64 = 3.0;

/// Answers of a fleet that are taken as they are, before there is anything to call an outlier of.
pub(super) const TRUSTED: u32 = 8;

/// A weighted least-squares line that forgets, pulled towards a prior line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    weight: f64,
    work: f64,
    seconds: f64,
    work_work: f64,
    work_seconds: f64,
    keep: f64,
}

impl Fit {
    /// Remembers about the last `memory` observations.
    pub(super) fn remembering(memory: f64) -> Self {
        Self {
            weight: 0.0,
            work: 0.0,
            seconds: 0.0,
            work_work: 0.0,
            work_seconds: 0.0,
            keep: 1.0 - 1.0 / memory,
        }
    }

    /// Takes in that `work` tokens took `seconds`, where `known` was what was thought so far, and gives the line now. The
    /// prior counts like `prior_weight` observations.
    ///
    /// `early` says that `known` is little more than a guess. Then there are no outliers, but what is plainly quicker than
    /// known shows that what came before was stalls (an engine compiles at its first requests), and they are forgotten.
    pub(super) fn learn(
        &mut self,
        known: Pace,
        prior: Pace,
        prior_weight: f64,
        work: f64,
        seconds: f64,
        early: bool,
    ) -> Pace {
        let expected = known.time(work);
        let seconds = if early { seconds } else { seconds.clamp(expected / OUTLIER, expected * OUTLIER) };
        if early && seconds * OUTLIER < expected {
            *self = Self { keep: self.keep, ..Self::remembering(1.0) };
        }
        // Errors grow with the time itself, so long ones must not drown the short ones.
        let weight = (1.0 + work / KNEE).powi(-2);
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.work, work),
            (&mut self.seconds, seconds),
            (&mut self.work_work, work * work),
            (&mut self.work_seconds, work * seconds),
        ] {
            *sum = *sum * self.keep + weight * value;
        }
        self.line(prior, prior_weight)
    }

    /// The minimum of the squared errors plus the squared distance to the prior.
    fn line(&self, prior: Pace, prior_weight: f64) -> Pace {
        let slope_weight = prior_weight * KNEE * KNEE;
        let (fixed, each) = (f64::from(prior.fixed), f64::from(prior.each));
        let (a, b, c) = (self.weight + prior_weight, self.work, self.work_work + slope_weight);
        let (p, q) = (self.seconds + prior_weight * fixed, self.work_seconds + slope_weight * each);
        // Never 0: the prior's weights are above 0 and b * b <= weight * work_work.
        let determinant = a * c - b * b;
        let (fixed, each) = ((p * c - q * b) / determinant, (a * q - b * p) / determinant);
        // A line below 0 at no work is one through 0, and one that falls is level.
        match (fixed < 0.0, each < 0.0) {
            (true, _) => Pace::clamped(0.0, q / c),
            (_, true) => Pace::clamped(p / a, 0.0),
            _ => Pace::clamped(fixed, each),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Learns from `count` requests of an engine with the pace `truth`, each disturbed by up to `noise` of its time.
    fn learned(truth: Pace, count: usize, noise: f64, mut work: impl FnMut(&mut StdRng) -> f64) -> Pace {
        let mut rng = StdRng::seed_from_u64(7);
        let mut fit = Fit::remembering(256.0);
        let mut pace = Pace::UNSEEN;
        for turn in 0..count {
            let work = work(&mut rng);
            let disturbed = truth.time(work) * rng.random_range(1.0 - noise..=1.0 + noise);
            pace = fit.learn(pace, Pace::UNSEEN, 1.0, work, disturbed, turn < 8);
        }
        pace
    }

    fn close(value: f32, wanted: f32, share: f32) -> bool {
        (value - wanted).abs() <= wanted * share
    }

    #[test]
    fn a_line_is_found_whatever_its_slope() {
        for (fixed, each) in [(0.02, 2.0e-5), (0.1, 1.0e-3), (0.005, 4.0e-6)] {
            let pace = learned(Pace { fixed, each }, 600, 0.2, |rng| rng.random_range(16.0..8000.0));
            assert!(close(pace.each, each, 0.15), "{pace:?} for {each}");
            assert!(close(pace.fixed, fixed, 0.5), "{pace:?} for {fixed}");
        }
    }

    #[test]
    fn prompts_of_one_length_give_the_right_time_for_that_length() {
        let truth = Pace { fixed: 0.02, each: 2.0e-4 };
        let pace = learned(truth, 200, 0.1, |_| 400.0);
        assert!((pace.time(400.0) / truth.time(400.0) - 1.0).abs() < 0.1, "{pace:?}");
    }

    #[test]
    fn one_stall_moves_little() {
        let truth = Pace { fixed: 0.01, each: 1.0e-4 };
        let mut fit = Fit::remembering(64.0);
        let mut pace = Pace::UNSEEN;
        for turn in 0..100 {
            let work = f64::from(turn % 10) * 400.0;
            pace = fit.learn(pace, Pace::UNSEEN, 2.0, work, truth.time(work), turn < 8);
        }
        let before = pace.time(2000.0);
        pace = fit.learn(pace, Pace::UNSEEN, 2.0, 2000.0, 120.0, false);
        assert!(pace.time(2000.0) < before * 1.25, "{before} became {}", pace.time(2000.0));
    }

    #[test]
    fn a_new_pace_is_followed() {
        let mut fit = Fit::remembering(64.0);
        let mut pace = Pace::UNSEEN;
        let mut early = true;
        for (truth, turns) in [(1.0e-5_f32, 100), (1.0e-4, 300)] {
            for turn in 0..turns {
                let work = f64::from(turn % 10 + 1) * 500.0;
                pace = fit.learn(
                    pace,
                    Pace::UNSEEN,
                    0.5,
                    work,
                    0.01 + f64::from(truth) * work,
                    early && turn < 8,
                );
            }
            early = false;
            assert!(close(pace.each, truth, 0.2), "{pace:?} for {truth}");
        }
    }

    #[test]
    fn a_stall_among_the_first_answers_is_forgotten_by_the_next_good_one() {
        let truth = Pace { fixed: 0.01, each: 1.0e-4 };
        for stalled in [0, 1, 7] {
            let mut fit = Fit::remembering(512.0);
            let mut pace = Pace::UNSEEN;
            for turn in 0..16 {
                let work = f64::from(turn % 10 + 1) * 300.0;
                let seconds = if turn == stalled { 60.0 } else { truth.time(work) };
                pace = fit.learn(pace, Pace::UNSEEN, 1.0, work, seconds, turn <= 8);
            }
            assert!((pace.time(1000.0) / truth.time(1000.0) - 1.0).abs() < 0.3, "{stalled}: {pace:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_seen_the_line_is_usable(
            seen in proptest::collection::vec((0.0..1.0e7_f64, 0.0..1.0e5_f64), 1..60),
            early in 0..60_usize,
        ) {
            let mut fit = Fit::remembering(16.0);
            let mut pace = Pace::UNSEEN;
            for (turn, (work, seconds)) in seen.into_iter().enumerate() {
                pace = fit.learn(pace, Pace::UNSEEN, 2.0, work, seconds, turn < early);
                prop_assert!(pace.fixed.is_finite() && (0.0..=2.0).contains(&pace.fixed), "{pace:?}");
                prop_assert!(pace.each.is_finite() && pace.each > 0.0, "{pace:?}");
                prop_assert!(Pace::from_bits(pace.to_bits()) == pace);
            }
        }
    }
}
