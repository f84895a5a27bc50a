//! The `/metrics` page, in vLLM's names or SGLang's.

use std::fmt::Write;

use kvasir_core::EngineKind;

use super::{Counter, Histogram};
use crate::core::Core;

/// The whole page.
pub(crate) fn render(core: &Core) -> String {
    let labels = match core.config.kind {
        EngineKind::Vllm => format!("engine=\"0\",model_name=\"{}\"", escape(&core.config.model)),
        EngineKind::Sglang => format!("model_name=\"{}\"", escape(&core.config.model)),
    };
    let mut page = Page { text: String::with_capacity(16 << 10), labels, started: core.started };
    match core.config.kind {
        EngineKind::Vllm => vllm(core, &mut page),
        EngineKind::Sglang => sglang(core, &mut page),
    }
    page.text
}

struct Page {
    text: String,
    labels: String,
    started: u64,
}

fn vllm(core: &Core, page: &mut Page) {
    let (running, waiting, usage) = {
        let state = core.state.lock();
        (state.ledger.running(), state.ledger.waiting(), state.cache.usage())
    };
    let metrics = &core.metrics;
    page.gauge("vllm:num_requests_running", "Requests in execution batches.", "", running as f64);
    page.gauge("vllm:num_requests_waiting", "Requests waiting to be processed.", "", waiting as f64);
    page.header("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.");
    page.sample("vllm:num_requests_waiting_by_reason", "reason=\"capacity\"", waiting as f64);
    page.sample("vllm:num_requests_waiting_by_reason", "reason=\"deferred\"", 0.0);
    page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage, 1 is full.", "", usage);
    let asleep = core.is_asleep();
    page.header("vllm:engine_sleep_state", "gauge", "Sleep state.");
    for (state, holds) in [("awake", !asleep), ("weights_offloaded", asleep), ("discard_all", false)] {
        page.sample(
            "vllm:engine_sleep_state",
            &format!("sleep_state=\"{state}\""),
            f64::from(u8::from(holds)),
        );
    }
    let cache = format!(
        "block_size=\"{}\",enable_prefix_caching=\"True\",num_gpu_blocks=\"{}\",prefix_caching_hash_algo=\"sha256\"",
        core.config.block_size, core.config.kv_blocks
    );
    page.gauge("vllm:cache_config_info", "Information of the cache configuration.", &cache, 1.0);
    core.adapters.render(&mut page.text);
    page.counter("vllm:prefix_cache_queries", "Queried tokens.", &metrics.prefix_cache_queries);
    page.counter("vllm:prefix_cache_hits", "Cached tokens.", &metrics.prefix_cache_hits);
    let never = Counter::default();
    page.counter("vllm:external_prefix_cache_queries", "Queried tokens, other instances.", &never);
    page.counter("vllm:external_prefix_cache_hits", "Cached tokens, other instances.", &never);
    page.counter("vllm:num_preemptions", "Preemptions.", &never);
    page.counter("vllm:prompt_tokens", "Prefill tokens.", &metrics.prompt_tokens);
    page.counter("vllm:prompt_tokens_cached", "Cached prompt tokens.", &metrics.cached_prompt_tokens);
    page.counter("vllm:generation_tokens", "Generated tokens.", &metrics.generation_tokens);
    let cached = metrics.cached_prompt_tokens.value();
    page.family(
        "vllm:prompt_tokens_by_source",
        "Prompt tokens by source.",
        "source",
        [
            ("local_compute", metrics.prompt_tokens.value().saturating_sub(cached)),
            ("local_cache_hit", cached),
            ("external_kv_transfer", 0),
        ],
    );
    page.family("vllm:request_success", "Finished requests.", "finished_reason", metrics.finish_reasons());
    if core.config.max_queued.is_some() {
        page.header("vllm:admission_rejections_total", "counter", "Rejected requests.");
        let _ = writeln!(
            page.text,
            "vllm:admission_rejections_total{{model_name=\"{}\",reason=\"max_num_queued_reqs\"}} {}",
            escape(&core.config.model),
            metrics.rejected.value()
        );
    }
    for (name, help, histogram) in [
        ("vllm:time_to_first_token_seconds", "Time to first token.", &metrics.time_to_first_token),
        ("vllm:inter_token_latency_seconds", "Inter-token latency.", &metrics.inter_token_latency),
        ("vllm:e2e_request_latency_seconds", "End to end latency.", &metrics.end_to_end),
        ("vllm:request_queue_time_seconds", "Time in the waiting phase.", &metrics.queue_time),
        ("vllm:request_prefill_time_seconds", "Time in the prefill phase.", &metrics.prefill_time),
        ("vllm:request_prompt_tokens", "Prompt tokens of requests.", &metrics.request_prompt_tokens),
        ("vllm:request_generation_tokens", "Output tokens of requests.", &metrics.request_generation_tokens),
    ] {
        page.histogram(name, help, histogram);
    }
}

