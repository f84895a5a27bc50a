//! What each value of a router document comes to.

use std::path::PathBuf;
use std::time::Duration;

use kvasir_core::TokenSource;

use super::read;
use crate::coordination::CoordinationMode;
use crate::problems::Findings;
use crate::resolved::{
    KvCacheAwareArgs, LeastRequestArgs, PluginArgs, PrefixCacheArgs, SchedulerSettings, TokenizerServiceArgs,
};

/// Settings and warnings of a document without problems.
fn accepted(text: &str) -> (SchedulerSettings, Vec<String>) {
    let mut findings = Findings::default();
    let settings = read(text, "r.yaml", &mut findings);
    assert_eq!(findings.problems(), Vec::<String>::new(), "{text}");
    (settings, findings.warnings().to_vec())
}

fn refused(text: &str) -> Vec<String> {
    let mut findings = Findings::default();
    read(text, "r.yaml", &mut findings);
    findings.problems()
}

fn scorers(entries: &str) -> (Vec<(String, f64)>, Vec<String>) {
    let (settings, warnings) =
        accepted(&format!("scheduler: {{plugins: {{Score: {{enabled: [{entries}]}}}}}}"));
    (settings.scorers, warnings)
}

/// The arguments of one enabled plugin, with the warnings.
fn args(plugin: &str, args: &str) -> (PluginArgs, Vec<String>) {
    let (settings, warnings) = accepted(&document_with(plugin, args));
    (settings.args, warnings)
}

fn document_with(plugin: &str, args: &str) -> String {
    format!(
        "scheduler: {{pluginConfig: [{{name: {plugin}, args: {args}}}], \
         plugins: {{Score: {{enabled: [{{name: {plugin}, weight: 1}}]}}}}}}"
    )
}

fn named(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
    pairs.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect()
}

#[test]
fn an_empty_document_has_no_plugins_and_says_so() {
    for text in ["", "null", "scheduler:", "auth: {}"] {
        let (settings, warnings) = accepted(text);
        assert!(settings.filters.is_empty() && settings.scorers.is_empty(), "{text}");
        assert_eq!(settings.top_n, 5);
        assert!(warnings.iter().any(|warning| warning.contains("no scorer is configured")), "{warnings:?}");
    }
}

#[test]
fn weights_decide_and_the_last_of_two_counts() {
    let (read, warnings) = scorers("{name: gpu-usage, weight: 2}, {name: least-request, weight: 1.9}");
    assert_eq!(read, named(&[("gpu-usage", 2.0), ("least-request", 1.0)]));
    assert_eq!(warnings, Vec::<String>::new());
    let (read, warnings) = scorers("{name: gpu-usage, weight: 2}, {name: gpu-usage, weight: 3}");
    assert_eq!(read, named(&[("gpu-usage", 3.0)]));
    assert!(warnings[0].contains("listed twice"));
}

#[test]
fn a_missing_or_negative_weight_is_zero_and_loud() {
    for (entry, part) in [
        ("{name: gpu-usage}", "has no weight, so it counts 0"),
        ("{name: gpu-usage, weight: ~}", "has no weight, so it counts 0"),
        ("{name: gpu-usage, weight: -3}", "the weight -3 is negative; 0 is used"),
    ] {
        let (read, warnings) = scorers(entry);
        assert_eq!(read, named(&[("gpu-usage", 0.0)]), "{entry}");
        assert!(warnings[0].contains(part), "{warnings:?}");
        assert!(warnings[1].contains("every scorer has the weight 0"), "{warnings:?}");
    }
}

#[test]
fn random_stands_alone() {
    let one = |name: &str| format!("{{name: {name}, weight: 1}}");
    assert_eq!(scorers(&one("random")).0, named(&[("random", 1.0)]));
    let (read, warnings) = scorers(&format!("{}, {}", one("random"), one("gpu-usage")));
    assert_eq!(read, named(&[("gpu-usage", 1.0)]));
    assert!(warnings[0].contains("sole scorer"), "{warnings:?}");
    let (read, warnings) = scorers(&format!("{}, {}", one("random"), one("no-such-plugin-at-all")));
    assert_eq!(read, Vec::new(), "names are counted before they are looked up");
    assert!(warnings.iter().any(|warning| warning.contains("no scorer is configured")), "{warnings:?}");
}

#[test]
fn unknown_plugins_are_skipped_with_a_suggestion() {
    let (read, warnings) = scorers("{name: kv-cache-aware, weight: 1}, {name: gpu-usage, weight: 1}");
    assert_eq!(read, named(&[("gpu-usage", 1.0)]));
    assert!(warnings[0].contains("did you mean \"kvcache-aware\"?"), "{warnings:?}");
    let (settings, warnings) = accepted(
        "scheduler: {plugins: {Filter: {enabled: [leastrequest, lora-affinity, lora-affinity, '']}}}",
    );
    assert_eq!(settings.filters, ["lora-affinity", "lora-affinity"]);
    assert!(warnings[0].contains("did you mean \"least-request\"?"), "{warnings:?}");
    assert!(warnings[1].contains("known: least-request, lora-affinity"), "{warnings:?}");
}

