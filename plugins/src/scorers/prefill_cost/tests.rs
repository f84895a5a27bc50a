use super::*;
use crate::pickers::top_n::TopN;
use crate::testing::{cycle, endpoint, pool_of, sampled, scores_of};
use kvasir_core::{BlockChain, BlockSize, Picker, PrefixHit, ScorerTotals};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// A prompt of which candidate `i` holds `held[i]` tokens.
fn asking(prompt_tokens: u32, held: &[u32]) -> CycleState {
    let mut cycle = cycle();
    cycle.prompt_tokens = prompt_tokens;
    cycle.chains.push(BlockChain { block_size: BlockSize::DEFAULT, hashes: [].into() });
    cycle.hits = held
        .iter()
        .map(|tokens| PrefixHit { tokens: *tokens, block_tokens: 16, ..PrefixHit::default() })
        .collect();
    cycle
}

fn queued(prefill_tokens: u64) -> Load {
    Load { in_flight: 1, prefill_tokens, ..Load::default() }
}

fn choose(scorer: &PrefillCost, cycle: &CycleState, pool: &Candidates, seed: u64) -> usize {
    let totals = scores_of(scorer, cycle, pool);
    let scores = ScorerTotals { lines: Vec::new(), totals };
    TopN::new(1).pick(scores, pool, &mut StdRng::seed_from_u64(seed)).picks[0].index
}

#[test]
fn the_cost_is_counted_in_tokens() {
    let sample = EngineSample {
        running: 5,
        waiting: 2,
        in_flight_at_scrape: 3,
        kv_blocks: 100,
        block_size: 16,
        kv_usage: 0.5,
        ..EngineSample::default()
    };
    let tight = EngineSample { kv_usage: 0.95, ..EngineSample::default() };
    for (name, prompt, reusable, load, expected) in [
        ("cold and idle", 1000, 0, Load::default(), 1500.0),
        ("warm and idle", 1000, 800, Load::default(), 300.0),
        ("queued", 0, 0, queued(700), 700.0),
        ("decoding", 0, 0, Load { decoding: 3, ..Load::default() }, 96.0),
        ("two foreign wait, two run", 0, 0, sampled(sample), 1000.0 + 64.0),
        (
            "200 tokens do not fit",
            1000,
            1000,
            sampled(EngineSample { running: 3, waiting: 0, ..sample }),
            800.0,
        ),
        ("capacity unknown", 0, 0, sampled(tight), 1000.0),
    ] {
        let cost = cost(prompt, reusable, &load, 500.0);
        assert!((cost - expected).abs() < 1e-6, "{name}: {cost}");
    }
}

#[test]
fn the_score_is_relative_to_the_worst() {
    let pool = pool_of([Load::default(); 3]);
    let scores = scores_of(&PrefillCost::new(), &asking(1000, &[0, 800, 400]), &pool);
    assert_eq!(scores, [Some(0.0), Some(80.0), Some(40.0)]);
    let scores = scores_of(&PrefillCost::new(), &asking(0, &[]), &pool);
    assert_eq!(scores, [Some(100.0); 3]);
}

#[test]
fn a_dropped_candidate_is_neither_scored_nor_a_measure() {
    let mut pool = pool_of([queued(1_000_000), Load::default(), Load::default()]);
    pool.retain(|candidate| candidate.load.in_flight == 0);
    let scores = scores_of(&PrefillCost::new(), &asking(1000, &[0, 800, 0]), &pool);
    assert_eq!(scores, [None, Some(80.0), Some(0.0)]);
}

#[test]
fn no_hit_counts_for_a_request_that_skips_the_cache() {
    let cycle = CycleState { skips_cache: true, ..asking(4000, &[4000, 0]) };
    let scores = scores_of(&PrefillCost::new(), &cycle, &pool_of([Load::default(); 2]));
    assert_eq!(scores[0], scores[1]);
}

