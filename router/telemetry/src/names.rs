//! Every metric the router exports: name, kind, labels, buckets and meaning. `docs/metrics.md` is made from this.

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
}

impl Kind {
    /// As written after `# TYPE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Full name.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Labels, in order.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
    /// One sentence, with the unit.
    pub help: &'static str,
}

/// kthena's buckets for request durations, seconds.
const DURATION: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// kthena's buckets for match ratios.
const RATIO: &[f64] = &[0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0];
/// kthena's buckets for tokenize and Redis durations, seconds.
const LOOKUP: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// kthena's buckets for plugin durations, seconds.
const PLUGIN: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5];
/// Ours, for decisions: microseconds matter.
const DECISION: &[f64] = &[0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];
/// Ours, for a prediction's error in blocks.
const BLOCKS_OFF: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0];

const BACKEND: &[&str] =
    &["model", "path", "status_code", "model_route", "backend_type", "backend_name", "upstream_model"];

macro_rules! families {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $kind:ident, $labels:expr, $buckets:expr, $help:literal;)*) => {
        $($(#[$doc])* pub const $id: Family = Family {
            name: $name, kind: Kind::$kind, labels: $labels, buckets: $buckets, help: $help,
        };)*
        /// All of this file, in the order of the reference page.
        pub const ALL: &[Family] = &[$($id),*];
    };
}

pub mod admission;
pub mod disaggregation;

/// Every family, in the order of the reference page.
pub fn all() -> impl Iterator<Item = &'static Family> {
    ALL.iter().chain(admission::ALL).chain(disaggregation::ALL)
}

