//! The endpoints one request may go to, frozen for one decision.

use std::sync::Arc;

use serde::Serialize;

use crate::endpoint::Endpoint;
use crate::load::Load;

/// One endpoint with its load at the start of the cycle.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// Its load, frozen.
    pub load: Load,
}

/// Which part of a request a run chooses an endpoint for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// All of it.
    #[default]
    Whole,
    /// The prompt; another endpoint generates.
    Prefill,
    /// The answer; another endpoint has computed the prompt.
    Decode,
}

/// The candidates of one decision with a keep-mask. Filters clear entries; the list itself never moves, so
/// scores and prefix hits stay aligned with it.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    all: Vec<Candidate>,
    keep: Vec<bool>,
    phase: Phase,
}

impl Candidates {
    /// All kept.
    pub fn new(all: Vec<Candidate>) -> Self {
        let keep = vec![true; all.len()];
        Self { all, keep, phase: Phase::Whole }
    }

    /// What is chosen for. Scorers that weigh prefill and decode work look at it.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins another run over the same list: keeps everything again that `keep` wants for `phase`.
    pub fn begin_phase(&mut self, phase: Phase, mut keep: impl FnMut(&Candidate) -> bool) {
        self.phase = phase;
        for (candidate, slot) in self.all.iter().zip(self.keep.iter_mut()) {
            *slot = keep(candidate);
        }
    }

    /// How many there are, dropped ones included.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Every candidate, dropped ones included, in index order.
    pub fn all(&self) -> &[Candidate] {
        &self.all
    }

    /// Whether candidate `index` is still in.
    pub fn is_kept(&self, index: usize) -> bool {
        self.keep.get(index).copied().unwrap_or(false)
    }

    /// The kept ones, with their index.
    pub fn kept(&self) -> impl Iterator<Item = (usize, &Candidate)> {
        self.all.iter().enumerate().filter(|(index, _)| self.is_kept(*index))
    }

    /// How many are kept.
    pub fn kept_count(&self) -> usize {
        self.keep.iter().filter(|keep| **keep).count()
    }

    /// Drops every kept candidate for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&Candidate) -> bool) {
        for (candidate, slot) in self.all.iter().zip(self.keep.iter_mut()) {
            *slot = *slot && keep(candidate);
        }
    }

    /// Keeps everything again.
    pub fn reset(&mut self) {
        self.keep.fill(true);
    }
}
