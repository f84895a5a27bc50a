//! Who may begin now: the queue before placement, or none.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::defaults;

/// Which queue requests pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AdmissionSettings {
    /// None: every request begins at once.
    #[default]
    Off,
    /// Users in turn, by what they used.
    Fairness(FairnessSettings),
    /// Conversations that go on before those that begin.
    SessionBoost(SessionBoostSettings),
}

/// The fairness queue.
#[derive(Clone, Debug, PartialEq)]
pub struct FairnessSettings {
    /// The header that says who a client is, in small letters; `None`: nobody is known.
    pub user_header: Option<String>,
    /// Users whose share is not 1.
    pub user_weights: BTreeMap<String, f64>,
    /// How far back use counts.
    pub window: Duration,
    /// What a prompt token counts.
    pub input_token_weight: f64,
    /// What a generated token counts.
    pub output_token_weight: f64,
    /// What counted tokens weigh in the order.
    pub priority_token_weight: f64,
    /// What a request weighs in the order beside its tokens.
    pub priority_request_weight: f64,
    /// Requests of one model that run at once; 0: as many as begin.
    pub max_concurrent: usize,
    /// Requests of one model that begin in a second, where `max_concurrent` is 0.
    pub max_qps: u32,
    /// Longest wait.
    pub queue_timeout: Duration,
    /// What a second of waiting is worth, weighted tokens.
    pub ageing: f64,
    /// Requests that wait at once, those of all models together.
    pub max_waiting: usize,
}

impl Default for FairnessSettings {
    fn default() -> Self {
        Self {
            user_header: None,
            user_weights: BTreeMap::new(),
            window: defaults::FAIRNESS_WINDOW,
            input_token_weight: 1.0,
            output_token_weight: 2.0,
            priority_token_weight: 1.0,
            priority_request_weight: 0.0,
            max_concurrent: 0,
            max_qps: 100,
            queue_timeout: defaults::FAIRNESS_QUEUE_TIMEOUT,
            ageing: defaults::FAIRNESS_AGEING,
            max_waiting: defaults::MAX_WAITING,
        }
    }
}

/// The session-boost queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionBoostSettings {
    /// The header that names the conversation, in small letters.
    pub header: String,
    /// Conversations of one model that are remembered.
    pub max_sessions: usize,
    /// Requests of one model that run at once, for each of its pods.
    pub inflight_per_pod: u32,
    /// How long the place of a request that has ended is kept for its conversation.
    pub grace_period: Duration,
    /// Longest wait; `None` is as long as the client waits.
    pub timeout: Option<Duration>,
    /// Whoever has waited for this long comes before all that have not; `None` is never.
    pub ageing: Option<Duration>,
    /// Requests that wait at once, those of all models together.
    pub max_waiting: usize,
}

impl Default for SessionBoostSettings {
    fn default() -> Self {
        Self {
            header: "x-session-id".to_owned(),
            max_sessions: 4096,
            inflight_per_pod: 16,
            grace_period: Duration::ZERO,
            timeout: Some(defaults::SESSION_BOOST_TIMEOUT),
            ageing: Some(defaults::SESSION_BOOST_AGEING),
            max_waiting: defaults::MAX_WAITING,
        }
    }
}
