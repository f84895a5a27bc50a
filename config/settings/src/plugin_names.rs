//! The names of the scheduler's plugins as users type them.

/// Filters. `least-request` and `lora-affinity` are kthena's.
pub const FILTERS: [&str; 2] = ["least-request", "lora-affinity"];

/// Scorers: kthena's first, then ours.
pub const SCORERS: [&str; 9] = [
    "least-request",
    "least-latency",
    "gpu-usage",
    "random",
    "prefix-cache",
    "kvcache-aware",
    KVASIR_COST,
    SESSION_AFFINITY,
    "lora-residency",
];

/// The default: how soon an endpoint is expected to begin its answer, and what that costs the others.
pub const KVASIR_COST: &str = "kvasir-cost";

/// Keeps a conversation at one endpoint, by a name that clients give it.
pub const SESSION_AFFINITY: &str = "session-affinity";
