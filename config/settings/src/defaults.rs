//! The default of every setting, with its unit and its reason.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::coordination::SharedLoadMode;
use crate::plugin_names;
use crate::resolved::{
    AccessLog, AdmissionSettings, HeaderRules, Limits, PdFallback, PluginArgs, SchedulerSettings, Settings,
};

/// Inference, health and readiness: kthena's port, on all interfaces. As with kthena's `:8080`, those are the interfaces
/// of IPv4 and of IPv6: the pods of some clusters have the one, of some the other.
pub const LISTEN: &str = "[::]:8080";
/// Metrics: kthena's port, on all interfaces, because Prometheus scrapes from elsewhere.
pub const METRICS_LISTEN: &str = "[::]:9090";
/// Explain and debug: kthena's port, on loopback, because it shows how requests are placed.
pub const ADMIN_LISTEN: &str = "127.0.0.1:15000";

/// Largest request body. A multimodal request carries a few images as base64; a small limit refuses normal ones.
pub const MAX_BODY_BYTES: &str = "32MiB";
/// Share of the memory limit that bodies may hold at once.
pub const MAX_BUFFERED_SHARE: u64 = 4;
/// Sum of bodies when the memory limit is unknown, bytes.
pub const MAX_BUFFERED_UNKNOWN: usize = 512 << 20;

/// A pod that does not accept within this long is not there.
pub const CONNECT_TIMEOUT: &str = "2s";
/// A long prefill behind a long queue takes minutes.
pub const FIRST_BYTE_TIMEOUT: &str = "600s";
/// An engine that is preempted may be silent for long inside an answer.
pub const STREAM_IDLE_TIMEOUT: &str = "300s";
/// Clients that trickle a header hold a connection for no longer than this.
pub const HEADER_TIMEOUT: &str = "10s";
/// Longest silence inside a request's body.
pub const BODY_TIMEOUT: &str = "30s";
/// Idle client connections.
pub const KEEPALIVE_TIMEOUT: &str = "60s";

/// kthena tries at most five pods.
pub const MAX_ATTEMPTS: &str = "5";
/// A fifth: enough to hide one dead pod of five, too little to double the load of an outage.
pub const RETRY_BUDGET: &str = "0.2";
/// As kthena: decode endpoints may lack the memory, or the time, for prompts.
pub const PD_FALLBACK: &str = PdFallback::Off.as_str();
/// Idle connections kept to each endpoint.
pub const POOL_SIZE: &str = "256";
/// kthena's scrape interval.
pub const SCRAPE_INTERVAL: &str = "1s";
/// One worker for each core.
pub const THREADS: &str = "0";
/// About 10 MB of decision records with four endpoints each.
pub const DECISION_RING: &str = "2048";
/// What fits is found out.
pub const SHARED_LOAD: &str = "auto";
/// A failover of Redis takes seconds; what engines hold changes by far less than all of it in a minute.
pub const MIRROR_GRACE: &str = "60s";
/// Shortest grace. Owners are read anew every second; with less than two of those, one late answer looks like an outage.
pub const SHORTEST_MIRROR_GRACE: Duration = Duration::from_secs(2);
/// kthena's drain time-out.
pub const DRAIN_TIMEOUT: &str = "5m";
/// Load balancers need a few seconds to notice a readiness that fails.
pub const DRAIN_SETTLE: &str = "3s";

/// Whether a cluster is watched follows from where the process runs.
pub const KUBERNETES: &str = "auto";
/// The namespace of a process that is told none: kthena's choice.
pub const NAMESPACE: &str = "default";
/// Where kthena's manifests mount the router document.
pub const KTHENA_DOCUMENT: &str = "/etc/config/routerConfiguration.yaml";
/// The key of the router document in kthena's ConfigMap.
pub const CONFIG_MAP_KEY: &str = "routerConfiguration";
/// kthena's class of Gateways.
pub const GATEWAY_CLASS: &str = "kthena-router";
/// The Lease that replicas of one router share.
pub const LEASE_NAME: &str = "kvasir-router";
/// The webhook's port in kthena's manifests.
pub const WEBHOOK_PORT: u16 = 8443;
/// Where kthena's manifests mount the webhook's certificate.
pub const WEBHOOK_CERT_FILE: &str = "/etc/tls/tls.crt";
/// Where kthena's manifests mount the key of the webhook's certificate.
pub const WEBHOOK_KEY_FILE: &str = "/etc/tls/tls.key";
/// The Secret of the webhook's certificate in kthena's manifests.
pub const WEBHOOK_SECRET: &str = "kthena-router-webhook-certs";
/// The webhook's Service in kthena's manifests.
pub const WEBHOOK_SERVICE: &str = "kthena-router-webhook";
/// The webhook's configuration in kthena's manifests.
pub const WEBHOOK_CONFIGURATION: &str = "kthena-router-validating-webhook";

/// Log level.
pub const LOG_LEVEL: &str = "info";
/// Where kthena's access log goes.
pub const ACCESS_LOG_OUTPUT: &str = "stdout";

/// Ranked endpoints kept for retries; kthena keeps five.
pub const TOP_N: usize = 5;
/// Longest time spent gathering tokens and matches before the decision is made without them: a little more than the
/// largest budget of a remote token source (250 ms, a tenth of a long prefill), so that the source's own limit ends it.
pub const GATHER_DEADLINE: Duration = Duration::from_millis(300);