#[test]
fn what_has_no_effect_is_said() {
    for (text, part) in [
        (
            "scheduler: {plugins: {Filter: {enabled: [least-request], disabled: [least-request]}}}",
            "stays enabled",
        ),
        (
            "scheduler: {plugins: {Score: {enabled: [{name: random, weight: 1}], disabled: [{name: random}]}}}",
            "stays enabled",
        ),
        ("scheduler: {pluginConfig: [{name: gpu-usage}]}", "\"gpu-usage\" is not enabled"),
        ("scheduler: {pluginConfig: [{name: prefixcache}]}", "did you mean \"prefix-cache\"?"),
        ("scheduler: {pluginConfig: [{name: a}, {name: a}]}", "given twice"),
        ("auth: {issuer: a}", "authentication is off"),
        ("auth: {audiences: [a], jwksUri: ''}", "authentication is off"),
    ] {
        let (_, warnings) = accepted(text);
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{text}: {warnings:?}");
    }
    let (_, warnings) = accepted(
        "scheduler: {plugins: {Filter: {disabled: [lora-affinity]}, \
         Score: {enabled: [{name: random, weight: 1}]}}}",
    );
    assert_eq!(warnings, Vec::<String>::new(), "a disabled plugin that is not enabled is off, as asked");
}

#[test]
fn authentication_that_would_not_happen_is_refused() {
    let problems = refused("auth:\n  issuer: a\n  jwksUri: https://a/jwks\n");
    assert!(problems[0].starts_with("r.yaml:3:12: auth.jwksUri: JWT authentication"), "{problems:?}");
}

#[test]
fn text_that_is_no_yaml_is_refused_in_kthenas_words() {
    let problems = refused("scheduler: [\n");
    assert!(problems[0].contains("failed to parse router config"), "{problems:?}");
}

#[test]
fn least_request_falls_back_to_ten() {
    for (text, limit, warned) in [
        ("{maxWaitingRequests: 100}", 100, false),
        ("{MAXWAITINGREQUESTS: 7.0}", 7, false),
        ("{maxWaitingRequests: 0}", 10, false),
        ("{maxWaitingRequests: ~}", 10, false),
        ("~", 10, false),
        ("{maxWaitingRequests: -1}", 10, true),
        ("{maxWaitingRequests: ten}", 10, true),
        ("{maxWaitingRequests: 1.5}", 10, true),
        ("{maxWaitingRequests: 5, x: .nan}", 10, true),
        ("[5]", 10, true),
        ("{maxWaiting: 5}", 10, true),
    ] {
        let (args, warnings) = args("least-request", text);
        assert_eq!(args.least_request, LeastRequestArgs { max_waiting_requests: limit }, "{text}");
        assert_eq!(!warnings.is_empty(), warned, "{text}: {warnings:?}");
    }
}

#[test]
fn least_latency_takes_a_share_or_refuses_to_start() {
    for (text, factor) in
        [("{TTFTTPOTWeightFactor: 0.25}", 0.25), ("{ttfttpotweightfactor: 1}", 1.0), ("~", 0.5), ("{}", 0.5)]
    {
        let (args, warnings) = args("least-latency", text);
        assert_eq!(args.least_latency.ttft_tpot_weight_factor, factor, "{text}");
        assert_eq!(warnings, Vec::<String>::new());
    }
    for text in [
        "{TTFTTPOTWeightFactor: 1.5}",
        "{TTFTTPOTWeightFactor: -0.1}",
        "{TTFTTPOTWeightFactor: .nan}",
        "{TTFTTPOTWeightFactor: '0.5'}",
        "[0.5]",
    ] {
        assert_eq!(refused(&document_with("least-latency", text)).len(), 1, "{text}");
        let disabled = format!("scheduler: {{pluginConfig: [{{name: least-latency, args: {text}}}]}}");
        assert_eq!(refused(&disabled).len(), 1, "fatal although not enabled: {text}");
    }
    let twice = "scheduler: {pluginConfig: [{name: least-latency, args: {TTFTTPOTWeightFactor: 7}}, \
                 {name: least-latency, args: {}}]}";
    accepted(twice);
}

