//! The metrics of the two queues before placement, under kthena's names, and ours beside them.

use super::{Family, Kind};

/// kthena's buckets for waiting times, seconds.
const WAITS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

families! {
    /// Fairness: waiting.
    FAIRNESS_SIZE = "kthena_router_fairness_queue_size", Gauge, &["model", "user_id"], &[],
        "Requests that wait in the fairness queue; user_id is always `_all`.";
    /// Fairness: waiting time.
    FAIRNESS_DURATION = "kthena_router_fairness_queue_duration_seconds", Histogram, &["model", "user_id"], WAITS,
        "Seconds that requests waited in the fairness queue before they began.";
    /// Fairness: left.
    FAIRNESS_CANCELLED = "kthena_router_fairness_queue_cancelled_total", Counter, &["model", "user_id"], &[],
        "Requests that left the fairness queue before they began: client gone, time-out, shutdown, or their place was given to a user with fewer waiting.";
    /// Fairness: begun.
    FAIRNESS_DEQUEUED = "kthena_router_fairness_queue_dequeue_total", Counter, &["model", "user_id"], &[],
        "Requests that the fairness queue let begin, those included that did not have to wait.";
    /// Fairness: running.
    FAIRNESS_INFLIGHT = "kthena_router_fairness_queue_inflight", Gauge, &["model"], &[],
        "Requests that the fairness queue let begin and that have not ended.";
    /// Session boost: waiting.
    SESSION_BOOST_SIZE = "kthena_router_session_boost_queue_size", Gauge, &["model"], &[],
        "Requests that wait in the session-boost queue.";
    /// Session boost: waiting time.
    SESSION_BOOST_DURATION = "kthena_router_session_boost_queue_duration_seconds", Histogram, &["model"], WAITS,
        "Seconds that requests waited in the session-boost queue before they began.";
    /// Session boost: left.
    SESSION_BOOST_CANCELLED = "kthena_router_session_boost_queue_cancelled_total", Counter, &["model"], &[],
        "Requests that left the session-boost queue before they began: client gone, time-out, shutdown.";
    /// Session boost: begun.
    SESSION_BOOST_DEQUEUED = "kthena_router_session_boost_queue_dequeue_total", Counter, &["model"], &[],
        "Requests that the session-boost queue let begin, those included that did not have to wait.";
    /// Session boost: running.
    SESSION_BOOST_INFLIGHT = "kthena_router_session_boost_queue_inflight", Gauge, &["model"], &[],
        "Requests that the session-boost queue let begin and that have not ended; a place that is kept for a grace period is not counted.";
    /// Denied.
    ADMISSION_DENIED = "kvasir_admission_denied_total", Counter, &["model", "reason"], &[],
        "Requests that a queue did not let begin: timed_out, full (as many waited as may wait), closed (it waited when the router shut down or the model's last route was removed).";
    /// Shared use: peers.
    USAGE_PEERS = "kvasir_usage_peers", Gauge, &[], &[],
        "Other replicas whose users' use counts in the fairness queue, those that ended within the window too.";
    /// Shared use: exchanges.
    USAGE_EXCHANGES = "kvasir_usage_exchanges_total", Counter, &[], &[], "Exchanges of use through Redis that went well.";
    /// Shared use: failures.
    USAGE_FAILURES = "kvasir_usage_exchange_failures_total", Counter, &[], &[],
        "Exchanges of use through Redis that failed; each is made up for by the next.";
}
