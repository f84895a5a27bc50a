//! Perfect knowledge: a router that reads the engines' caches and queues directly. Only a simulation allows it.

use std::sync::Arc;

use kvasir_core::{
    BoxFuture, Candidates, CycleState, DataProducer, InferenceRequest, Needs, Plugin, PrefixHit,
    ProduceError, Scorer, Scores, TokenSlot,
};
use kvasir_mock_engine::Engine;

use crate::house::Furniture;

/// What a decoding request costs the one in front of it, in prefill tokens: with one prompt at a time almost nothing.
const DECODE_WEIGHT: f64 = 1.0;

/// How much more a token computed now weighs than one that waits: a prefix that is not computed again stays free for
/// later turns. The same trade-off as `kvasir-cost` makes, so that the two rows differ in knowledge alone.
const UNCACHED_WEIGHT: f64 = 3.0;

/// The engines behind the candidates, found by URL.
#[derive(Clone)]
struct Engines(Arc<Vec<(String, Arc<Engine>)>>);

impl Engines {
    fn of(&self, url: &str) -> Option<&Engine> {
        self.0.iter().find(|(known, _)| known == url).map(|(_, engine)| engine.as_ref())
    }
}

/// The producer and the scorer of the perfect router.
pub(super) fn furniture(engines: &[Arc<Engine>]) -> Furniture {
    let known = engines.iter().map(|engine| (engine.url(), Arc::clone(engine))).collect();
    let engines = Engines(Arc::new(known));
    Furniture {
        producers: vec![Arc::new(TrueHits(engines.clone()))],
        scorers: Some(vec![(Arc::new(TrueCost(engines)), 1.0)]),
    }
}

/// Raises each prefix hit to what the engine really holds; what is being prefilled there now is known from the index's
/// predictions and stays.
struct TrueHits(Engines);

impl Plugin for TrueHits {
    fn name(&self) -> &'static str {
        "true-hits"
    }
}

impl DataProducer for TrueHits {
    fn provides(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn after(&self) -> Needs {
        Needs::TOKENS | Needs::BLOCKS
    }

    fn produce<'a>(
        &'a self,
        _: &'a InferenceRequest,
        pool: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            let TokenSlot::Ready(tokens) = &cycle.tokens else {
                return Err(ProduceError { producer: self.name(), reason: "no_tokens" });
            };
            let ids = Arc::clone(&tokens.ids);
            cycle.hits.resize(pool.len(), PrefixHit::default());
            for (hit, candidate) in cycle.hits.iter_mut().zip(pool.all()) {
                if let Some(engine) = self.0.of(&candidate.endpoint.address.url()) {
                    let held = engine.cached_prefix_tokens(&ids, None, None);
                    hit.tokens = hit.tokens.max(u32::try_from(held).unwrap_or(u32::MAX));
                }
            }
            Ok(())
        })
    }
}

/// The work in front of the request's first token, as the engine itself would count it.
struct TrueCost(Engines);

impl Plugin for TrueCost {
    fn name(&self) -> &'static str {
        "true-cost"
    }
}

impl Scorer for TrueCost {
    fn needs(&self) -> Needs {
        Needs::PREFIX_HITS
    }

    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        let costs: Vec<(usize, f64)> = pool
            .kept()
            .filter_map(|(index, candidate)| {
                let backlog = self.0.of(&candidate.endpoint.address.url())?.backlog();
                // What we sent a moment ago may not have reached the engine's queue yet.
                let queued = ((backlog.queued_prefill_tokens + backlog.running_prefill_tokens) as f64)
                    .max(candidate.load.prefill_tokens as f64);
                let uncached =
                    f64::from(cycle.prompt_tokens - cycle.reusable_tokens(index).min(cycle.prompt_tokens));
                Some((index, UNCACHED_WEIGHT * uncached + queued + DECODE_WEIGHT * backlog.decoding as f64))
            })
            .collect();
        let worst = costs.iter().map(|(_, cost)| *cost).fold(1.0, f64::max);
        for (index, cost) in costs {
            if let Some(slot) = out.get_mut(index) {
                *slot = Some(100.0 * (1.0 - cost / worst));
            }
        }
    }
}
