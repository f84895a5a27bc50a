//! Where multi-turn conversations end up under each scorer, against an oracle.

#![expect(clippy::unwrap_used, reason = "a simulation that breaks its own rules must stop")]

mod fleet;
mod router;

use std::sync::Arc;

use kvasir_core::NoMeter;
use kvasir_plugins::scorers::kvasir_cost::KvasirCost;
use kvasir_plugins::scorers::kvcache_aware::KvCacheAware;
use kvasir_plugins::scorers::least_request::LeastRequest;
use kvasir_plugins::scorers::random::Random;
use kvasir_settings::resolved::{KvCacheAwareArgs, KvasirCostArgs};

use crate::fleet::{Outcome, Scene, Talk, run};
use crate::router::Policy;

/// Conversations that grow from 1k to 7k tokens, over a system prompt that all share.
const LONG: Talk = Talk { system: 256, first: (400, 1600), next: (150, 650), turns: 12 };

/// Prompts of at most four blocks; the first block is the same for all.
const SHORT: Talk = Talk { system: 16, first: (4, 48), next: (4, 16), turns: 1 };

/// Three seeds together, so that one lucky conversation decides nothing.
fn runs(scene: Scene, policy: impl Fn(u64) -> Policy) -> Outcome {
    let mut all = Outcome::default();
    for seed in 1..=3 {
        all.add(&run(Scene { seed, ..scene }, &policy(seed)));
    }
    all
}

fn oracle(scene: Scene) -> Outcome {
    runs(scene, |_| Policy::Oracle)
}

fn kvasir_cost(scene: Scene) -> Outcome {
    runs(scene, |_| Policy::Scorer(Box::new(KvasirCost::new(&KvasirCostArgs::default()))))
}

fn affinity(scene: Scene) -> Outcome {
    let scorer = || KvCacheAware::new(&KvCacheAwareArgs::default(), Arc::default(), Arc::new(NoMeter));
    runs(scene, |_| Policy::Scorer(Box::new(scorer())))
}

fn least_request(scene: Scene) -> Outcome {
    runs(scene, |_| Policy::Scorer(Box::new(LeastRequest)))
}

fn random(scene: Scene) -> Outcome {
    runs(scene, |seed| Policy::Scorer(Box::new(Random::new(seed))))
}

/// Hit rate within a point of the oracle's, times within 5 %.
fn assert_close_to_the_oracle(ours: &Outcome, oracle: &Outcome) {
    assert!(ours.hit_rate() > oracle.hit_rate() - 0.01, "{} / {}", ours.hit_rate(), oracle.hit_rate());
    for share in [0.5, 0.95] {
        let (ours, bound) = (ours.ttft_ms(share), oracle.ttft_ms(share));
        assert!(ours <= bound * 1.05, "at {share}: {ours} ms against {bound} ms");
    }
}

#[test]
fn conversations_are_placed_nearly_as_well_as_an_oracle_would() {
    let scene = Scene { users: 32, pods: 4, think_ms: 400, requests: 2500, seed: 0, talk: LONG };
    let ours = kvasir_cost(scene);
    assert_close_to_the_oracle(&ours, &oracle(scene));
    assert!(ours.hit_rate() > 0.85, "{}", ours.hit_rate());

    let (least_request, random, affinity) = (least_request(scene), random(scene), affinity(scene));
    // Affinity alone follows the shared system prompt to one pod, whose cache then holds nobody's conversation.
    let p95 = [&ours, &least_request, &random, &affinity].map(|outcome| outcome.ttft_ms(0.95));
    assert!(p95.is_sorted(), "{p95:?}");
    assert!(p95[0] * 4.0 < p95[1], "{p95:?}");
    let hits = [&affinity, &random, &least_request, &ours].map(Outcome::hit_rate);
    assert!(hits.is_sorted(), "{hits:?}");
}

#[test]
fn also_when_the_fleet_is_hot() {
    let scene = Scene { users: 48, pods: 4, think_ms: 100, requests: 3000, seed: 0, talk: LONG };
    assert_close_to_the_oracle(&kvasir_cost(scene), &oracle(scene));
}

#[test]
fn short_prompts_fare_no_worse_than_by_chance() {
    let scene = Scene { users: 600, pods: 4, think_ms: 20, requests: 6000, seed: 0, talk: SHORT };
    let (ours, random) = (kvasir_cost(scene), random(scene));
    for share in [0.5, 0.95, 0.99] {
        let (ours, chance) = (ours.ttft_ms(share), random.ttft_ms(share));
        assert!(ours <= chance, "at {share}: {ours} ms against {chance} ms");
    }
}
