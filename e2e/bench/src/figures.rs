//! Counts and times of one run, and how they are written down.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Longer times count as this long: an hour.
const LONGEST_NANOS: u64 = 3_600_000_000_000;

/// A distribution of times, nanoseconds inside, microseconds outside.
#[derive(Clone, Debug)]
pub struct Spread(Histogram<u64>);

impl Spread {
    /// Nothing yet.
    ///
    /// # Errors
    /// Never in practice: the bounds are possible ones.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_NANOS, 3)?))
    }

    /// One more.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// All of another.
    ///
    /// # Errors
    /// When the other one holds times that this one cannot.
    pub fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time at a quantile between 0 and 1, microseconds.
    pub fn at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Microseconds at the usual quantiles; null when there are no times.
    pub fn json(&self) -> Value {
        if self.is_empty() {
            return Value::Null;
        }
        json!({
            "min": self.0.min() as f64 / 1e3,
            "p50": self.at(0.5), "p90": self.at(0.9), "p99": self.at(0.99),
            "max": self.0.max() as f64 / 1e3, "mean": self.0.mean() / 1e3,
        })
    }
}

/// What one client saw, or all of them.
#[derive(Debug)]
pub struct Figures {
    /// Answers that came whole with a 2xx.
    pub answered: u64,
    /// Everything else.
    pub failed: u64,
    /// What the first failure was.
    pub first_failure: Option<String>,
    /// Bytes of request bodies.
    pub sent_bytes: u64,
    /// Events of streams.
    pub events: u64,
    /// From the first byte of a request (of the connection, where each has its own) to the last of its answer.
    pub latency: Spread,
    /// From the same start to the first byte of the answer's body.
    pub first_byte: Spread,
    /// From one piece of a stream to the next.
    pub gap: Spread,
}

impl Figures {
    /// Nothing yet.
    ///
    /// # Errors
    /// As [`Spread::new`].
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            answered: 0,
            failed: 0,
            first_failure: None,
            sent_bytes: 0,
            events: 0,
            latency: Spread::new()?,
            first_byte: Spread::new()?,
            gap: Spread::new()?,
        })
    }

    /// One more failure.
    pub fn fail(&mut self, what: impl FnOnce() -> String) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(what);
    }

    /// All of another.
    ///
    /// # Errors
    /// As [`Spread::add`].
    pub fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.answered += other.answered;
        self.failed += other.failed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        self.sent_bytes += other.sent_bytes;
        self.events += other.events;
        self.latency.add(&other.latency)?;
        self.first_byte.add(&other.first_byte)?;
        self.gap.add(&other.gap)
    }

    /// One JSON object.
    pub fn json(&self, took: Duration) -> Value {
        let seconds = took.as_secs_f64();
        json!({
            "answered": self.answered,
            "failed": self.failed,
            "first_failure": self.first_failure,
            "seconds": seconds,
            "per_second": if seconds > 0.0 { self.answered as f64 / seconds } else { 0.0 },
            "sent_bytes": self.sent_bytes,
            "events": self.events,
            "latency_us": self.latency.json(),
            "first_byte_us": self.first_byte.json(),
            "gap_us": self.gap.json(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_microseconds() {
        let mut spread = Spread::new().unwrap();
        assert_eq!(spread.json(), Value::Null);
        for millis in 1..=100 {
            spread.record(Duration::from_millis(millis));
        }
        assert_eq!(spread.len(), 100);
        assert!((spread.at(0.5) - 50_000.0).abs() < 100.0, "{}", spread.at(0.5));
        assert!((spread.at(0.99) - 99_000.0).abs() < 200.0, "{}", spread.at(0.99));
    }

    #[test]
    fn adding_keeps_the_first_failure() {
        let (mut one, mut other) = (Figures::new().unwrap(), Figures::new().unwrap());
        other.fail(|| "refused".to_owned());
        other.fail(|| "reset".to_owned());
        other.answered = 3;
        one.answered = 1;
        one.add(&other).unwrap();
        let json = one.json(Duration::from_secs(2));
        assert_eq!((json["answered"].as_u64(), json["failed"].as_u64()), (Some(4), Some(2)));
        assert_eq!(json["first_failure"], "refused");
        assert_eq!(json["per_second"], 2.0);
    }
}
