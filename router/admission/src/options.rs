//! How requests are admitted: which queue, and its settings.

use std::collections::HashMap;
use std::time::Duration;

/// Who may begin now.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum AdmissionMode {
    /// Everybody, at once.
    #[default]
    Off,
    /// Who used least.
    Fairness(FairnessOptions),
    /// Whose conversation is warm.
    SessionBoost(SessionBoostOptions),
}

/// Settings of the fairness queue. Names are those of the `FAIRNESS_*` variables, where there is one.
///
/// Weights that are negative or not finite, a rate or a limit of nothing, and a window under a second are taken for
/// the default.
#[derive(Clone, PartialEq, Debug)]
pub struct FairnessOptions {
    /// For how long use counts. In buckets of a second; of a window longer than five minutes, of a 300th of it.
    pub window_size: Duration,
    /// What a prompt token counts.
    pub input_token_weight: f64,
    /// What a generated token counts.
    pub output_token_weight: f64,
    /// How long a request may wait.
    pub queue_timeout: Duration,
    /// Requests of one model that run at once; 0 for pacing by `max_qps` in its place.
    pub max_concurrent: usize,
    /// Requests of one model that begin in a second, where `max_concurrent` is 0.
    pub max_qps: f64,
    /// What a weighted token counts in the priority.
    pub priority_token_weight: f64,
    /// What a request counts in the priority. With both 0, tokens count 1.
    pub priority_request_num_weight: f64,
    /// Accepted and without meaning: kthena fixes an entry's priority when it arrives and may look again when it
    /// leaves; here the order is always that of now.
    pub priority_refresh_retries: u32,
    /// Accepted and without meaning, for the same reason.
    pub rebuild_threshold: usize,
    /// How many units of priority (weighted tokens, as it is by default) a second of waiting is worth. A user whose use
    /// is `d` above another's waits at most `d / ageing` seconds longer. The more, the closer to first come, first
    /// served; 0 for no ageing at all.
    pub ageing: f64,
    /// Units of priority that are added for requests of nobody known, so that of equals they come last. All of them
    /// are one user. With ageing they wait at most `anonymous_handicap / ageing` seconds longer for it.
    pub anonymous_handicap: f64,
    /// What users are due relative to each other: of a model with too little room each gets tokens in proportion.
    /// Whoever is not named has 1.
    pub user_weights: HashMap<String, f64>,
    /// Requests that wait, in all queues together. When one more comes, the latest request of the model's user with the
    /// most waiting is sent away for it, unless the newcomer's user has nearly as many itself.
    pub max_waiting: usize,
    /// Users of one model whose use is known. Of more, the idle one with the least use is forgotten; where none is
    /// idle, the newcomer counts as nobody known.
    pub max_users: usize,
}

impl Default for FairnessOptions {
    fn default() -> Self {
        Self {
            window_size: Duration::from_secs(300),
            input_token_weight: 1.0,
            output_token_weight: 2.0,
            queue_timeout: Duration::from_secs(60),
            max_concurrent: 0,
            max_qps: 100.0,
            priority_token_weight: 1.0,
            priority_request_num_weight: 0.0,
            priority_refresh_retries: 0,
            rebuild_threshold: 64,
            // A usual request (1000 prompt tokens, 200 generated) is worth 14 seconds of waiting.
            ageing: 100.0,
            anonymous_handicap: 1000.0,
            user_weights: HashMap::new(),
            max_waiting: 10_000,
            max_users: 10_000,
        }
    }
}

impl FairnessOptions {
    /// With every value that makes no sense replaced.
    pub(crate) fn sane(mut self) -> Self {
        let default = Self::default();
        let weight = |value: f64, default: f64| {
            if value.is_finite() && value >= 0.0 { value.min(MOST_WEIGHT) } else { default }
        };
        self.input_token_weight = weight(self.input_token_weight, default.input_token_weight);
        self.output_token_weight = weight(self.output_token_weight, default.output_token_weight);
        self.priority_token_weight = weight(self.priority_token_weight, default.priority_token_weight);
        self.priority_request_num_weight =
            weight(self.priority_request_num_weight, default.priority_request_num_weight);
        if self.priority_token_weight == 0.0 && self.priority_request_num_weight == 0.0 {
            self.priority_token_weight = 1.0;
        }
        self.ageing = weight(self.ageing, default.ageing);
        self.anonymous_handicap = weight(self.anonymous_handicap, default.anonymous_handicap);
        if !self.max_qps.is_finite() || self.max_qps <= 0.0 {
            self.max_qps = default.max_qps;
        }
        if self.window_size < Duration::from_secs(1) {
            self.window_size = default.window_size;
        }
        self.user_weights.retain(|_, weight| weight.is_finite() && *weight > 0.0);
        self.max_waiting = if self.max_waiting == 0 { default.max_waiting } else { self.max_waiting };
        self.max_users = if self.max_users == 0 { default.max_users } else { self.max_users };
        self
    }
}

/// The largest weight. With it a window's cost in thousandths still fits into 64 bits.
const MOST_WEIGHT: f64 = 1e6;

/// Settings of the session-boost queue. Names are those of the `SESSION_BOOST_*` variables, where there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionBoostOptions {
    /// Sessions of one model that are remembered.
    pub max_sessions: usize,
    /// Requests of a model that run at once, for each of its pods.
    pub inflight_per_pod: u32,
    /// How long the place of a request that ended is kept for the next turn of its conversation, which has it as soon as
    /// it comes. The place of a request without a conversation is not kept.
    pub grace_period: Duration,
    /// How long a request may wait; `None` for ever.
    pub timeout: Option<Duration>,
    /// How often it is looked, while somebody waits, whether the pods have room now: their engines may become free of
    /// work that never came through here.
    pub recheck: Duration,
    /// Whoever has waited for this long is served in the order of arrival before all that have not, so a request waits
    /// at most this much longer than with one line for all. `None`: requests without a warm session may starve.
    pub ageing: Option<Duration>,
    /// Requests that wait, in all queues together.
    pub max_waiting: usize,
}

impl Default for SessionBoostOptions {
    fn default() -> Self {
        Self {
            max_sessions: 4096,
            inflight_per_pod: 16,
            grace_period: Duration::ZERO,
            timeout: Some(Duration::from_secs(30)),
            recheck: Duration::from_millis(100),
            ageing: Some(Duration::from_secs(10)),
            max_waiting: 10_000,
        }
    }
}

impl SessionBoostOptions {
    /// With every value that makes no sense replaced.
    pub(crate) fn sane(mut self) -> Self {
        let default = Self::default();
        self.max_sessions = if self.max_sessions == 0 { default.max_sessions } else { self.max_sessions };
        self.inflight_per_pod =
            if self.inflight_per_pod == 0 { default.inflight_per_pod } else { self.inflight_per_pod };
        self.recheck = self.recheck.max(Duration::from_millis(1));
        self.timeout = self.timeout.filter(|timeout| !timeout.is_zero());
        self.max_waiting = if self.max_waiting == 0 { default.max_waiting } else { self.max_waiting };
        self
    }
}
