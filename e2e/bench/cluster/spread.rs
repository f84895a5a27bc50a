//! Times, summed up.

use std::time::Duration;

use serde_json::{Value, json};

/// Microseconds at the usual quantiles; null where there are no times.
pub fn spread(times: &[Duration]) -> Value {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |quantile: f64| {
        let place = (quantile * (times.len().saturating_sub(1)) as f64).round() as usize;
        times.get(place).map(|time| time.as_secs_f64() * 1e6)
    };
    if times.is_empty() {
        return Value::Null;
    }
    json!({"count": times.len(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0)})
}

#[test]
fn quantiles_are_of_the_times_that_are_there() {
    let times: Vec<Duration> = (1..=101).rev().map(Duration::from_micros).collect();
    let figures = spread(&times);
    let at = |name: &str| figures[name].as_f64().map(f64::round);
    assert_eq!([at("p50"), at("p90"), at("max")], [Some(51.0), Some(91.0), Some(101.0)]);
    assert_eq!((&figures["count"], spread(&[])), (&json!(101), Value::Null));
}
