//! What lookups count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::breaker::{Breaker, BreakerState};
use crate::connection::{Refusal, StoreError};

/// Upper bounds of the duration buckets, microseconds; the last bucket has none.
pub const DURATION_BOUNDS_MICROS: [u64; 9] = [250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 25_000, 100_000];

/// Lookups since the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupStats {
    /// That asked the store, whatever came of it.
    pub lookups: u64,
    /// That found at least one block with one owner.
    pub hits: u64,
    /// That did not ask because the breaker was open.
    pub skipped: u64,
    /// That failed without a connection.
    pub unreachable: u64,
    /// That ran out of their budget.
    pub timeouts: u64,
    /// That the store answered with an error.
    pub refused: u64,
    /// The kind of the last such error.
    pub last_refusal: Option<Refusal>,
    /// Keys that hold no hash, taken for blocks that nobody holds.
    pub wrong_type: u64,
    /// Whether calls go through.
    pub breaker: BreakerState,
    /// How often the breaker opened.
    pub openings: u64,
    /// Lookups by how long they took, bounds in [`DURATION_BOUNDS_MICROS`]; not cumulative.
    pub durations: [u64; DURATION_BOUNDS_MICROS.len() + 1],
    /// The sum of their durations, microseconds.
    pub duration_sum_micros: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    lookups: AtomicU64,
    hits: AtomicU64,
    skipped: AtomicU64,
    unreachable: AtomicU64,
    timeouts: AtomicU64,
    refused: AtomicU64,
    last_refusal: parking_lot::Mutex<Option<Refusal>>,
    wrong_type: AtomicU64,
    durations: [AtomicU64; DURATION_BOUNDS_MICROS.len() + 1],
    duration_sum_micros: AtomicU64,
}

impl Counters {
    pub(super) fn skipped(&self) {
        up(&self.skipped, 1);
    }

    pub(super) fn wrong_type(&self) {
        up(&self.wrong_type, 1);
    }

    pub(super) fn ended(&self, took: Duration, result: &Result<Vec<u32>, StoreError>) {
        up(&self.lookups, 1);
        match result {
            Ok(leading) => up(&self.hits, u64::from(leading.iter().any(|blocks| *blocks > 0))),
            Err(StoreError::Unreachable) => up(&self.unreachable, 1),
            Err(StoreError::TimedOut) => up(&self.timeouts, 1),
            Err(StoreError::Refused(refusal)) => {
                up(&self.refused, 1);
                *self.last_refusal.lock() = Some(*refusal);
            }
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_MICROS.iter().take_while(|bound| micros > **bound).count();
        if let Some(bucket) = self.durations.get(bucket) {
            up(bucket, 1);
        }
        up(&self.duration_sum_micros, micros);
    }

    pub(super) fn read(&self, breaker: &Breaker) -> LookupStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LookupStats {
            lookups: of(&self.lookups),
            hits: of(&self.hits),
            skipped: of(&self.skipped),
            unreachable: of(&self.unreachable),
            timeouts: of(&self.timeouts),
            refused: of(&self.refused),
            last_refusal: *self.last_refusal.lock(),
            wrong_type: of(&self.wrong_type),
            breaker: breaker.state(),
            openings: breaker.openings(),
            durations: std::array::from_fn(|bucket| self.durations.get(bucket).map_or(0, of)),
            duration_sum_micros: of(&self.duration_sum_micros),
        }
    }
}

fn up(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
