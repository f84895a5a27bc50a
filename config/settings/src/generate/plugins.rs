//! The table of plugins and their arguments.

use std::fmt::Write;

use crate::duration::format_duration;
use crate::plugin_names::{self, FILTERS, SCORERS};
use crate::resolved::PluginArgs;

const INTRODUCTION: &str = "
### Plugins and their arguments

Arguments follow YAML 1.1: `yes` and `on` are true, `010` is 8. An argument that does not fit does what the last
column says.

| plugin | kind | argument | default | means | a value that does not fit |
|---|---|---|---|---|---|
";

/// One argument: name, default, meaning, what a bad value does.
type Row = (&'static str, String, &'static str, &'static str);

/// The section, defaults taken from the types.
pub(super) fn section() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut names: Vec<&str> = FILTERS.to_vec();
    names.extend(SCORERS.iter().filter(|name| !FILTERS.contains(name)));
    for name in names {
        let kind = match (FILTERS.contains(&name), SCORERS.contains(&name)) {
            (true, true) => "filter, scorer",
            (true, false) => "filter",
            (false, _) => "scorer",
        };
        let rows = rows(name);
        if rows.is_empty() {
            let _ = writeln!(text, "| `{name}` | {kind} | none | | {} | |", meaning(name));
        }
        for (argument, default, means, otherwise) in rows {
            let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
            let _ =
                writeln!(text, "| `{name}` | {kind} | `{argument}` | {default} | {means} | {otherwise} |");
        }
    }
    text
}

/// What a plugin without arguments does.
fn meaning(name: &str) -> &'static str {
    match name {
        "lora-affinity" => "keeps the endpoints that serve the requested model or adapter",
        "lora-residency" => "prefers a loaded adapter, avoids one that is being loaded",
        "gpu-usage" => "prefers a low KV-cache use",
        "random" => "chance; only as the sole scorer",
        _ => "",
    }
}

fn rows(name: &str) -> Vec<Row> {
    let args = PluginArgs::default();
    match name {
        "least-request" => vec![(
            "maxWaitingRequests",
            args.least_request.max_waiting_requests.to_string(),
            "an endpoint with this many waiting requests is dropped; 0 is the default",
            "the default, with a warning; so does a negative number",
        )],
        "least-latency" => vec![(
            "TTFTTPOTWeightFactor",
            args.least_latency.ttft_tpot_weight_factor.to_string(),
            "share of the time to the first token, 0 to 1; the rest is the time for each further token",
            "refused, even where the plugin is not enabled",
        )],
        "prefix-cache" => prefix_cache(&args),
        "kvcache-aware" => kvcache_aware(&args),
        plugin_names::KVASIR_COST => vec![(
            "affinity",
            format!("{:?}", args.kvasir_cost.affinity),
            "what prefill work that is saved weighs against waiting, more where all queue; 0 (load alone) to 4; see \
             [scheduling](guides/scheduling.md)",
            "refused",
        )],
        plugin_names::SESSION_AFFINITY => session_affinity(&args),
        _ => Vec::new(),
    }
}

fn prefix_cache(args: &PluginArgs) -> Vec<Row> {
    const OTHERWISE: &str = "all four defaults, with a warning";
    let args = &args.prefix_cache;
    vec![
        (
            "blockSizeToHash",
            args.block_size_to_hash.to_string(),
            "bytes in a block; 0 or less is the default",
            OTHERWISE,
        ),
        (
            "maxBlocksToMatch",
            args.max_blocks_to_match.to_string(),
            "blocks looked at; 0 or less is the default",
            OTHERWISE,
        ),
        (
            "maxHashCacheSize",
            args.max_hash_cache_size.to_string(),
            "hashes remembered for each endpoint; 0 or less is the default",
            OTHERWISE,
        ),
        (
            "topKMatches",
            args.top_k_matches.to_string(),
            "endpoints that may get a match; 0 or less is the default",
            OTHERWISE,
        ),
    ]
}

