//! The arguments of each plugin: defaults, and what a bad value does. Both differ from plugin to plugin in kthena.

use indexmap::IndexMap;

use super::{kvcache_args, scoring_args};
use crate::compat::{ArgFields, ArgMap, read_args};
use crate::plugin_names::{FILTERS, KVASIR_COST, SCORERS, SESSION_AFFINITY};
use crate::problems::{Findings, Place};
use crate::raw::router_document::PluginConfig;
use crate::resolved::{LeastLatencyArgs, LeastRequestArgs, PluginArgs, PrefixCacheArgs};

/// Reads the arguments of every plugin that has some.
pub(super) fn read(configs: &IndexMap<&str, &PluginConfig<'_>>, findings: &mut Findings) -> PluginArgs {
    let mut args = PluginArgs::default();
    for (name, config) in configs {
        let Some((value, place)) = &config.args else { continue };
        let text_fields: &[&str] =
            if *name == "kvcache-aware" { &["tokenizerservice.endpoint"] } else { &[] };
        let map = read_args(*value, text_fields).map_err(|reason| (place.clone(), reason));
        match *name {
            "least-request" => args.least_request = least_request(map, place, findings),
            "least-latency" => args.least_latency = least_latency(map, place, findings),
            "prefix-cache" => args.prefix_cache = prefix_cache(map, place, findings),
            "kvcache-aware" => args.kvcache_aware = kvcache_args::read(map, place, findings),
            KVASIR_COST => args.kvasir_cost = scoring_args::kvasir_cost(map, place, findings),
            SESSION_AFFINITY => args.session_affinity = scoring_args::session_affinity(map, place, findings),
            name if FILTERS.contains(&name) || SCORERS.contains(&name) => {
                if let Ok(map) = &map {
                    ArgFields::of(map, place).finish(findings);
                }
            }
            _ => {}
        }
    }
    args
}

/// The mapping, or where and why there is none.
pub(super) type ReadMap = Result<ArgMap, (Place, String)>;

/// Runs `read` over the fields and returns its value with everything that did not fit, the whole mapping included.
pub(super) fn with_fields<T: Default>(
    map: ReadMap,
    place: &Place,
    findings: &mut Findings,
    read: impl FnOnce(&mut ArgFields<'_>) -> T,
) -> (T, Vec<(Place, String)>) {
    match map {
        Ok(map) => {
            let mut fields = ArgFields::of(&map, place);
            let value = read(&mut fields);
            (value, fields.finish(findings))
        }
        Err(error) => (T::default(), vec![error]),
    }
}

/// Any error: 10. A negative limit would drop every endpoint, so it counts as an error here.
fn least_request(map: ReadMap, place: &Place, findings: &mut Findings) -> LeastRequestArgs {
    let default = LeastRequestArgs::default();
    let (limit, errors) = with_fields(map, place, findings, |fields| fields.integer("maxWaitingRequests"));
    let known = default.max_waiting_requests;
    for (place, error) in &errors {
        findings.warn(place, format!("{error}; least-request uses maxWaitingRequests {known}"));
    }
    match limit {
        _ if !errors.is_empty() => default,
        Some(limit) if limit < 0 => {
            findings.warn(
                place,
                format!("maxWaitingRequests {limit} would drop every endpoint; {known} is used instead"),
            );
            default
        }
        Some(limit) if limit > 0 => LeastRequestArgs { max_waiting_requests: limit },
        _ => default,
    }
}

/// Any error is fatal, enabled or not.
fn least_latency(map: ReadMap, place: &Place, findings: &mut Findings) -> LeastLatencyArgs {
    const FIX: &str = "write a number from 0 (only TPOT) to 1 (only TTFT)";
    let (factor, errors) = with_fields(map, place, findings, |fields| fields.float("TTFTTPOTWeightFactor"));
    for (place, error) in errors {
        findings.error(&place, error, FIX);
    }
    match factor {
        Some(factor) if !factor.is_finite() || !(0.0..=1.0).contains(&factor) => {
            findings.error(place, format!("TTFTTPOTWeightFactor is {factor}"), FIX);
            LeastLatencyArgs::default()
        }
        Some(factor) => LeastLatencyArgs { ttft_tpot_weight_factor: factor },
        None => LeastLatencyArgs::default(),
    }
}

/// Any error resets all four; a value of 0 or less resets its own.
fn prefix_cache(map: ReadMap, place: &Place, findings: &mut Findings) -> PrefixCacheArgs {
    let default = PrefixCacheArgs::default();
    let (args, errors) = with_fields(map, place, findings, |fields| {
        let mut positive = |name, known: usize| match fields.integer(name) {
            Some(value) if value > 0 => usize::try_from(value).unwrap_or(known),
            _ => known,
        };
        PrefixCacheArgs {
            block_size_to_hash: positive("blockSizeToHash", default.block_size_to_hash),
            max_blocks_to_match: positive("maxBlocksToMatch", default.max_blocks_to_match),
            max_hash_cache_size: positive("maxHashCacheSize", default.max_hash_cache_size),
            top_k_matches: positive("topKMatches", default.top_k_matches),
        }
    });
    for (place, error) in &errors {
        findings.warn(place, format!("{error}; prefix-cache uses its defaults for all arguments"));
    }
    if errors.is_empty() { args } else { default }
}
