//! The distributions that lengths and popularity follow.

use rand::RngExt as _;
use rand::rngs::StdRng;

/// Popularity: member `i` of `n` is asked for in proportion to `1 / (i + 1)^exponent`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    pub(super) fn new(members: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (0..members.max(1)).map(|rank| {
            sum += 1.0 / (rank as f64 + 1.0).powf(exponent);
            sum
        });
        Self { sums: sums.collect() }
    }

    pub(super) fn pick(&self, rng: &mut StdRng) -> usize {
        let most = self.sums.last().copied().unwrap_or(1.0);
        let wanted = rng.random::<f64>() * most;
        self.sums.partition_point(|sum| *sum < wanted).min(self.sums.len() - 1)
    }
}

/// A length whose logarithm is normal: most are near the median, a few are many times longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) median: f64,
    /// Of the logarithm; 0 gives the median always.
    pub(super) deviation: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Lengths {
    pub(super) fn draw(&self, scale: f64, rng: &mut StdRng) -> u32 {
        let length = (self.median * (self.deviation * normal(rng)).exp()).clamp(self.least, self.most);
        (length * scale).round().max(1.0) as u32
    }
}

/// Standard normal, by Box and Muller's method.
fn normal(rng: &mut StdRng) -> f64 {
    let one = 1.0 - rng.random::<f64>();
    let other: f64 = rng.random();
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

/// An exponentially distributed time with this mean.
pub(super) fn exponential(mean: f64, rng: &mut StdRng) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}
