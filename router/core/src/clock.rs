//! Time as a parameter.

use std::time::Instant;

/// Tells the time. Injected, so that tests own it.
pub trait Clock: Send + Sync {
    /// Now, on a clock that never goes back.
    fn now(&self) -> Instant;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}
