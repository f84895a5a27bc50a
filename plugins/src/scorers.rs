//! How good each candidate is.

pub mod gpu_usage;
pub mod kvasir_cost;
pub mod kvcache_aware;
pub mod least_latency;
pub mod least_request;
pub mod lora_residency;
pub mod prefix_cache;
pub mod random;
pub mod session_affinity;

use kvasir_core::{Candidate, Candidates, Endpoint, Scores};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Writes what `score` says of each kept candidate into its slot.
fn fill(pool: &Candidates, out: &mut Scores, mut score: impl FnMut(usize, &Candidate) -> Option<f64>) {
    for (index, candidate) in pool.kept() {
        if let Some(slot) = out.get_mut(index) {
            *slot = score(index, candidate);
        }
    }
}

/// Tells one life of one endpoint from every other: of a pod that restarted, or of another one in its slot. Never 0. A few
/// nanoseconds: it is asked for each candidate.
fn life_of(endpoint: &Endpoint) -> u64 {
    let id = &endpoint.id;
    let place = u64::from(id.port) << 32 | u64::from(id.rank);
    let began = endpoint.started_at.unwrap_or(0).rotate_left(20);
    let space = xxh3_64_with_seed(id.namespace.as_bytes(), place ^ began);
    xxh3_64_with_seed(id.pod.as_bytes(), space) | 1
}