#[test]
fn near_ties_go_to_the_less_loaded_and_then_to_chance() {
    let scorer = PrefillCost::new();
    let short = asking(26, &[16, 0, 0, 0]);
    let busy = Load { in_flight: 1, decoding: 1, ..Load::default() };
    let pool = pool_of([busy, busy, Load::default(), busy]);
    assert!((0..50).all(|seed| choose(&scorer, &short, &pool, seed) == 2));

    let idle = pool_of([Load::default(); 4]);
    let mut taken = [0; 4];
    for seed in 0..400 {
        taken[choose(&scorer, &short, &idle, seed)] += 1;
    }
    assert!(taken.iter().all(|count| *count > 60), "{taken:?}");
}

/// HSH-07: a first block in common is no reason to meet.
#[test]
fn short_prompts_that_share_one_block_spread_by_load() {
    let scorer = PrefillCost::new();
    let mut loads = [Load::default(); 4];
    for seed in 0..100 {
        let index = choose(&scorer, &asking(26, &[16, 0, 0, 0]), &pool_of(loads), seed);
        loads[index].in_flight += 1;
        loads[index].decoding += 1;
    }
    assert!(loads.iter().all(|load| load.in_flight == 25), "{loads:?}");
}

/// RTE-04: siblings that arrive before the first event stay together behind the prefill they share.
#[test]
fn a_burst_of_siblings_stays_together() {
    let scorer = PrefillCost::new();
    let mut loads = [Load::default(); 4];
    let mut held = [0; 4];
    for seed in 0..16 {
        let cycle = asking(4096, &held);
        let index = choose(&scorer, &cycle, &pool_of(loads), seed);
        loads[index].in_flight += 1;
        loads[index].prefill_tokens += u64::from(4096 - cycle.reusable_tokens(index));
        // What the placement predicts.
        held[index] = 4096;
    }
    let most = loads.iter().map(|load| load.in_flight).max();
    assert_eq!(most, Some(16), "{loads:?}");
}

/// RTE-01: a hot prefix spills to the second endpoint when the first is loaded.
#[test]
fn a_hot_prefix_spills_under_load() {
    let scorer = PrefillCost::new();
    let mut loads = [Load::default(); 2];
    // A system prompt of 1024 tokens that the first endpoint holds, and 200 tokens of each request's own.
    let mut held = [1024, 0];
    for seed in 0..64 {
        let cycle = asking(1224, &held);
        let index = choose(&scorer, &cycle, &pool_of(loads), seed);
        loads[index].in_flight += 1;
        loads[index].prefill_tokens += u64::from(1224 - cycle.reusable_tokens(index));
        held[index] = 1024;
    }
    assert!(loads.iter().all(|load| load.in_flight >= 24), "{loads:?}");

    // Alone in the house, requests stay where the prefix is: nobody waits, and nothing is computed twice.
    let idle = pool_of([Load::default(); 2]);
    assert!((0..400).all(|seed| choose(&scorer, &asking(1224, &[1024, 0]), &idle, seed) == 0));
}

#[test]
fn the_typical_request_is_learned_from_our_own() {
    let scorer = PrefillCost::new();
    let waiting = EngineSample { waiting: 4, ..EngineSample::default() };
    // 4 foreign requests of 512 tokens outweigh 1000 cached tokens; of 10 tokens they do not.
    let pool = pool_of([sampled(waiting), Load::default()]);
    let cycle = asking(1100, &[1008, 0]);
    assert_eq!(choose(&scorer, &cycle, &pool, 1), 1);
    for _ in 0..500 {
        scorer.dispatched(
            &cycle,
            &endpoint(0),
            InFlightCost { prefill_tokens: 10, ..InFlightCost::default() },
        );
    }
    assert!((scorer.typical_tokens() - 10.0).abs() < 1.0, "{}", scorer.typical_tokens());
    assert_eq!(choose(&scorer, &cycle, &pool, 1), 0);
}