#[test]
fn prefix_cache_resets_everything_on_an_error() {
    let whole = PrefixCacheArgs {
        block_size_to_hash: 1,
        max_blocks_to_match: 2,
        max_hash_cache_size: 3,
        top_k_matches: 4,
    };
    let text = "{blockSizeToHash: 1, maxBlocksToMatch: 2, maxHashCacheSize: 3, topKMatches: 4}";
    assert_eq!(args("prefix-cache", text).0.prefix_cache, whole);
    let (read, warnings) = args("prefix-cache", "{blockSizeToHash: 1, topKMatches: x}");
    assert_eq!(read.prefix_cache, PrefixCacheArgs::default());
    assert!(warnings[0].contains("uses its defaults for all arguments"), "{warnings:?}");
    let (read, warnings) = args("prefix-cache", "{blockSizeToHash: -1, maxBlocksToMatch: 0, topKMatches: 4}");
    assert_eq!(read.prefix_cache, PrefixCacheArgs { top_k_matches: 4, ..PrefixCacheArgs::default() });
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn kvcache_aware_keeps_what_it_understands() {
    let (read, warnings) = args(
        "kvcache-aware",
        "{blockSizeToHash: 32, maxBlocksToMatch: many, vllmTokenizerPort: 8123, sglangTokenizerPort: 70000}",
    );
    let expected = KvCacheAwareArgs {
        block_size_to_hash: 32,
        vllm_tokenizer_port: Some(8123),
        ..KvCacheAwareArgs::default()
    };
    assert_eq!(read.kvcache_aware, expected);
    assert!(warnings[0].contains("many"), "{warnings:?}");
    assert!(warnings[1].contains("70000 is no port"), "{warnings:?}");
    for text in ["{blockSizeToHash: 0, maxBlocksToMatch: 0, vllmTokenizerPort: 0}", "~"] {
        let (read, warnings) = args("kvcache-aware", text);
        assert_eq!((read.kvcache_aware, warnings), (KvCacheAwareArgs::default(), vec![]), "{text}");
    }
    let (read, warnings) = args("kvcache-aware", "{blockSizeToHash: -4, maxBlocksToMatch: -1}");
    assert_eq!(read.kvcache_aware, KvCacheAwareArgs::default());
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}

#[test]
fn a_tokenizer_service_needs_an_endpoint() {
    let text = "{tokenizerService: {enabled: true, endpoint: 'http://127.0.0.1:8100', fallbackToEngine: no}}";
    let service = args("kvcache-aware", text).0.kvcache_aware.tokenizer_service;
    let expected = TokenizerServiceArgs {
        enabled: true,
        endpoint: "http://127.0.0.1:8100".to_owned(),
        fallback_to_engine: false,
    };
    assert_eq!(service, expected);
    let (read, warnings) = args("kvcache-aware", "{tokenizerService: {enabled: true}}");
    assert_eq!(read.kvcache_aware.tokenizer_service, TokenizerServiceArgs::default());
    assert!(warnings[0].contains("has no endpoint"), "{warnings:?}");
    let text = document_with("kvcache-aware", "{tokenizerService: {enabled: true, endpoint: 'ftp://a'}}");
    assert!(refused(&text)[0].contains("unknown scheme"));
}

#[test]
fn our_own_arguments_are_read_or_refused() {
    let text = "{tokenization: {order: [local, engine], deadline: 80ms, local: {qwen: /models/qwen}}, coordination: mirror}";
    let read = args("kvcache-aware", text).0.kvcache_aware;
    assert_eq!(read.deadline, Some(Duration::from_millis(80)));
    assert_eq!(read.order, [TokenSource::Local, TokenSource::Engine]);
    assert_eq!(read.local.get("qwen"), Some(&PathBuf::from("/models/qwen")));
    for (text, part) in [
        ("{tokenization: {order: [engin]}}", "did you mean \"engine\"?"),
        ("{tokenization: {order: [engine, engine]}}", "named twice"),
        ("{tokenization: {local: {qwen: [a]}}}", "is no text"),
        ("{tokenization: {deadline: 80}}", "has no unit"),
        ("{tokenization: {deadline: 11s}}", "11s is out of range; write a duration from 1ms to 10s"),
        ("{coordination: gossip}", "there is no coordination \"gossip\"; write mirror or query"),
        ("{coordination: [query]}", "is no text"),
        ("{queryBudget: 5}", "has no unit"),
        ("{queryBudget: 2s}", "2s is out of range; write a duration from 1ms to 1s, such as 5ms"),
        ("{queryBudget: 0}", "0 is out of range"),
    ] {
        let problems = refused(&document_with("kvcache-aware", text));
        assert!(problems.iter().any(|problem| problem.contains(part)), "{text}: {problems:?}");
    }
}

#[test]
fn a_lookup_in_redis_has_a_mode_and_a_budget() {
    for (text, mode, budget) in [
        ("{}", None, 5),
        ("{coordination: mirror}", Some(CoordinationMode::Mirror), 5),
        ("{COORDINATION: query, queryBudget: 20ms}", Some(CoordinationMode::Query), 20),
        ("{coordination: ~, querybudget: 1s}", None, 1000),
    ] {
        let (read, warnings) = args("kvcache-aware", text);
        let read = read.kvcache_aware;
        assert_eq!((read.coordination, read.query_budget), (mode, Duration::from_millis(budget)), "{text}");
        assert_eq!(warnings, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn unknown_arguments_are_said_with_a_suggestion() {
    for (plugin, text, part) in [
        ("kvcache-aware", "{blockSize: 16}", "args.blockSize: the argument is unknown"),
        ("kvcache-aware", "{blocksSizeToHash: 16}", "did you mean \"blockSizeToHash\"?"),
        ("kvcache-aware", "{tokenizerService: {endpont: a}}", "did you mean \"endpoint\"?"),
        ("gpu-usage", "{a: 1}", "the plugin has no arguments"),
    ] {
        let (_, warnings) = args(plugin, text);
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{text}: {warnings:?}");
    }
}
