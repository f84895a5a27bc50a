//! What came out of a run: requests one by one, and their figures.

use serde::Serialize;

use crate::clock::{Nanos, seconds};

/// One request's fate.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Fate {
    /// When it came.
    pub came: Nanos,
    /// When its first token was at the client.
    pub first: Nanos,
    /// When its last token was at the client.
    pub ended: Nanos,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Those that came out of the cache.
    pub cached: u32,
    /// Tokens of its answer.
    pub answer: u32,
    /// Where it went.
    pub pod: u32,
    /// How often it was told to come back later.
    pub refused: u32,
}

impl Fate {
    /// Seconds until the first token.
    pub fn ttft(&self) -> f64 {
        seconds(self.first.saturating_sub(self.came))
    }
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// Requests that were counted.
    pub requests: usize,
    /// Share of the prompt tokens that came out of a cache.
    pub hit_rate: f64,
    /// Seconds until the first token.
    pub ttft_mean: f64,
    /// Half of the requests are faster.
    pub ttft_p50: f64,
    /// 90 % are.
    pub ttft_p90: f64,
    /// 99 % are.
    pub ttft_p99: f64,
    /// Seconds for each token after the first, median.
    pub tpot_p50: f64,
    /// Seconds until the last token, median.
    pub e2e_p50: f64,
    /// Requests a second that came.
    pub offered: f64,
    /// Share of the requests with their first token within the limit.
    pub within_slo: f64,
    /// Requests a second within the limit.
    pub goodput: f64,
    /// Tokens (computed prompt and answer) of the busiest pod over the mean of all.
    pub spread: f64,
    /// Refusals for each request.
    pub refused: f64,
    /// Seconds until the first token below which 1 %, 2 %, ... 100 % of the requests are.
    #[serde(skip)]
    pub ttft_curve: Vec<f64>,
}

/// The figures of `fates` on `pods` pods.
pub fn figures(fates: &[Fate], pods: usize, slo: f64) -> Figures {
    let count = fates.len();
    if count == 0 {
        return Figures::default();
    }
    let sum = |of: fn(&Fate) -> u32| fates.iter().map(|fate| u64::from(of(fate))).sum::<u64>();
    let mut ttft: Vec<f64> = fates.iter().map(Fate::ttft).collect();
    ttft.sort_by(f64::total_cmp);
    let mut tpot: Vec<f64> = fates
        .iter()
        .filter(|fate| fate.answer > 1)
        .map(|fate| seconds(fate.ended.saturating_sub(fate.first)) / f64::from(fate.answer - 1))
        .collect();
    tpot.sort_by(f64::total_cmp);
    let mut whole: Vec<f64> =
        fates.iter().map(|fate| seconds(fate.ended.saturating_sub(fate.came))).collect();
    whole.sort_by(f64::total_cmp);
    let mut pod_tokens = vec![0_u64; pods];
    for fate in fates {
        if let Some(tokens) = pod_tokens.get_mut(fate.pod as usize) {
            *tokens += u64::from(fate.prompt - fate.cached) + u64::from(fate.answer);
        }
    }
    let first = fates.iter().map(|fate| fate.came).min().unwrap_or_default();
    let last = fates.iter().map(|fate| fate.came).max().unwrap_or_default();
    let offered = count as f64 / seconds(last - first).max(1e-9);
    let within_slo = ttft.partition_point(|time| *time <= slo) as f64 / count as f64;
    let mean_tokens = pod_tokens.iter().sum::<u64>() as f64 / pods.max(1) as f64;
    Figures {
        requests: count,
        hit_rate: sum(|fate| fate.cached) as f64 / sum(|fate| fate.prompt).max(1) as f64,
        ttft_mean: ttft.iter().sum::<f64>() / count as f64,
        ttft_p50: quantile(&ttft, 0.5),
        ttft_p90: quantile(&ttft, 0.9),
        ttft_p99: quantile(&ttft, 0.99),
        tpot_p50: quantile(&tpot, 0.5),
        e2e_p50: quantile(&whole, 0.5),
        offered,
        within_slo,
        goodput: offered * within_slo,
        spread: pod_tokens.iter().copied().max().unwrap_or_default() as f64 / mean_tokens.max(1.0),
        refused: f64::from(fates.iter().map(|fate| fate.refused).sum::<u32>()) / count as f64,
        ttft_curve: (1..=100).map(|percent| quantile(&ttft, f64::from(percent) / 100.0)).collect(),
    }
}

/// The value below which `share` of the sorted values are; 0 of none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Mean and standard deviation.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample; 0 of one value.
    pub deviation: f64,
}

impl Spread {
    /// Of these values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Self { mean, deviation }
    }
}
