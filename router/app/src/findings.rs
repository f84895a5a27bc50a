//! Start-up lines: what was found at each engine, how exact the knowledge of its cache is, and what would make it better.

use std::collections::BTreeSet;

use kvasir_core::{Completeness, ModelName};
use kvasir_gateway::Gateway;
use kvasir_kvcache::OwnerStats;
use kvasir_kvcache::follow::Link;
use kvasir_tokenize::LoadState;

use crate::knowledge::Learned;

/// The engine flag that turns events on, as a line to copy.
const VLLM_FLAG: &str = "--kv-events-config '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\
                         \"replay_endpoint\":\"tcp://*:5657\"}'";

/// Whether an owner's state will not change without new events.
pub fn settled(stats: &OwnerStats) -> bool {
    matches!(stats.follower.link, Link::None | Link::Following)
}

/// Endpoints that have lines of their own, when several are found at once. More are told of together: a cluster's
/// thousands would bury everything else.
const MOST_LINES: usize = 20;

/// Logs one line for each endpoint, or one for all of many.
pub fn print(gateway: &Gateway, learned: &[Learned]) {
    let stats = gateway.index.stats();
    if learned.iter().map(|found| found.ranks.len()).sum::<usize>() > MOST_LINES {
        return print_together(learned, &stats);
    }
    for found in learned {
        if let Some(problem) = found.discovery.as_ref().and_then(|discovery| discovery.problem.as_deref()) {
            tracing::warn!("{problem}");
        }
        for endpoint in &found.ranks {
            let owner = stats.iter().find(|owner| owner.slot == endpoint.slot);
            tracing::info!(
                endpoint = %endpoint.id,
                model = %endpoint.model,
                engine = %describe(found),
                "{}",
                sentence(found, owner)
            );
        }
    }
}

/// Logs the numbers of many endpoints, and the first problem of each kind of engine trouble is one of them.
fn print_together(learned: &[Learned], stats: &[OwnerStats]) {
    let owner = |slot| stats.iter().find(|owner| owner.slot == slot);
    let mut endpoints = 0_usize;
    let (mut exact, mut partial, mut approximate, mut silent) = (0_usize, 0_usize, 0_usize, 0_usize);
    for found in learned {
        endpoints += found.ranks.len();
        for endpoint in &found.ranks {
            match owner(endpoint.slot).map(|owner| owner.completeness) {
                Some(Completeness::Exact) => exact += 1,
                Some(Completeness::Partial) => partial += 1,
                _ if !answers(found) => silent += 1,
                _ => approximate += 1,
            }
        }
    }
    let mut problems = learned.iter().filter_map(|found| found.discovery.as_ref()?.problem.as_deref());
    if let Some(first) = problems.next() {
        tracing::warn!(others = problems.count(), "{first}");
    }
    tracing::info!(
        endpoints,
        exact,
        partial,
        approximate,
        silent,
        "caches of many endpoints; /debug/index of the admin listener tells of each"
    );
}

/// Logs one line for each source of the tokens of models that were not told of yet.
pub fn print_tokens(gateway: &Gateway, told: &mut BTreeSet<ModelName>) {
    let models = gateway.tokens.status();
    // A model that comes back is news.
    told.retain(|known| models.iter().any(|model| model.model == *known));
    for model in models.into_iter().filter(|model| told.insert(model.model.clone())) {
        for source in &model.sources {
            match &source.load {
                Some(LoadState::Ready { encoder, fallback: None }) => {
                    tracing::info!(model = %model.model, source = source.source.as_str(), encoder, "tokens: ready");
                }
                Some(LoadState::Ready { encoder, fallback: Some(reason) }) => {
                    tracing::info!(model = %model.model, source = source.source.as_str(), encoder, "tokens: ready, without the fast encoder: {reason}");
                }
                Some(LoadState::Failed { reason, .. }) => {
                    tracing::warn!(model = %model.model, source = source.source.as_str(), "tokens: not available: {reason}");
                }
                Some(LoadState::Loading) => {
                    tracing::info!(model = %model.model, source = source.source.as_str(), "tokens: still loading");
                }
                None => {
                    tracing::info!(model = %model.model, source = source.source.as_str(), "tokens: asked for when needed")
                }
            }
        }
    }
}

fn describe(found: &Learned) -> String {
    let version = found.discovery.as_ref().and_then(|discovery| discovery.engine_version.as_deref());
    version.map_or_else(|| "unknown".to_owned(), str::to_owned)
}

/// Whether the engine answers.
fn answers(found: &Learned) -> bool {
    found.discovery.as_ref().is_some_and(|discovery| !discovery.served_models.is_empty())
}

/// What is known of the cache, and what would make it better.
fn sentence(found: &Learned, owner: Option<&OwnerStats>) -> String {
    if let Some(owner) = owner.filter(|owner| owner.mirrored) {
        return format!(
            "cache: {}, {} blocks known ({})",
            owner.completeness.as_str(),
            owner.blocks,
            owner.source
        );
    }
    let Some(source) = found.sources.first() else {
        if !answers(found) {
            return "cache: not known (the engine does not answer yet; it is asked again until it does)"
                .to_owned();
        }
        return format!(
            "cache: approximate (the engine tells of no KV events; what is placed there is remembered). For exact \
             knowledge start the engine with {VLLM_FLAG}; engines that do not list their event sources (vLLM before \
             0.32, SGLang) also need --kv-events here"
        );
    };
    let Some(owner) = owner else { return "cache: unknown".to_owned() };
    match owner.completeness {
        Completeness::Exact => {
            format!("cache: exact, {} blocks known (events from {})", owner.blocks, source.endpoint)
        }
        Completeness::Partial if source.replay.is_none() => format!(
            "cache: partial, {} blocks known (events from {}, no replay endpoint; add \"replay_endpoint\" to the \
             engine's --kv-events-config, and a restarted router knows everything at once)",
            owner.blocks, source.endpoint
        ),
        Completeness::Partial => format!(
            "cache: partial, {} blocks known (events from {}; earlier ones have left the engine's replay buffer)",
            owner.blocks, source.endpoint
        ),
        Completeness::Approximate => {
            format!("cache: not known yet (events from {} have not been reached)", source.endpoint)
        }
    }
}
