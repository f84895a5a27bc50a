//! The names of the scheduler's plugins as users type them.

/// Filters. `least-request` and `lora-affinity` are kthena's.
pub const FILTERS: [&str; 2] = ["least-request", "lora-affinity"];

/// Scorers. All but `prefill-cost` are kthena's.
pub const SCORERS: [&str; 7] =
    ["least-request", "least-latency", "gpu-usage", "random", "prefix-cache", "kvcache-aware", PREFILL_COST];

/// Our own scorer: the prefill work that an endpoint would have to do, with what is queued there.
pub const PREFILL_COST: &str = "prefill-cost";
