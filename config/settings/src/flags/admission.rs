//! The flags of the two queues before placement: fairness and session boost.

use clap::Args;

pub(crate) const HEADING: &str = "Admission";

/// What was said about the queues, as it was typed. Each flag also has kthena's variable, which is its name without the
/// prefix `KVASIR_`; that one counts below both.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionArgs {
    /// Queue requests by model, and let that user begin who used the least of late; not with --enable-session-boost
    /// [default: false]
    #[arg(long, env = "KVASIR_ENABLE_FAIRNESS_SCHEDULING", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING)]
    pub enable_fairness_scheduling: Option<String>,
    /// The header that says who a client is, set by a proxy in front that knows; it must remove what clients send. Without
    /// it nobody is told from another [default: none]
    #[arg(long, env = "KVASIR_FAIRNESS_USER_HEADER", value_name = "NAME", help_heading = HEADING)]
    pub fairness_user_header: Option<String>,
    /// Shares of users unlike the others': one with weight 2 may use twice as much as one with 1 [default: 1 for everybody]
    #[arg(long, env = "KVASIR_FAIRNESS_USER_WEIGHTS", value_name = "USER=WEIGHT[,...]", help_heading = HEADING)]
    pub fairness_user_weights: Option<String>,
    /// How far back use counts, 1m to 1h [default: 5m]
    #[arg(long, env = "KVASIR_FAIRNESS_WINDOW_SIZE", value_name = "DURATION", help_heading = HEADING)]
    pub fairness_window_size: Option<String>,
    /// What a prompt token counts, at least 0 [default: 1]
    #[arg(long, env = "KVASIR_FAIRNESS_INPUT_TOKEN_WEIGHT", value_name = "NUMBER", help_heading = HEADING)]
    pub fairness_input_token_weight: Option<String>,
    /// What a generated token counts, at least 0 [default: 2]
    #[arg(long, env = "KVASIR_FAIRNESS_OUTPUT_TOKEN_WEIGHT", value_name = "NUMBER", help_heading = HEADING)]
    pub fairness_output_token_weight: Option<String>,
    /// What counted tokens weigh in the order, at least 0 [default: 1]
    #[arg(long, env = "KVASIR_FAIRNESS_PRIORITY_TOKEN_WEIGHT", value_name = "NUMBER", help_heading = HEADING)]
    pub fairness_priority_token_weight: Option<String>,
    /// What a request weighs in the order beside its tokens, at least 0; where both weights are 0, tokens weigh 1
    /// [default: 0]
    #[arg(long, env = "KVASIR_FAIRNESS_PRIORITY_REQUEST_NUM_WEIGHT", value_name = "NUMBER", help_heading = HEADING)]
    pub fairness_priority_request_num_weight: Option<String>,
    /// Requests of one model that run at once through this router; 0 lets them begin at the pace of --fairness-max-qps
    /// instead [default: 0]
    #[arg(long, env = "KVASIR_FAIRNESS_MAX_CONCURRENT", value_name = "COUNT", help_heading = HEADING)]
    pub fairness_max_concurrent: Option<String>,
    /// Requests of one model that begin in a second, where --fairness-max-concurrent is 0 [default: 100]
    #[arg(long, env = "KVASIR_FAIRNESS_MAX_QPS", value_name = "COUNT", help_heading = HEADING)]
    pub fairness_max_qps: Option<String>,
    /// Longest wait in the fairness queue; then the client gets 504 [default: 60s]
    #[arg(long, env = "KVASIR_FAIRNESS_QUEUE_TIMEOUT", value_name = "DURATION", help_heading = HEADING)]
    pub fairness_queue_timeout: Option<String>,
    /// What a second of waiting is worth, in weighted tokens: whoever used d more than another waits at most d divided by
    /// this longer. 0 is nothing: who uses much may then wait for as long as others come [default: 100]
    #[arg(long, env = "KVASIR_FAIRNESS_AGEING", value_name = "NUMBER", help_heading = HEADING)]
    pub fairness_ageing: Option<String>,
    /// Requests that wait at once, those of all models together, 1 to 1000000; of more, the latest of the user with the most
    /// waiting gets 429 [default: 10000]
    #[arg(long, env = "KVASIR_FAIRNESS_MAX_WAITING", value_name = "COUNT", help_heading = HEADING)]
    pub fairness_max_waiting: Option<String>,
    /// Taken, and not needed: the order is that of the moment a request begins, so nothing has to be put back
    /// [default: 0]
    #[arg(long, env = "KVASIR_FAIRNESS_PRIORITY_REFRESH_RETRIES", value_name = "COUNT", help_heading = HEADING, hide_short_help = true)]
    pub fairness_priority_refresh_retries: Option<String>,
    /// Taken, and not needed, as --fairness-priority-refresh-retries [default: 64]
    #[arg(long, env = "KVASIR_FAIRNESS_REBUILD_THRESHOLD", value_name = "COUNT", help_heading = HEADING, hide_short_help = true)]
    pub fairness_rebuild_threshold: Option<String>,

    /// Queue requests by model, and let conversations go on before others begin; not with --enable-fairness-scheduling
    /// [default: false]
    #[arg(long, env = "KVASIR_ENABLE_SESSION_BOOST", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", help_heading = HEADING)]
    pub enable_session_boost: Option<String>,
    /// The header that names the conversation [default: X-Session-ID]
    #[arg(long, env = "KVASIR_SESSION_BOOST_HEADER", value_name = "NAME", help_heading = HEADING)]
    pub session_boost_header: Option<String>,
    /// Conversations of one model that are remembered, 1 to 1000000 [default: 4096]
    #[arg(long, env = "KVASIR_SESSION_BOOST_MAX_SESSIONS", value_name = "COUNT", help_heading = HEADING)]
    pub session_boost_max_sessions: Option<String>,
    /// Requests of one model that run at once through this router, for each pod that serves it [default: 16]
    #[arg(long, env = "KVASIR_SESSION_BOOST_INFLIGHT_PER_POD", value_name = "COUNT", help_heading = HEADING)]
    pub session_boost_inflight_per_pod: Option<String>,
    /// How long the place of a request that has ended is kept for the next one of its conversation, which begins at once
    /// when it comes [default: 0]
    #[arg(long, env = "KVASIR_SESSION_BOOST_GRACE_PERIOD", value_name = "DURATION", help_heading = HEADING)]
    pub session_boost_grace_period: Option<String>,
    /// Longest wait in the session-boost queue; then the client gets 504; 0 waits for as long as the client does
    /// [default: 30s]
    #[arg(long, env = "KVASIR_SESSION_BOOST_TIMEOUT", value_name = "DURATION", help_heading = HEADING)]
    pub session_boost_timeout: Option<String>,
    /// Whoever has waited for this long comes before all that have not, going on or not; 0 is never [default: 10s]
    #[arg(long, env = "KVASIR_SESSION_BOOST_AGEING", value_name = "DURATION", help_heading = HEADING)]
    pub session_boost_ageing: Option<String>,
    /// Requests that wait at once, those of all models together, 1 to 1000000; the next one gets 429 [default: 10000]
    #[arg(long, env = "KVASIR_SESSION_BOOST_MAX_WAITING", value_name = "COUNT", help_heading = HEADING)]
    pub session_boost_max_waiting: Option<String>,
}