fn session_affinity(args: &PluginArgs) -> Vec<Row> {
    const REFUSED: &str = "refused";
    let args = &args.session_affinity;
    vec![
        ("headerName", args.header_name.clone(), "the header that names the conversation", REFUSED),
        (
            "bodyFields",
            String::new(),
            "list of dotted paths into the JSON body that name it where the header is absent, such as `user`, \
             `prompt_cache_key`, `metadata.session_id`; the first one that has a value counts",
            REFUSED,
        ),
        ("ttl", format_duration(args.ttl), "how long a silent conversation stays bound, 1s to 168h", REFUSED),
        (
            "maxSessions",
            args.max_sessions.to_string(),
            "conversations remembered, 1 to 10000000; the ones silent for longest leave first",
            REFUSED,
        ),
        (
            "maxInFlightRatio",
            format!("{:?}", args.max_in_flight_ratio),
            "with more than 8 requests and more than this many times the other candidates' mean, the bound endpoint is overloaded, and there \
             is no opinion; 1 to 1000",
            REFUSED,
        ),
        (
            "maxWaitingRequests",
            args.max_waiting_requests.to_string(),
            "so it is with this many requests waiting in its engine",
            REFUSED,
        ),
    ]
}

fn kvcache_aware(args: &PluginArgs) -> Vec<Row> {
    const OTHERWISE: &str = "its own default, with a warning";
    const REFUSED: &str = "refused";
    let args = &args.kvcache_aware;
    let service = &args.tokenizer_service;
    vec![
        (
            "blockSizeToHash",
            args.block_size_to_hash.to_string(),
            "tokens in a block of kthena's Redis keys; what engines report is always used for their own blocks",
            OTHERWISE,
        ),
        (
            "maxBlocksToMatch",
            String::new(),
            "blocks looked at; without it, the whole prompt in the mirror and 128 blocks in Redis",
            OTHERWISE,
        ),
        (
            "vllmTokenizerPort",
            String::new(),
            "port of vLLM's `/tokenize`; without it, the endpoint's own",
            OTHERWISE,
        ),
        (
            "sglangTokenizerPort",
            String::new(),
            "port of SGLang's `/tokenize`; without it, the endpoint's own",
            OTHERWISE,
        ),
        (
            "tokenizerService.enabled",
            service.enabled.to_string(),
            "ask a tokenizer service first; needs an endpoint",
            OTHERWISE,
        ),
        ("tokenizerService.endpoint", String::new(), "`http://HOST:PORT` of the service", OTHERWISE),
        (
            "tokenizerService.fallbackToEngine",
            service.fallback_to_engine.to_string(),
            "ask an engine when the service has no answer",
            OTHERWISE,
        ),
        (
            "tokenization.order",
            String::new(),
            "list of `local`, `service`, `engine`: who is asked for tokens, first to last; without it, the engine, \
             or the service first where it is enabled, and local tokenizers last",
            REFUSED,
        ),
        (
            "tokenization.deadline",
            String::new(),
            "longest wait for token ids from engines and services together, 1ms to 10s; without it 50ms, or a tenth of \
             the estimated prefill time where that is more (at most 250ms)",
            REFUSED,
        ),
        (
            "tokenization.local",
            String::new(),
            "mapping of model names to directories with `tokenizer.json`",
            REFUSED,
        ),
        (
            "coordination",
            String::new(),
            "`mirror`: blocks are looked up in memory, in an index that follows engines and Redis; `query`: in kthena's \
             layout in Redis, for each request, which needs a named Redis; without it, each engine by itself: in memory \
             where its cache is known (published by an agent, or its events followed), else in kthena's layout where \
             there is one",
            REFUSED,
        ),
        (
            "queryBudget",
            format_duration(args.query_budget),
            "longest wait for Redis in one request, 1ms to 1s; then the request is placed without",
            REFUSED,
        ),
    ]
}
