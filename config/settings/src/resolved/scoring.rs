//! Arguments of our own scorers.

use std::time::Duration;

use crate::defaults;

/// Arguments of `kvasir-cost`.
#[derive(Clone, Debug, PartialEq)]
pub struct KvasirCostArgs {
    /// What a second of prefill work that is saved counts, in units of the default: 0 looks at load alone, 4 stays with
    /// caches longest.
    pub affinity: f64,
}

impl Default for KvasirCostArgs {
    fn default() -> Self {
        Self { affinity: defaults::COST_AFFINITY }
    }
}

/// Arguments of `session-affinity`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionAffinityArgs {
    /// The header that names the conversation; looked at first.
    pub header_name: String,
    /// Where else the body may name it, in this order: object keys from the outermost on, at most
    /// [`defaults::SESSION_FIELD_KEYS`] of them.
    pub body_fields: Vec<Vec<String>>,
    /// How long a conversation that is silent stays bound.
    pub ttl: Duration,
    /// Most conversations remembered, for each of prefill and decode.
    pub max_sessions: usize,
    /// The bound endpoint counts as overloaded with more requests than this many times the mean of the other candidates.
    pub max_in_flight_ratio: f64,
    /// It also does with this many requests waiting in its engine.
    pub max_waiting_requests: u32,
}

impl Default for SessionAffinityArgs {
    fn default() -> Self {
        Self {
            header_name: defaults::SESSION_HEADER.to_owned(),
            body_fields: Vec::new(),
            ttl: defaults::SESSION_TTL,
            max_sessions: defaults::SESSIONS,
            max_in_flight_ratio: defaults::SESSION_IN_FLIGHT_RATIO,
            max_waiting_requests: defaults::SESSION_WAITING,
        }
    }
}
