//! When requests come: an open loop with a rate that may swing and burst.

use rand::rngs::StdRng;

use super::chance::exponential;

/// How the rate changes around its mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Modulation {
    /// Swing of one slow wave over the whole run, 0 to 1 of the mean.
    pub(super) swing: f64,
    /// How much faster requests come during a burst; 1 is no burst.
    pub(super) burst: f64,
    /// Mean length of a burst and of the time between two, seconds.
    pub(super) burst_seconds: f64,
    pub(super) calm_seconds: f64,
}

impl Modulation {
    /// Poisson.
    pub(super) const STEADY: Self = Self { swing: 0.0, burst: 1.0, burst_seconds: 1.0, calm_seconds: 1.0 };
    /// Every ten seconds or so, two seconds at three times the calm rate.
    pub(super) const BURSTY: Self = Self { swing: 0.0, burst: 3.0, burst_seconds: 2.0, calm_seconds: 8.0 };
    /// A day in the length of the run, with small bursts.
    pub(super) const DAILY: Self = Self { swing: 0.5, burst: 2.0, burst_seconds: 2.0, calm_seconds: 10.0 };

    /// The mean of the burst factor.
    fn mean(self) -> f64 {
        (self.burst * self.burst_seconds + self.calm_seconds) / (self.burst_seconds + self.calm_seconds)
    }
}

/// A Poisson process of a changing rate.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    rate: f64,
    length: f64,
    modulation: Modulation,
    now: f64,
    in_burst: bool,
    turns_at: f64,
}

impl Arrivals {
    /// On average `rate` a second over a run of `length` seconds.
    pub(super) fn new(rate: f64, length: f64, modulation: Modulation) -> Self {
        Self { rate, length, modulation, now: 0.0, in_burst: true, turns_at: 0.0 }
    }

    /// The next moment, seconds.
    pub(super) fn next(&mut self, rng: &mut StdRng) -> f64 {
        // Work left until the next arrival, in arrivals at the mean rate.
        let mut left = exponential(1.0, rng);
        loop {
            while self.now >= self.turns_at {
                self.in_burst = !self.in_burst;
                let mean =
                    if self.in_burst { self.modulation.burst_seconds } else { self.modulation.calm_seconds };
                self.turns_at += exponential(mean, rng);
            }
            let rate = self.rate_now();
            // The slow wave is followed in steps of a hundredth of the run.
            let until = self.turns_at.min(self.now + self.length / 100.0);
            let here = rate * (until - self.now);
            if left <= here {
                self.now += left / rate;
                return self.now;
            }
            left -= here;
            self.now = until;
        }
    }

    fn rate_now(&self) -> f64 {
        let wave = (self.now / self.length * std::f64::consts::TAU).sin();
        let burst = if self.in_burst { self.modulation.burst } else { 1.0 };
        self.rate * (1.0 + self.modulation.swing * wave) * burst / self.modulation.mean()
    }
}