fn sglang(core: &Core, page: &mut Page) {
    let (running, waiting, usage, used) = {
        let state = core.state.lock();
        (state.ledger.running(), state.ledger.waiting(), state.cache.usage(), state.cache.used_blocks())
    };
    let metrics = &core.metrics;
    let queries = metrics.prefix_cache_queries.value();
    let hit_rate = if queries == 0 { 0.0 } else { metrics.prefix_cache_hits.value() as f64 / queries as f64 };
    let size = core.config.block_size;
    page.gauge("sglang:num_running_reqs", "Running requests.", "", running as f64);
    page.gauge("sglang:num_queue_reqs", "Waiting requests.", "", waiting as f64);
    page.gauge("sglang:token_usage", "Token usage.", "", usage);
    page.gauge("sglang:cache_hit_rate", "Prefix cache hit rate.", "", hit_rate);
    page.gauge("sglang:num_used_tokens", "Used tokens.", "", (used * size) as f64);
    page.gauge(
        "sglang:max_total_num_tokens",
        "Tokens in the pool.",
        "",
        ((core.config.kv_blocks - 1) * size) as f64,
    );
    page.counter("sglang:prompt_tokens", "Prefill tokens.", &metrics.prompt_tokens);
    page.family(
        "sglang:cached_tokens",
        "Cached prompt tokens.",
        "cache_source",
        [("device", metrics.cached_prompt_tokens.value())],
    );
    page.counter("sglang:generation_tokens", "Generated tokens.", &metrics.generation_tokens);
    page.header("sglang:num_requests_total", "counter", "Requests processed.");
    page.sample("sglang:num_requests_total", "", metrics.finished_requests() as f64);
    for (name, help, histogram) in [
        ("sglang:time_to_first_token_seconds", "Time to first token.", &metrics.time_to_first_token),
        ("sglang:inter_token_latency_seconds", "Inter-token latency.", &metrics.inter_token_latency),
        ("sglang:queue_time_seconds", "Queueing time.", &metrics.queue_time),
        ("sglang:e2e_request_latency_seconds", "End to end latency.", &metrics.end_to_end),
    ] {
        page.histogram(name, help, histogram);
    }
}

impl Page {
    fn header(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, extra: &str, value: f64) {
        let comma = if extra.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "{name}{{{}{comma}{extra}}} {value:?}", self.labels);
    }

    fn gauge(&mut self, name: &str, help: &str, extra: &str, value: f64) {
        self.header(name, "gauge", help);
        self.sample(name, extra, value);
    }

    fn counter(&mut self, base: &str, help: &str, counter: &Counter) {
        self.header(&format!("{base}_total"), "counter", help);
        self.sample(&format!("{base}_total"), "", counter.value() as f64);
        self.created(base, "");
    }

    /// A counter with one more label.
    fn family<'n>(
        &mut self,
        base: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'n str, u64)>,
    ) {
        self.header(&format!("{base}_total"), "counter", help);
        for (name, value) in values {
            self.sample(&format!("{base}_total"), &format!("{label}=\"{name}\""), value as f64);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.header(name, "histogram", help);
        let (buckets, count, sum) = histogram.snapshot();
        for (bound, below) in buckets {
            self.sample(&format!("{name}_bucket"), &format!("le=\"{bound:?}\""), below as f64);
        }
        self.sample(&format!("{name}_bucket"), "le=\"+Inf\"", count as f64);
        self.sample(&format!("{name}_count"), "", count as f64);
        self.sample(&format!("{name}_sum"), "", sum);
        self.created(name, "");
    }

    /// Python's client library writes the creation time of every counter and histogram.
    fn created(&mut self, base: &str, extra: &str) {
        let started = self.started as f64;
        self.gauge(&format!("{base}_created"), "Creation time.", extra, started);
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
