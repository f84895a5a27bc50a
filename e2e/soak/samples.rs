//! Memory over time, and whether it stays flat.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kvasir_coordination::key;
use kvasir_coordination::testing::TestServer;
use serde_json::{Value, json};

use crate::churn::Churn;

/// Until so much of the run is over, caches, pools and streams fill.
const WARM_UP: f64 = 0.2;

/// How much more memory the second half may use than the first one did after it was warm.
pub const ALLOWED: f64 = 1.1;

/// A shorter run says nothing about memory.
pub const SHORTEST: Duration = Duration::from_secs(300);

/// One look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Since the start.
    pub at: Duration,
    /// Resident memory of this process: engines, agents, routers and clients.
    pub resident: u64,
    /// What the server says it uses, its streams apart: those fill up to a number of entries, from empty after each time
    /// that the server was started. `None` while it is away.
    pub redis: Option<u64>,
    /// Blocks in all routers' views.
    pub blocks: usize,
}

/// All looks, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// Looks until `end`.
    pub async fn take(churn: &Churn, began: Instant, end: Instant, every: Duration) -> anyhow::Result<Self> {
        let mut samples = Vec::new();
        while Instant::now() < end {
            let redis = match churn.redis.try_lock() {
                Ok(server) => used(&server).await,
                Err(_) => None,
            };
            samples.push(Sample {
                at: began.elapsed(),
                resident: resident()?,
                redis,
                blocks: churn.fleet.blocks_in_views(),
            });
            tokio::time::sleep(every.min(end.saturating_duration_since(Instant::now()))).await;
        }
        Ok(Self(samples))
    }

    /// The most in the second half, and in the first one once it was warm.
    pub fn halves(&self, of: impl Fn(&Sample) -> Option<u64>) -> Option<(u64, u64)> {
        let whole = self.0.last()?.at.as_secs_f64();
        let most = |from: f64, to: f64| {
            let within = self.0.iter().filter(|sample| {
                let at = sample.at.as_secs_f64();
                at >= from * whole && at <= to * whole
            });
            within.filter_map(&of).max()
        };
        Some((most(WARM_UP, 0.5)?, most(0.5, 1.0)?))
    }

    /// Each as numbers.
    pub fn json(&self) -> Value {
        let one = |sample: &Sample| {
            json!({
                "at": sample.at.as_secs_f64(), "resident": sample.resident, "redis": sample.redis, "blocks": sample.blocks,
            })
        };
        self.0.iter().map(one).collect()
    }
}

/// How much more the second half used.
pub fn growth((first, second): (u64, u64)) -> f64 {
    second as f64 / first.max(1) as f64
}

/// What the server uses without the streams of deltas.
async fn used(server: &TestServer) -> Option<u64> {
    let page = server.try_ask(&["INFO", "memory"]).await.ok()?.join("\n");
    let all: u64 = page.lines().find_map(|line| line.strip_prefix("used_memory:"))?.trim().parse().ok()?;
    let mut streams = 0;
    for stream in 0..key::STREAMS {
        let answer = server.try_ask(&["MEMORY", "USAGE", &key::deltas(stream), "SAMPLES", "0"]).await.ok()?;
        // A stream that is not there is nil.
        streams += answer.first().and_then(|bytes| bytes.parse::<u64>().ok()).unwrap_or_default();
    }
    Some(all.saturating_sub(streams))
}

fn resident() -> anyhow::Result<u64> {
    let page = std::fs::read_to_string("/proc/self/status")?;
    let line = page.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

#[test]
fn the_warm_part_of_the_first_half_is_what_the_second_is_compared_with() {
    let sample = |(second, resident): (u64, u64)| Sample {
        at: Duration::from_secs(second),
        resident,
        redis: (second != 40).then_some(resident / 2),
        blocks: 0,
    };
    // What is above the rest comes before the warm-up is over.
    let samples =
        Samples([(0, 900), (10, 800), (20, 100), (40, 200), (60, 210), (100, 220)].map(sample).into());
    assert_eq!(samples.halves(|sample| Some(sample.resident)), Some((200, 220)));
    assert_eq!(samples.halves(|sample| sample.redis), Some((50, 110)));
    assert!((growth((200, 220)) - 1.1).abs() < 1e-9);
    assert_eq!(Samples::default().halves(|sample| sample.redis), None);
}
