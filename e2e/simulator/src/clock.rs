//! Virtual time: a clock that stands still until the simulation moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kvasir_core::Clock;

/// A moment of the simulation, nanoseconds since its start.
pub type Nanos = u64;

/// Seconds as nanoseconds; nothing below zero.
pub fn nanos(seconds: f64) -> Nanos {
    (seconds.max(0.0) * 1e9).round() as Nanos
}

/// Nanoseconds as seconds.
pub fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

/// The clock that the router's code reads in a simulation.
#[derive(Debug)]
pub struct VirtualClock {
    started: Instant,
    now: AtomicU64,
}

impl VirtualClock {
    /// At the start of the simulation. The machine's clock gives the zero point only: nothing depends on it.
    pub fn new() -> Self {
        Self { started: Instant::now(), now: AtomicU64::new(0) }
    }

    /// Moves on to `now`.
    pub fn set(&self, now: Nanos) {
        self.now.store(now, Ordering::Relaxed);
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.started + Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }
}