families! {
    /// Requests.
    REQUESTS = "kthena_router_requests_total", Counter,
        &["model", "path", "status_code", "error_type", "model_route", "backend_type", "backend_name", "upstream_model"], &[],
        "Inference requests by how they ended; the model is `unknown` where none could be read or no route names it.";
    /// Durations.
    REQUEST_DURATION = "kthena_router_request_duration_seconds", Histogram, BACKEND, DURATION,
        "Seconds from a request's header to the end of its answer.";
    /// Tokens.
    TOKENS = "kthena_router_tokens_total", Counter,
        &["model", "path", "token_type", "model_route", "backend_type", "backend_name", "upstream_model"], &[],
        "Prompt (`input`) and generated (`output`) tokens as the engines reported them.";
    /// Plugins.
    PLUGIN_DURATION = "kthena_router_scheduler_plugin_duration_seconds", Histogram, &["model", "plugin", "type"], PLUGIN,
        "Seconds one filter or scorer took.";
    /// In the house.
    ACTIVE = "kthena_router_active_requests", Gauge, &[], &[], "Requests in the router.";
    /// In the house, by model.
    ACTIVE_DOWNSTREAM = "kthena_router_active_downstream_requests", Gauge, &["model"], &[],
        "Requests in the router whose model is known.";
    /// Out at engines.
    ACTIVE_UPSTREAM = "kthena_router_active_upstream_requests", Gauge,
        &["model_server", "model_route", "backend_type", "backend_name", "upstream_model"], &[],
        "Attempts running at engines.";
    /// `prefix-cache` matches.
    PREFIX_CACHE_MATCH = "kthena_router_prefix_cache_match_ratio", Histogram, &["model"], RATIO,
        "Best match of `prefix-cache` as a share of the prompt's blocks, per decision.";
    /// `prefix-cache` evictions.
    PREFIX_CACHE_EVICTIONS = "kthena_router_prefix_cache_evictions_total", Counter, &["model"], &[],
        "Hashes that `prefix-cache` evicted to keep within its capacity.";
    /// `prefix-cache` size.
    PREFIX_CACHE_ENTRIES = "kthena_router_prefix_cache_entries", Gauge, &[], &[],
        "Hashes that `prefix-cache` remembers, over all endpoints.";
    /// `kvcache-aware` matches.
    KVCACHE_MATCH = "kthena_router_kvcache_aware_match_ratio", Histogram, &["model"], RATIO,
        "Best match in the block index as a share of the prompt's full blocks, per decision.";
    /// Tokenizing.
    TOKENIZE_DURATION = "kthena_router_kvcache_aware_tokenize_duration_seconds", Histogram, &["model"], LOOKUP,
        "Seconds to get a prompt's token ids, waiting included; successes only.";
    /// Failures of the kv-aware part.
    KVCACHE_ERRORS = "kthena_router_kvcache_aware_errors_total", Counter, &["model", "stage"], &[],
        "Requests routed without cache knowledge because a stage failed.";

    /// Outcomes.
    OUTCOMES = "kvasir_request_outcomes_total", Counter, &["model", "outcome"], &[],
        "Requests by outcome: success, client_error, client_cancelled, overloaded (the engine said so), engine_error, router_error, stream_broken.";
    /// TTFT.
    TTFT = "kvasir_time_to_first_byte_seconds", Histogram, &["model"], DURATION,
        "Seconds from a request's header to the first byte of the engine's answer.";
    /// Attempts.
    ATTEMPTS = "kvasir_attempts_total", Counter, &["model", "result"], &[],
        "Attempts at engines by result: ok, connect, timeout, died, garbage, status_5xx, status_4xx.";
    /// Retries.
    RETRIES = "kvasir_retries_total", Counter, &["model", "reason"], &[],
        "Attempts after the first, by what made them necessary.";
    /// Retries refused.
    RETRIES_DENIED = "kvasir_retries_denied_total", Counter, &["model", "reason"], &[],
        "Retries not made: the budget was spent, a second engine died on the same request, or no other endpoint is in service any more.";
    /// Gathering.
    GATHER_DURATION = "kvasir_gather_duration_seconds", Histogram, &["model"], DECISION,
        "Seconds spent gathering tokens, blocks and prefix hits for one request.";
    /// Deciding.
    DECIDE_DURATION = "kvasir_decide_duration_seconds", Histogram, &["model"], DECISION,
        "Seconds spent filtering, scoring and picking for one request.";
    /// Token sources.
    TOKENIZED = "kvasir_tokenized_total", Counter, &["model", "source"], &[],
        "Requests whose token ids were had, by source: given, local, service, engine.";
    /// Without tokens.
    UNTOKENIZED = "kvasir_untokenized_total", Counter, &["model", "reason"], &[],
        "Requests routed without token ids, by reason.";
    /// Producers.
    PRODUCE_FAILED = "kvasir_produce_failed_total", Counter, &["model", "producer", "reason"], &[],
        "Data that was not there when the decision was made.";
    /// Proof.
    PROMPT_PROOF = "kvasir_prompt_tokens_proof_total", Counter, &["model", "source", "result"], &[],
        "Answers whose usage.prompt_tokens was compared with our count: equal or differs.";
    /// Prediction error.
    PREDICTION_OFF = "kvasir_cached_tokens_off_blocks", Histogram, &["model"], BLOCKS_OFF,
        "Blocks between the cached tokens we predicted at dispatch and those the engine reported.";
    /// Predicted sums.
    PREDICTED_TOKENS = "kvasir_cached_tokens_predicted_total", Counter, &["model"], &[],
        "Cached tokens predicted, over requests whose engine reported the truth.";
    /// Reported sums.
    REPORTED_TOKENS = "kvasir_cached_tokens_reported_total", Counter, &["model"], &[],
        "Cached tokens that engines reported.";
    /// Buffers.
    BUFFERED_BYTES = "kvasir_buffered_bytes", Gauge, &[], &[], "Bytes of request bodies held now.";
    /// Log lines lost.
    LOG_DROPPED = "kvasir_access_log_dropped_total", Counter, &[], &[],
        "Access-log lines dropped because the output was slower than the traffic.";
    /// Endpoint: in flight.
    ENDPOINT_IN_FLIGHT = "kvasir_endpoint_in_flight", Gauge, &["model", "endpoint"], &[],
        "Requests this router has in flight at an endpoint.";
    /// Endpoint: prefill.
    ENDPOINT_PREFILL = "kvasir_endpoint_prefill_tokens", Gauge, &["model", "endpoint"], &[],
        "Uncached prompt tokens in flight at an endpoint that have not shown their first byte.";
    /// Endpoint: up.
    ENDPOINT_UP = "kvasir_endpoint_up", Gauge, &["model", "endpoint"], &[],
        "1 while an endpoint may be chosen; 0 while it is ejected or drained.";
    /// Endpoint: waiting.
    ENDPOINT_WAITING = "kvasir_endpoint_waiting", Gauge, &["model", "endpoint"], &[],
        "Requests waiting in the engine, by its last scrape.";
    /// Endpoint: KV use.
    ENDPOINT_KV = "kvasir_endpoint_kv_usage", Gauge, &["model", "endpoint"], &[],
        "KV cache in use (0 to 1), by the last scrape.";
    /// Index: blocks.
    OWNER_BLOCKS = "kvasir_index_blocks", Gauge, &["model", "endpoint", "completeness"], &[],
        "Blocks known to be resident at an endpoint; the label says exact, partial or approximate.";
    /// Index: gaps.
    OWNER_GAPS = "kvasir_index_gaps_total", Counter, &["model", "endpoint"], &[], "Gaps seen in an endpoint's event stream.";
    /// Index: repairs.
    OWNER_REPAIRS = "kvasir_index_repairs_total", Counter, &["model", "endpoint"], &[], "Gaps repaired by replay.";
    /// Index: resets.
    OWNER_RESETS = "kvasir_index_resets_total", Counter, &["model", "endpoint"], &[],
        "Times an endpoint's blocks were dropped: engine restart, cache reset, or an unrepaired gap.";
    /// Index: decode failures.
    OWNER_DECODE_FAILURES = "kvasir_index_decode_failures_total", Counter, &["model", "endpoint"], &[],
        "Events that could not be decoded.";
    /// Tokenizer state.
    TOKENIZER_STATE = "kvasir_tokenizer_state", Gauge, &["model", "source", "state"], &[],
        "1 for the state of a model's token source against the engine's own counts: exact, unverified, differs.";
    /// Tokenizer: first difference of the probes.
    TOKENIZER_DIFFERENCE = "kvasir_tokenizer_difference_position", Gauge, &["model", "probe"], &[],
        "Equal token ids before the first other one, in the first probe whose ids differ between an engine and the local tokenizer; absent while none does. /debug/tokens has the ids.";
    /// Redis: connected.
    REDIS_CONNECTED = "kvasir_redis_connected", Gauge, &[], &[],
        "1 while commands can be sent to the Redis that is shared with other replicas.";
    /// Redis: reconnects.
    REDIS_RECONNECTS = "kvasir_redis_reconnects_total", Counter, &[], &[], "Connections to Redis made after the first one.";
    /// Coordination: mode.
    COORDINATION_MODE = "kvasir_coordination_mode", Gauge, &["mode"], &[],
        "1 for where blocks are looked up: mirror (the index in memory), query (kthena's layout in Redis, for each request) or per_owner (the index for engines whose caches are known, else Redis).";
    /// Mirror: contact.
    MIRROR_CONTACT_AGE = "kvasir_mirror_last_contact_seconds", Gauge, &[], &[],
        "Seconds since every stream of the mirror was reached; absent before the first time.";
    /// Mirror: emptied.
    MIRROR_EMPTIED = "kvasir_mirror_store_emptied_total", Counter, &[], &[],
        "Times a stream's store was found to be new or emptied.";
    /// Mirror: malformed.
    MIRROR_MALFORMED = "kvasir_mirror_malformed_total", Counter, &[], &[], "Entries and names in Redis that could not be read.";
    /// Mirror: owners.
    MIRROR_OWNER_STATE = "kvasir_mirror_owner_state", Gauge, &["owner", "state"], &[],
        "1 for the state of a published owner that is routed to: synced, resyncing, other_schema, unreadable, lapsed.";
    /// Mirror: leases.
    MIRROR_LEASE = "kvasir_mirror_lease_left_seconds", Gauge, &["owner"], &[],
        "Seconds until a published owner's lease ends, by the server's clock.";
    /// Mirror: lag.
    MIRROR_LAG = "kvasir_mirror_lag_seconds", Gauge, &["owner"], &[],
        "Seconds that an owner's last change took from Redis to the index.";
    /// Mirror: loads.
    MIRROR_LOADS = "kvasir_mirror_loads_total", Counter, &["owner"], &[], "Times an owner's whole content was loaded.";
    /// Mirror: gaps.
    MIRROR_GAPS = "kvasir_mirror_gaps_total", Counter, &["owner"], &[],
        "Times a change of an owner was missing, so that its content was loaded anew.";
    /// Query: lookups.
    QUERY_LOOKUPS = "kvasir_query_lookups_total", Counter, &["result"], &[],
        "Lookups in kthena's layout: hit, miss, unreachable, timeout, refused, skipped (left alone after failures).";
    /// Query: breaker.
    QUERY_BREAKER = "kvasir_query_breaker_state", Gauge, &["state"], &[],
        "1 for the state of the breaker before lookups: closed, open, half_open.";
    /// Query: block size.
    QUERY_BLOCK_SIZE_DIFFERS = "kvasir_query_block_size_differs", Gauge, &["model"], &[],
        "1 where blocks of blockSizeToHash tokens are asked for and the engines' own have another size, so that nothing is found; else 0.";
    /// Load: peers.
    LOAD_PEERS = "kvasir_load_peers", Gauge, &[], &[], "Other replicas whose load in flight is known.";

    /// Kubernetes: first plan.
    KUBERNETES_SYNCED = "kvasir_kubernetes_synced", Gauge, &[], &[],
        "1 once every kind was listed and requests are routed by what was found.";
    /// Kubernetes: objects.
    KUBERNETES_OBJECTS = "kvasir_kubernetes_objects", Gauge, &["kind"], &[], "Objects that are watched, by kind.";
    /// Kubernetes: malformed objects.
    KUBERNETES_UNREADABLE = "kvasir_kubernetes_objects_unreadable", Gauge, &["kind"], &[],
        "Objects that cannot be read and are passed over.";
    /// Kubernetes: skipped objects.
    KUBERNETES_SKIPPED = "kvasir_kubernetes_objects_skipped", Gauge, &[], &[],
        "Objects that the last plan passed over; their status or the log says why.";
    /// Kubernetes: watches.
    KUBERNETES_WATCH_UP = "kvasir_kubernetes_watch_up", Gauge, &["kind"], &[],
        "1 while a kind is watched, 0 before it was listed and while it cannot be watched; what was known of it stays in use.";
    /// Kubernetes: silence.
    KUBERNETES_EVENT_AGE = "kvasir_kubernetes_event_age_seconds", Gauge, &["kind"], &[],
        "Seconds since something was heard of a kind; grows while nothing of it changes.";
    /// Kubernetes: watch restarts.
    KUBERNETES_WATCH_RESTARTS = "kvasir_kubernetes_watch_restarts_total", Counter, &["kind"], &[],
        "Times that the watch of a kind failed and began again.";
    /// Kubernetes: plans.
    KUBERNETES_PLANS = "kvasir_kubernetes_plans_total", Counter, &[], &[],
        "Times that all objects were made into routes and endpoints.";
    /// Kubernetes: duration of a plan.
    KUBERNETES_PLAN_SECONDS = "kvasir_kubernetes_plan_seconds", Gauge, &[], &[],
        "Seconds that the last plan took to be made and taken into use.";
    /// Kubernetes: leader.
    KUBERNETES_LEADER = "kvasir_kubernetes_leader", Gauge, &[], &[],
        "1 while this replica holds the lease and writes statuses.";
    /// Kubernetes: statuses.
    KUBERNETES_STATUSES = "kvasir_kubernetes_statuses_written_total", Counter, &[], &[], "Statuses written.";
    /// Kubernetes: failed statuses.
    KUBERNETES_STATUS_FAILURES = "kvasir_kubernetes_status_failures_total", Counter, &[], &[],
        "Statuses that could not be written, or left nothing where an older definition drops them.";
    /// Kubernetes: router document.
    KUBERNETES_DOCUMENT_REJECTED = "kvasir_kubernetes_document_rejected", Gauge, &[], &[],
        "1 while the ConfigMap has a router document that cannot be used and an earlier one goes on.";

    /// Agent: engine.
    AGENT_ENGINE_UP = "kvasir_agent_engine_up", Gauge, &["pod"], &[],
        "1 while an engine answers the agent over HTTP.";
    /// Agent: link.
    AGENT_LINK = "kvasir_agent_link", Gauge, &["owner", "state"], &[],
        "1 for the state of the connection to a rank's events: none, connecting, replaying, following.";
    /// Agent: blocks.
    AGENT_BLOCKS = "kvasir_agent_blocks", Gauge, &["model", "owner", "completeness"], &[],
        "Blocks that a rank holds in GPU memory; the label says exact, partial or approximate.";
    /// Agent: sequence.
    AGENT_LAST_SEQUENCE = "kvasir_agent_last_sequence", Gauge, &["owner"], &[],
        "Number of the last batch of events that was applied.";
    /// Agent: age.
    AGENT_EVENT_AGE = "kvasir_agent_event_age_seconds", Gauge, &["owner"], &[],
        "Seconds since the last batch of events was applied; grows while an engine is idle.";
    /// Agent: gaps.
    AGENT_GAPS = "kvasir_agent_gaps_total", Counter, &["owner"], &[], "Gaps seen in a rank's events.";
    /// Agent: repairs.
    AGENT_REPAIRS = "kvasir_agent_repairs_total", Counter, &["owner"], &[], "Gaps repaired by replay.";
    /// Agent: resets.
    AGENT_RESETS = "kvasir_agent_resets_total", Counter, &["owner"], &[],
        "Times a rank's blocks were dropped: engine restart, sleep, or an unrepaired gap.";
    /// Agent: failed replays.
    AGENT_FAILED_REPLAYS = "kvasir_agent_failed_replays_total", Counter, &["owner"], &[],
        "Replays of past events that failed.";
    /// Agent: unreadable.
    AGENT_DECODE_FAILURES = "kvasir_agent_decode_failures_total", Counter, &["owner"], &[],
        "Events that could not be decoded, and messages that are no events.";
    /// Agent: block size.
    AGENT_BLOCK_SIZE = "kvasir_agent_block_size_tokens", Gauge, &["owner"], &[], "Tokens in a block, once known.";
    /// Agent: conflicting block sizes.
    AGENT_BLOCK_SIZE_CONFLICT = "kvasir_agent_block_size_conflict", Gauge, &["owner"], &[],
        "1 while an engine's metrics and its events tell different block sizes; the events are believed.";
    /// Agent: resumed.
    AGENT_RESUME = "kvasir_agent_resume", Gauge, &["owner", "state"], &[],
        "1 for what became of the state saved by an earlier agent: none, unproven, taken, dropped.";
    /// Agent: saves.
    AGENT_RESUME_SAVES = "kvasir_agent_resume_saves_total", Counter, &["owner"], &[],
        "Times the state that a restarted agent resumes from was handed to Redis.";
    /// Agent: size of the saved state.
    AGENT_RESUME_BYTES = "kvasir_agent_resume_bytes", Gauge, &["owner"], &[], "Bytes of the last state saved.";
    /// Agent: publisher.
    AGENT_PUBLISHER = "kvasir_agent_publisher_state", Gauge, &["owner", "state"], &[],
        "1 for what the publisher is about: asking, standing_by, other_schema, publishing, following, unheard, released.";
    /// Agent: lag.
    AGENT_PUBLISH_LAG = "kvasir_agent_publish_lag_seconds", Gauge, &["owner"], &[],
        "Seconds that the oldest change waits for Redis to confirm it; 0 without any.";
    /// Agent: published blocks.
    AGENT_PUBLISHED_BLOCKS = "kvasir_agent_published_blocks", Gauge, &["owner"], &[], "Blocks published, each once.";
    /// Agent: published changes.
    AGENT_PUBLISHED_SEQUENCE = "kvasir_agent_published_sequence", Gauge, &["owner"], &[],
        "Number of the last delta that Redis has, within the epoch.";
    /// Agent: lease.
    AGENT_LEASE = "kvasir_agent_lease_seconds", Gauge, &["owner"], &[], "Seconds that the lease still lasts at least.";
    /// Agent: snapshots.
    AGENT_SNAPSHOTS = "kvasir_agent_snapshots_total", Counter, &["owner"], &[],
        "Times an owner was published as a whole.";
    /// Agent: losses.
    AGENT_LOSSES = "kvasir_agent_losses_total", Counter, &["owner"], &[],
        "Times Redis had not what was left there: emptied, replaced, or rolled back by a failover.";
    /// Agent: fenced.
    AGENT_FENCED = "kvasir_agent_fenced_total", Counter, &["owner"], &[], "Times another agent took an owner over.";
    /// Agent: overflows.
    AGENT_OVERFLOWS = "kvasir_agent_overflows_total", Counter, &["owner"], &[],
        "Times more changed than is kept between two publications, so that the whole was published.";
    /// Agent: failures.
    AGENT_PUBLISH_FAILURES = "kvasir_agent_publish_failures_total", Counter, &["owner"], &[],
        "Requests to Redis that failed; each is tried again.";
    /// Agent: Redis.
    AGENT_REDIS_UP = "kvasir_agent_redis_up", Gauge, &[], &[], "1 while the agent is connected to Redis.";
    /// Agent: reconnects.
    AGENT_REDIS_RECONNECTS = "kvasir_agent_redis_reconnects_total", Counter, &[], &[],
        "Connections to Redis made after the first one.";
    /// Agent: kthena's keys.
    AGENT_KTHENA_KEYS = "kvasir_agent_kthena_keys", Gauge, &["pod", "model"], &[],
        "Blocks that a pod owns in kthena's layout, each content once.";
    /// Agent: kthena's unknown removals.
    AGENT_KTHENA_UNKNOWN = "kvasir_agent_kthena_unknown_removals_total", Counter, &["pod", "model"], &[],
        "Removals of blocks that the agent had not seen stored.";
    /// Agent: kthena's failures.
    AGENT_KTHENA_FAILURES = "kvasir_agent_kthena_failures_total", Counter, &["pod", "model"], &[],
        "Writes of kthena's layout that failed; each is tried again.";
    /// Agent: kthena's backlog.
    AGENT_KTHENA_PENDING = "kvasir_agent_kthena_pending", Gauge, &["pod", "model"], &[],
        "Entries of kthena's layout that Redis does not have as they should be.";
    /// Agent: kthena's stale entries.
    AGENT_KTHENA_STALE = "kvasir_agent_kthena_stale_removed_total", Counter, &["pod", "model"], &[],
        "Entries of a pod that were left by an earlier life, and removed.";
}

/// The reference page of all metrics, in Markdown.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Metrics\n\nMade from `router/telemetry/src/names.rs`; a test compares the two. Served at `/metrics` of \
         `--metrics-listen`, Prometheus text format; those that begin with `kvasir_agent_` at `/metrics` of \
         [`kvasir agent`](guides/agent.md).\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in all() {
        let labels = family.labels.join(", ");
        page.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            family.name,
            family.kind.as_str(),
            labels,
            family.help
        ));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            there,
            reference_page(),
            "docs/metrics.md is stale: cargo run -p kvasir-telemetry --example metrics_page > docs/metrics.md"
        );
    }

    #[test]
    fn names_are_unique_and_follow_the_rules() {
        let mut names: Vec<_> = all().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
        for family in all() {
            assert_eq!(family.kind == Kind::Counter, family.name.ends_with("_total"), "{}", family.name);
            assert_eq!(family.kind == Kind::Histogram, !family.buckets.is_empty(), "{}", family.name);
        }
    }
}
