//! One engine's metrics page: from text to the few numbers that routing uses.

use std::collections::BTreeMap;

use kvasir_core::{EngineAdapters, EngineKind, SampleError};

use crate::adapter_series::AdapterSeries;
use crate::interval_mean::HistogramTotals;
use crate::metric_names::{Field, capacity_labels, field, prefix, rank_label};
use crate::prometheus_text::{Series, series};

/// More data-parallel ranks than any engine has; beyond it a page is taken for garbage.
const MAX_RANKS: usize = 1024;

/// The numbers of one page, kept apart by data-parallel rank.
#[derive(Clone, Debug, Default)]
pub struct MetricsPage {
    /// `None` gathers the series without a rank label.
    ranks: BTreeMap<Option<u32>, RankTotals>,
    adapters: AdapterSeries,
}

/// What a page says about one rank, or about all of them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PageNumbers {
    /// Requests running.
    pub running: u32,
    /// Requests waiting.
    pub waiting: u32,
    /// KV cache in use, 0 to 1; the mean over the ranks.
    pub kv_usage: f64,
    /// KV capacity in blocks, added up over the ranks; 0 when not reported.
    pub kv_blocks: u32,
    /// Tokens in a block, 0 when not reported.
    pub block_size: u32,
    /// Time to first token since the engine started.
    pub ttft: Option<HistogramTotals>,
    /// Time per output token since the engine started.
    pub tpot: Option<HistogramTotals>,
    /// Whether the engine sleeps; `None` when it does not say.
    pub asleep: Option<bool>,
}

/// Reads a page of `engine`.
///
/// # Errors
/// [`SampleError::Garbage`] for what is no metrics page (an error page, HTML, a page cut short) and for a page that
/// has no number of this engine.
pub fn read_metrics(page: &[u8], engine: EngineKind) -> Result<MetricsPage, SampleError> {
    let garbage = |text: String| SampleError::Garbage(text);
    let text = std::str::from_utf8(page).map_err(|_| garbage("not UTF-8".to_owned()))?;
    let mut read = MetricsPage::default();
    let mut requests_seen = false;
    let field = |name: &str| field(engine, name.strip_prefix(prefix(engine))?);
    for sample in series(text, |name| field(name).is_some()) {
        let sample = sample.map_err(|error| garbage(error.to_string()))?;
        let Some(field) = field(sample.name) else { continue };
        if !sample.value.is_finite() || sample.value < 0.0 {
            continue;
        }
        if field == Field::Adapters {
            read.adapters.add(&sample);
            continue;
        }
        requests_seen |= matches!(field, Field::Running | Field::Waiting);
        let rank = sample.label(rank_label(engine)).and_then(|label| label.parse().ok());
        if read.ranks.len() == MAX_RANKS && !read.ranks.contains_key(&rank) {
            return Err(garbage(format!("more than {MAX_RANKS} ranks")));
        }
        read.ranks.entry(rank).or_default().add(engine, field, &sample);
    }
    if requests_seen { Ok(read) } else { Err(garbage(format!("no request counts of {}", engine.as_str()))) }
}

impl MetricsPage {
    /// The numbers of `rank`, or of all ranks together for `None`. `None` when the page has ranks, but not this one.
    ///
    /// Series without a rank label stand for every rank: SGLang's latency histograms have none.
    pub fn numbers(&self, rank: Option<u32>) -> Option<PageNumbers> {
        let Some(rank) = rank else {
            return Some(RankTotals::sum(self.ranks.values()).numbers());
        };
        let shared = self.ranks.get(&None);
        match (self.ranks.get(&Some(rank)), shared) {
            (Some(own), Some(shared)) => Some(own.or(shared).numbers()),
            (Some(own), None) => Some(own.numbers()),
            (None, Some(shared)) if self.ranks.len() == 1 => Some(shared.numbers()),
            (None, _) => None,
        }
    }

    /// The adapters of the engine; `None` when the page does not tell, or tells of several ranks: vLLM counts those
    /// together, and each has room of its own.
    pub fn adapters(&self) -> Option<EngineAdapters> {
        if self.ranks().nth(1).is_some() { None } else { self.adapters.newest() }
    }

    /// The numbers of one of `count` ranks that the engine chooses among by itself: the mean over them.
    pub fn mean_numbers(&self, count: u32) -> PageNumbers {
        RankTotals::sum(self.ranks.values()).numbers().split(count)
    }

    /// The ranks that the page names, in order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.ranks.keys().copied().flatten()
    }
}

impl PageNumbers {
    /// An equal part of what is counted, rounded up; latencies and shares stay.
    fn split(self, parts: u32) -> Self {
        let part = |whole: u32| whole.div_ceil(parts.max(1));
        Self {
            running: part(self.running),
            waiting: part(self.waiting),
            kv_blocks: self.kv_blocks / parts.max(1),
            ..self
        }
    }
}

/// Values added up, with the number of series they came from.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    sum: f64,
    series: u32,
}

/// Everything a page says of one rank.
#[derive(Clone, Debug, Default)]
struct RankTotals {
    fields: [Total; Field::COUNT],
    block_size: u32,
    asleep: Option<bool>,
    /// The tensor- and pipeline-parallel rank that speaks for this rank: the first one seen.
    speaker: Option<(u32, u32)>,
}