/// What gathering has left when the remote token sources have used all of a deadline that was set.
pub const GATHER_AFTER_TOKENS: Duration = Duration::from_millis(50);
/// Shortest and longest deadline of the remote token sources. With less no call succeeds; with more, every request waits
/// that long for a source that hangs.
pub const TOKEN_DEADLINES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(10));

/// Blocks that `coordination: query` looks at: kthena's number.
pub const QUERY_BLOCKS: u32 = 128;
/// Longest time of one lookup in Redis. 128 blocks take 0.3 ms on a near Redis; what takes longer than this is cheaper
/// to be without.
pub const QUERY_BUDGET: Duration = Duration::from_millis(5);
/// Shortest and longest budget that may be asked for. With less no lookup succeeds; with more, every request waits that
/// long for a Redis that hangs.
pub const QUERY_BUDGETS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// kthena's window of use.
pub const FAIRNESS_WINDOW: Duration = Duration::from_secs(300);
/// Shortest and longest window, as in kthena.
pub const FAIRNESS_WINDOWS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// kthena's longest wait in the fairness queue.
pub const FAIRNESS_QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
/// kthena's longest wait in the session-boost queue.
pub const SESSION_BOOST_TIMEOUT: Duration = Duration::from_secs(30);
/// Weighted tokens that a second of waiting is worth: a usual request (1000 prompt tokens, 200 generated) is 14 seconds.
pub const FAIRNESS_AGEING: f64 = 100.0;
/// Longest wait behind conversations that go on: a third of the time-out.
pub const SESSION_BOOST_AGEING: Duration = Duration::from_secs(10);
/// Requests that wait at once. More than that is no queue that anybody waits for; bodies are bounded apart.
pub const MAX_WAITING: usize = 10_000;

/// `kvasir-cost`: one second of prefill work saved is then worth waiting a second and a half.
pub const COST_AFFINITY: f64 = 1.0;
/// Load alone, and so much that an endpoint keeps its prompts until it has queued six times their work.
pub const COST_AFFINITIES: (f64, f64) = (0.0, 4.0);

/// `session-affinity`: the header that kthena's plugin of this name reads.
pub const SESSION_HEADER: &str = "X-Session-ID";
/// kthena's: a conversation that rests longer has most likely lost its cache.
pub const SESSION_TTL: Duration = Duration::from_secs(30 * 60);
/// Shortest and longest time that may be asked for.
pub const SESSION_TTLS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(7 * 24 * 3600));
/// About 10 MB for each of prefill and decode.
pub const SESSIONS: usize = 100_000;
/// Fewest and most sessions that may be asked for.
pub const SESSIONS_RANGE: (usize, usize) = (1, 10_000_000);
/// Twice its share is more than chance makes it.
pub const SESSION_IN_FLIGHT_RATIO: f64 = 2.0;
/// Lowest and highest ratio that may be asked for.
pub const SESSION_IN_FLIGHT_RATIOS: (f64, f64) = (1.0, 1000.0);
/// The limit of `least-request`, at which other routers drop the endpoint altogether.
pub const SESSION_WAITING: u32 = 10;
/// Most body fields that may be named, and most keys in the path of one.
pub const SESSION_FIELDS: usize = 8;
/// See [`SESSION_FIELDS`].
pub const SESSION_FIELD_KEYS: usize = 8;

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 32 << 20,
            max_buffered_bytes: MAX_BUFFERED_UNKNOWN,
            connect_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(600),
            stream_idle_timeout: Duration::from_secs(300),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(60),
            max_attempts: 5,
            retry_budget: 0.2,
            pool_size: 256,
            pd_fallback: PdFallback::Off,
        }
    }
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { enabled: true, json: false, output: ACCESS_LOG_OUTPUT.to_owned() }
    }
}

impl Default for SchedulerSettings {
    /// What a router without a document does: weigh prefill work against what is queued.
    fn default() -> Self {
        Self {
            filters: Vec::new(),
            scorers: vec![(plugin_names::KVASIR_COST.to_owned(), 1.0)],
            args: PluginArgs::default(),
            top_n: TOP_N,
            gather_deadline: GATHER_DEADLINE,
        }
    }
}

impl Default for Settings {
    /// Every default, and no model.
    fn default() -> Self {
        let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            listen: SocketAddr::new(any, 8080),
            metrics_listen: SocketAddr::new(any, 9090),
            admin_listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15000),
            limits: Limits::default(),
            headers: HeaderRules::default(),
            admission: AdmissionSettings::default(),
            scheduler: SchedulerSettings::default(),
            models: Vec::new(),
            scrape_interval: Duration::from_secs(1),
            access_log: AccessLog::default(),
            threads: 0,
            decision_ring: 2048,
            drain_timeout: Duration::from_secs(300),
            drain_settle: Duration::from_secs(3),
            warnings: Vec::new(),
            log_level: LOG_LEVEL.to_owned(),
            from_document: false,
            redis: None,
            coordination: None,
            shared_load: SharedLoadMode::default(),
            mirror_grace: Duration::from_secs(60),
            replica_name: None,
            kubernetes: None,
            metrics_on_router_port: false,
            tokenizers: BTreeMap::new(),
            token_deadline: None,
            implied_redis: None,
        }
    }
}