/// How many flags there are.
pub(crate) const FLAGS: usize = 23;

/// The flags that say which queue is on.
pub(crate) const SWITCHES: [&str; 2] = ["--enable-fairness-scheduling", "--enable-session-boost"];

impl AdmissionArgs {
    /// Every flag with what was said for it; an empty text says nothing.
    pub(crate) fn all(&self) -> [(&'static str, Option<&str>); FLAGS] {
        fn said(text: &Option<String>) -> Option<&str> {
            text.as_deref().filter(|text| !text.trim().is_empty())
        }
        [
            (SWITCHES[0], said(&self.enable_fairness_scheduling)),
            ("--fairness-user-header", said(&self.fairness_user_header)),
            ("--fairness-user-weights", said(&self.fairness_user_weights)),
            ("--fairness-window-size", said(&self.fairness_window_size)),
            ("--fairness-input-token-weight", said(&self.fairness_input_token_weight)),
            ("--fairness-output-token-weight", said(&self.fairness_output_token_weight)),
            ("--fairness-priority-token-weight", said(&self.fairness_priority_token_weight)),
            ("--fairness-priority-request-num-weight", said(&self.fairness_priority_request_num_weight)),
            ("--fairness-max-concurrent", said(&self.fairness_max_concurrent)),
            ("--fairness-max-qps", said(&self.fairness_max_qps)),
            ("--fairness-queue-timeout", said(&self.fairness_queue_timeout)),
            ("--fairness-ageing", said(&self.fairness_ageing)),
            ("--fairness-max-waiting", said(&self.fairness_max_waiting)),
            ("--fairness-priority-refresh-retries", said(&self.fairness_priority_refresh_retries)),
            ("--fairness-rebuild-threshold", said(&self.fairness_rebuild_threshold)),
            (SWITCHES[1], said(&self.enable_session_boost)),
            ("--session-boost-header", said(&self.session_boost_header)),
            ("--session-boost-max-sessions", said(&self.session_boost_max_sessions)),
            ("--session-boost-inflight-per-pod", said(&self.session_boost_inflight_per_pod)),
            ("--session-boost-grace-period", said(&self.session_boost_grace_period)),
            ("--session-boost-timeout", said(&self.session_boost_timeout)),
            ("--session-boost-ageing", said(&self.session_boost_ageing)),
            ("--session-boost-max-waiting", said(&self.session_boost_max_waiting)),
        ]
    }
}

/// kthena's variable for one of these flags.
pub(crate) fn variable_of(flag: &str) -> String {
    flag.trim_start_matches('-').replace('-', "_").to_uppercase()
}
