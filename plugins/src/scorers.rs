//! How good each candidate is.

pub mod gpu_usage;
pub mod kvcache_aware;
pub mod least_latency;
pub mod least_request;
pub mod prefill_cost;
pub mod prefix_cache;
pub mod random;

use kvasir_core::{Candidate, Candidates, Scores};

/// Writes what `score` says of each kept candidate into its slot.
fn fill(pool: &Candidates, out: &mut Scores, mut score: impl FnMut(usize, &Candidate) -> Option<f64>) {
    for (index, candidate) in pool.kept() {
        if let Some(slot) = out.get_mut(index) {
            *slot = score(index, candidate);
        }
    }
}
