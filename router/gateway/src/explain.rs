//! The ring of decision records, and how a record is made (decision D10).

use std::collections::{HashMap, VecDeque};

use kvasir_core::record::{CandidateRecord, TokensRecord};
use kvasir_core::{DecisionRecord, InferenceRequest, RequestId, ScoreLine, ScorerTotals, TokenSlot};
use parking_lot::Mutex;

use crate::place::Placed;

/// Candidates kept in one record: the best ones. A fleet of thousands must not make each record huge.
const MOST_CANDIDATES: usize = 64;

/// The last decisions, by request id.
#[derive(Debug)]
pub struct DecisionRing {
    capacity: usize,
    inner: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    order: VecDeque<RequestId>,
    records: HashMap<RequestId, DecisionRecord>,
}

impl DecisionRing {
    /// Keeps `capacity` records; 0 keeps none.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, inner: Mutex::default() }
    }

    /// Adds one; the oldest goes when the ring is full. A repeated id replaces its record.
    pub fn push(&self, record: DecisionRecord) {
        if self.capacity == 0 {
            return;
        }
        let id = record.request_id.clone();
        let mut ring = self.inner.lock();
        if ring.records.insert(id.clone(), record).is_some() {
            return;
        }
        ring.order.push_back(id);
        let gone = if ring.order.len() > self.capacity {
            ring.order.pop_front().and_then(|oldest| ring.records.remove(&oldest))
        } else {
            None
        };
        drop(ring);
        // Freed outside the lock.
        drop(gone);
    }

    /// One record.
    pub fn get(&self, id: &str) -> Option<DecisionRecord> {
        self.inner.lock().records.get(id).cloned()
    }

    /// The last `count` records, newest first.
    pub fn latest(&self, count: usize) -> Vec<DecisionRecord> {
        let ring = self.inner.lock();
        ring.order.iter().rev().take(count).filter_map(|id| ring.records.get(id).cloned()).collect()
    }
}

/// A record with what is known before the decision.
pub(crate) fn begin(id: &RequestId, request: &InferenceRequest, started_ms: u64) -> DecisionRecord {
    DecisionRecord {
        request_id: id.clone(),
        started_ms,
        requested_model: request.requested_model.to_string(),
        model: request.model.clone(),
        adapter: request.adapter.clone(),
        path: request.kind.path_label(),
        stream: request.stream,
        tokens: TokensRecord::default(),
        candidates: Vec::new(),
        scores: Vec::new(),
        filtered: Vec::new(),
        picks: Vec::new(),
        prefill_picks: Vec::new(),
        pd_fallback: None,
        attempts: Vec::new(),
        predicted_cached_tokens: None,
        outcome: None,
        gather_us: 0,
        decide_us: 0,
    }
}

/// Writes the decision into a record.
pub(crate) fn fill(record: &mut DecisionRecord, placed: &Placed) {
    let cycle = &placed.cycle;
    record.tokens = tokens(placed);
    record.gather_us = u64::try_from(placed.gather.as_micros()).unwrap_or(u64::MAX);
    record.decide_us = u64::try_from(placed.decide.as_micros()).unwrap_or(u64::MAX);
    record.filtered.clone_from(&placed.decision.filtered);
    record.picks = placed.decision.picks.iter().map(|pick| pick.endpoint.id.clone()).collect();
    let prefills = placed.decision.picks.iter().filter_map(|pick| pick.prefill.as_ref());
    record.prefill_picks = prefills.map(|prefill| prefill.endpoint.id.clone()).collect();
    record.pd_fallback = placed.fallback;
    let scores = &placed.decision.scores;
    let shown = shown(placed);
    record.candidates = shown
        .iter()
        .filter_map(|index| {
            let candidate = placed.pool.all().get(*index)?;
            let hit = cycle.hits.get(*index).copied().unwrap_or_default();
            Some(CandidateRecord {
                endpoint: candidate.endpoint.id.clone(),
                kept: placed.pool.is_kept(*index),
                matched_tokens: hit.tokens,
                predicted_tokens: hit.predicted_tokens,
                reusable_tokens: cycle.reusable_tokens(*index),
                completeness: hit.completeness,
                load: candidate.load,
                total: scores.totals.get(*index).copied().flatten(),
                expected_ttft_ms: expected_seconds(scores, *index).map(|seconds| seconds * 1000.0),
            })
        })
        .collect();
    record.scores = scores
        .lines
        .iter()
        .map(|line| ScoreLine {
            plugin: line.plugin,
            weight: line.weight,
            scores: shown.iter().map(|index| line.scores.get(*index).copied().flatten()).collect(),
            expected_seconds: match line.expected_seconds.is_empty() {
                true => Vec::new(),
                false => {
                    shown.iter().map(|index| line.expected_seconds.get(*index).copied().flatten()).collect()
                }
            },
        })
        .collect();
}

/// What the first scorer that expects anything of a candidate expects.
fn expected_seconds(scores: &ScorerTotals, index: usize) -> Option<f64> {
    scores.lines.iter().find_map(|line| line.expected_seconds.get(index).copied().flatten())
}

/// Which candidates a record shows: all of a small pool, else the best by total.
fn shown(placed: &Placed) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..placed.pool.len()).collect();
    if indices.len() > MOST_CANDIDATES {
        let totals = &placed.decision.scores.totals;
        let total = |index: usize| totals.get(index).copied().flatten().unwrap_or(f64::NEG_INFINITY);
        indices.sort_by(|a, b| total(*b).total_cmp(&total(*a)));
        indices.truncate(MOST_CANDIDATES);
    }
    indices
}

fn tokens(placed: &Placed) -> TokensRecord {
    let cycle = &placed.cycle;
    let mut record = TokensRecord {
        prompt_tokens: cycle.prompt_tokens,
        blocks: cycle
            .chains
            .iter()
            .map(|chain| (u32::from(chain.block_size), u32::try_from(chain.hashes.len()).unwrap_or(u32::MAX)))
            .collect(),
        ..TokensRecord::default()
    };
    match &cycle.tokens {
        TokenSlot::Ready(tokens) => {
            record.source = Some(tokens.source.as_str());
            record.took_us = u64::try_from(tokens.took.as_micros()).unwrap_or(u64::MAX);
        }
        TokenSlot::Failed(error) => record.missing = Some(error.to_string()),
        TokenSlot::Empty => record.missing = Some("no plugin asked for tokens".to_owned()),
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use kvasir_core::{Prompt, RequestKind};

    fn record(id: &str) -> DecisionRecord {
        let request = InferenceRequest {
            id: id.into(),
            kind: RequestKind::Chat,
            requested_model: "m".into(),
            model: "m".into(),
            adapter: None,
            stream: false,
            prompt: Prompt::None,
            cache_salt: None,
            skips_cache: false,
            max_tokens: None,
            session: None,
            body: Bytes::new(),
        };
        begin(&id.into(), &request, 0)
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let ring = DecisionRing::new(2);
        for id in ["a", "b", "c", "c"] {
            ring.push(record(id));
        }
        assert!(ring.get("a").is_none());
        assert!(ring.get("b").is_some() && ring.get("c").is_some());
        let latest: Vec<_> = ring.latest(5).iter().map(|r| r.request_id.to_string()).collect();
        assert_eq!(latest, ["c", "b"]);
        DecisionRing::new(0).push(record("x"));
    }
}