impl RankTotals {
    fn add(&mut self, engine: EngineKind, field: Field, sample: &Series<'_>) {
        if engine == EngineKind::Sglang && !self.counts(sample) {
            return;
        }
        match field {
            Field::SleepState => {
                // vLLM sets one of awake, weights_offloaded and discard_all to 1.
                let holds = sample.value > 0.0;
                match sample.label("sleep_state").as_deref() {
                    Some("awake") => self.asleep = Some(self.asleep.unwrap_or(false) || !holds),
                    Some(_) => self.asleep = Some(self.asleep.unwrap_or(false) || holds),
                    None => {}
                }
            }
            Field::CacheConfig => {
                let (size, blocks) = capacity_labels(engine);
                let number = |label| sample.label(label).and_then(|text| text.parse::<u32>().ok());
                if self.block_size == 0 {
                    self.block_size = number(size).unwrap_or(0);
                }
                self.put(Field::Pages, f64::from(number(blocks).unwrap_or(0)));
            }
            Field::PageSize => self.block_size = to_count(sample.value),
            other => self.put(other, sample.value),
        }
    }

    fn put(&mut self, field: Field, value: f64) {
        if let Some(total) = self.fields.get_mut(field as usize) {
            total.sum += value;
            total.series = total.series.saturating_add(1);
        }
    }

    /// Whether an SGLang series takes part. With metrics of all schedulers on, each tensor- and pipeline-parallel
    /// rank repeats the same numbers, and with priorities on, each priority repeats its part of the queue.
    fn counts(&mut self, sample: &Series<'_>) -> bool {
        if sample.label("priority").is_some_and(|priority| !priority.is_empty()) {
            return false;
        }
        let number = |label| sample.label(label).and_then(|text| text.parse::<u32>().ok());
        let (tensor, pipeline) = (number("tp_rank"), number("pp_rank"));
        if tensor.is_none() && pipeline.is_none() {
            return true;
        }
        let speaker = (tensor.unwrap_or(0), pipeline.unwrap_or(0));
        *self.speaker.get_or_insert(speaker) == speaker
    }

    /// Field by field, what `self` lacks is taken from `shared`.
    fn or(&self, shared: &Self) -> Self {
        let mut merged = self.clone();
        for (own, other) in merged.fields.iter_mut().zip(shared.fields) {
            if own.series == 0 {
                *own = other;
            }
        }
        if merged.block_size == 0 {
            merged.block_size = shared.block_size;
        }
        merged.asleep = merged.asleep.or(shared.asleep);
        merged
    }

    fn sum<'a>(ranks: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for rank in ranks {
            for (total, part) in sum.fields.iter_mut().zip(rank.fields) {
                total.sum += part.sum;
                total.series = total.series.saturating_add(part.series);
            }
            if sum.block_size == 0 {
                sum.block_size = rank.block_size;
            }
            // Sleep is ordered for an engine as a whole; its ranks reach it one after the other.
            sum.asleep = match (sum.asleep, rank.asleep) {
                (Some(one), Some(other)) => Some(one || other),
                (one, other) => one.or(other),
            };
        }
        sum
    }

    fn numbers(&self) -> PageNumbers {
        let (kv_blocks, block_size) = self.capacity();
        PageNumbers {
            running: to_count(self.total(Field::Running).sum),
            waiting: to_count(self.total(Field::Waiting).sum),
            kv_usage: self
                .mean(Field::KvUsage)
                .or_else(|| self.mean(Field::KvUsageOld))
                .unwrap_or(0.0)
                .min(1.0),
            kv_blocks,
            block_size,
            ttft: self.histogram(Field::TtftSum, Field::TtftCount),
            tpot: self
                .histogram(Field::TpotSum, Field::TpotCount)
                .or_else(|| self.histogram(Field::TpotOldSum, Field::TpotOldCount)),
            asleep: self.asleep,
        }
    }

    /// Blocks, and tokens in one. SGLang's capacity in tokens stands in where it does not tell its pages; a page
    /// is one token by default there.
    fn capacity(&self) -> (u32, u32) {
        let blocks = self.total(Field::Pages).sum;
        let tokens = self.total(Field::TotalTokens).sum;
        if blocks == 0.0 && tokens > 0.0 {
            let page = self.block_size.max(1);
            return (to_count((tokens / f64::from(page)).floor()), page);
        }
        (to_count(blocks), self.block_size)
    }

    fn total(&self, field: Field) -> Total {
        self.fields.get(field as usize).copied().unwrap_or_default()
    }

    fn mean(&self, field: Field) -> Option<f64> {
        let total = self.total(field);
        (total.series > 0).then(|| total.sum / f64::from(total.series))
    }

    fn histogram(&self, sum: Field, count: Field) -> Option<HistogramTotals> {
        let (sum, count) = (self.total(sum), self.total(count));
        (sum.series > 0 && count.series > 0).then_some(HistogramTotals { sum: sum.sum, count: count.sum })
    }
}

/// A gauge as a count; a float beyond the range ends at its edge.
fn to_count(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests;
