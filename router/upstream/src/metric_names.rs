//! Which series of an engine's page means what.

use kvasir_core::EngineKind;

/// One number that is gathered from a page. The order is the order of the accumulators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Running,
    Waiting,
    KvUsage,
    /// `vllm:gpu_cache_usage_perc`, before vLLM 0.10; a fraction in spite of its name.
    KvUsageOld,
    TtftSum,
    TtftCount,
    TpotSum,
    TpotCount,
    /// `vllm:time_per_output_token_seconds`, before vLLM 0.11.
    TpotOldSum,
    TpotOldCount,
    /// The number is in the labels.
    CacheConfig,
    /// One series for each sleep state, 1 on the state that holds.
    SleepState,
    /// One series for each state of the LoRA adapters so far, with the time it was last seen.
    Adapters,
    /// Capacity in tokens.
    TotalTokens,
    PageSize,
    Pages,
}

impl Field {
    /// How many there are.
    pub(crate) const COUNT: usize = Self::Pages as usize + 1;
}

/// The prefix of every series that `engine` calls its own.
pub(crate) fn prefix(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Vllm => "vllm:",
        EngineKind::Sglang => "sglang:",
    }
}

/// What the series `name` (without its prefix) means; `None` for the many we do not read, `_created` among them.
pub(crate) fn field(engine: EngineKind, name: &str) -> Option<Field> {
    match engine {
        EngineKind::Vllm => vllm_field(name),
        EngineKind::Sglang => sglang_field(name),
    }
}

fn vllm_field(name: &str) -> Option<Field> {
    Some(match name {
        "num_requests_running" => Field::Running,
        "num_requests_waiting" => Field::Waiting,
        "kv_cache_usage_perc" => Field::KvUsage,
        "gpu_cache_usage_perc" => Field::KvUsageOld,
        "time_to_first_token_seconds_sum" => Field::TtftSum,
        "time_to_first_token_seconds_count" => Field::TtftCount,
        "inter_token_latency_seconds_sum" => Field::TpotSum,
        "inter_token_latency_seconds_count" => Field::TpotCount,
        "time_per_output_token_seconds_sum" => Field::TpotOldSum,
        "time_per_output_token_seconds_count" => Field::TpotOldCount,
        "cache_config_info" => Field::CacheConfig,
        "engine_sleep_state" => Field::SleepState,
        // SGLang counts slots (`lora_pool_slots_used`) without saying which adapters are in them.
        "lora_requests_info" => Field::Adapters,
        _ => return None,
    })
}

fn sglang_field(name: &str) -> Option<Field> {
    Some(match name {
        "num_running_reqs" => Field::Running,
        "num_queue_reqs" => Field::Waiting,
        "token_usage" => Field::KvUsage,
        "time_to_first_token_seconds_sum" => Field::TtftSum,
        "time_to_first_token_seconds_count" => Field::TtftCount,
        "inter_token_latency_seconds_sum" => Field::TpotSum,
        "inter_token_latency_seconds_count" => Field::TpotCount,
        // Labels page_size and num_pages up to SGLang 0.5.10, gauges of their own after it.
        "cache_config_info" => Field::CacheConfig,
        "page_size" => Field::PageSize,
        "num_pages" => Field::Pages,
        "max_total_num_tokens" => Field::TotalTokens,
        _ => return None,
    })
}

/// The label that carries the data-parallel rank.
pub(crate) fn rank_label(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Vllm => "engine",
        EngineKind::Sglang => "dp_rank",
    }
}

/// The labels of a cache-config series: tokens in a block, blocks.
pub(crate) fn capacity_labels(engine: EngineKind) -> (&'static str, &'static str) {
    match engine {
        EngineKind::Vllm => ("block_size", "num_gpu_blocks"),
        EngineKind::Sglang => ("page_size", "num_pages"),
    }
}
