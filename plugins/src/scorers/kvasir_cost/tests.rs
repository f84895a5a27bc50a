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

fn choose(scorer: &KvasirCost, cycle: &CycleState, pool: &Candidates, seed: u64) -> usize {
    let totals = scores_of(scorer, cycle, pool);
    let scores = ScorerTotals { lines: Vec::new(), totals };
    TopN::new(1).pick(scores, pool, &mut StdRng::seed_from_u64(seed)).picks[0].index
}

/// The work of candidate 0, which holds `reusable` tokens of the prompt and has `offloaded` more on a slower tier.
fn work(prompt: u32, (reusable, offloaded): (u32, u32), load: &Load, phase: Phase) -> Work {
    let mut cycle = asking(prompt, &[reusable]);
    cycle.hits[0].offloaded_tokens = offloaded;
    Work::of(&cycle, 0, load, phase, 500.0)
}

#[test]
fn the_work_is_counted_in_tokens() {
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
    let full = sampled(EngineSample { running: 3, waiting: 0, ..sample });
    let busy = Load { in_flight: 5, prefill_tokens: 700, decoding: 3, ..Load::default() };
    let none = Load::default();
    for (name, prompt, held, load, [whole, prefill, decode]) in [
        ("cold and idle", 1000, (0, 0), none, [1000.0, 1000.0, 50.0]),
        ("warm and idle", 1000, (800, 0), none, [200.0, 200.0, 10.0]),
        ("on a slower tier", 1000, (320, 480), none, [344.0, 344.0, 34.0]),
        ("queued and decoding", 0, (0, 0), busy, [700.0 + 96.0, 700.0, 160.0]),
        ("two foreign wait, two run", 0, (0, 0), sampled(sample), [1000.0 + 64.0, 1000.0, 128.0]),
        ("200 tokens do not fit", 1000, (992, 0), full, [808.0, 808.0, 800.4]),
        ("capacity unknown", 0, (0, 0), sampled(tight), [1000.0; 3]),
    ] {
        for (phase, expected) in [(Phase::Whole, whole), (Phase::Prefill, prefill), (Phase::Decode, decode)] {
            let work = work(prompt, held, &load, phase);
            assert!((work.total - expected).abs() < 1e-6, "{name}, {phase:?}: {work:?}");
        }
    }
}

#[test]
fn only_work_that_is_known_teaches() {
    let tight = EngineSample { kv_usage: 0.95, ..EngineSample::default() };
    let foreign = EngineSample { running: 1, ..EngineSample::default() };
    for (load, known) in [(queued(900), true), (sampled(tight), false), (sampled(foreign), false)] {
        assert_eq!(work(100, (0, 0), &load, Phase::Whole).known, known, "{load:?}");
    }
}

fn close(scores: &Scores, expected: &[f64]) {
    for (score, expected) in scores.iter().zip(expected) {
        assert!((score.unwrap() - expected).abs() < 1e-3, "{scores:?} is not {expected:?}");
    }
}

#[test]
fn the_score_is_relative_to_the_worst() {
    let pool = pool_of([Load::default(); 3]);
    let scores = scores_of(&KvasirCost::default(), &asking(1000, &[0, 800, 400]), &pool);
    close(&scores, &[0.0, 80.0, 40.0]);
    let scores = scores_of(&KvasirCost::default(), &asking(0, &[]), &pool);
    assert_eq!(scores, [Some(100.0); 3]);
}

#[test]
fn the_expected_seconds_come_with_the_scores() {
    let scorer = KvasirCost::default();
    let mut pool = pool_of([queued(2000), Load::default(), Load::default()]);
    pool.retain(|candidate| candidate.endpoint.slot.0 < 2);
    let cycle = asking(1000, &[800, 0, 0]);
    let (mut scores, mut expected) = (vec![None; 3], Vec::new());
    scorer.score_and_expect(&cycle, &pool, &mut scores, &mut expected);
    assert_eq!(scores, scores_of(&scorer, &cycle, &pool));
    // 20,000 tokens a second and 10 ms, as long as nobody knows better.
    for (seconds, tokens) in expected.iter().zip([2200.0, 1000.0]) {
        assert!((seconds.unwrap() - (0.01 + tokens / 20_000.0)).abs() < 1e-6, "{expected:?}");
    }
    assert_eq!(expected[2], None);
}

#[test]
fn affinity_says_what_saved_work_is_worth() {
    // One endpoint holds 1008 tokens, and a request is there with 1200 of its own: with the company of an answer of 128
    // tokens, that is to pay 1.44 s for each second of prefill saved.
    let pool = pool_of([queued(1200), Load::default()]);
    let cycle = asking(1040, &[1008, 0]);
    for (affinity, chosen) in [(0.0, 1), (0.3, 1), (0.5, 1), (0.65, 0), (1.0, 0), (4.0, 0)] {
        let scorer = KvasirCost::new(&KvasirCostArgs { affinity });
        assert_eq!(choose(&scorer, &cycle, &pool, 1), chosen, "{affinity}");
    }
    let idle = pool_of([Load { in_flight: 1, ..Load::default() }, Load::default()]);
    let scorer = KvasirCost::new(&KvasirCostArgs { affinity: 0.0 });
    assert_eq!(choose(&scorer, &cycle, &idle, 1), 1, "at 0 a cache is worth nothing");
}

#[test]
fn an_adapter_that_has_to_be_loaded_costs_its_time() {
    let with = |adapter| Load { adapter, ..Load::default() };
    use AdapterStanding::{Absent, Full, Loading, Resident};
    let pool = pool_of([Full, Loading, Absent, Resident].map(with));
    let scores = scores_of(&KvasirCost::default(), &asking(1000, &[]), &pool);
    assert!(scores.is_sorted(), "{scores:?}");
    // 300 ms are 6,000 tokens of prefill, and what is saved counts three times.
    let pool = pool_of([with(Absent), with(Resident)]);
    assert_eq!(choose(&KvasirCost::default(), &asking(1600, &[1584, 0]), &pool, 1), 1);
    assert_eq!(choose(&KvasirCost::default(), &asking(8000, &[7984, 0]), &pool, 1), 0);
}

#[test]
fn the_decode_run_looks_at_load_and_room_first() {
    let mut pool = pool_of([Load { in_flight: 20, ..Load::default() }, Load::default()]);
    let cycle = asking(4000, &[3984, 0]);
    assert_eq!(choose(&KvasirCost::default(), &cycle, &pool, 1), 0, "alone, the cache wins");
    pool.begin_phase(Phase::Decode, |_| true);
    assert_eq!(choose(&KvasirCost::default(), &cycle, &pool, 1), 1);
    let equal = Load { in_flight: 1, ..Load::default() };
    let mut pool = pool_of([equal; 2]);
    pool.begin_phase(Phase::Decode, |_| true);
    assert_eq!(
        choose(&KvasirCost::default(), &cycle, &pool, 1),
        0,
        "less to transfer decides between equals"
    );
}

#[test]
fn a_dropped_candidate_is_neither_scored_nor_a_measure() {
    let mut pool = pool_of([queued(1_000_000), Load::default(), Load::default()]);
    pool.retain(|candidate| candidate.load.in_flight == 0);
    let scores = scores_of(&KvasirCost::default(), &asking(1000, &[0, 800, 0]), &pool);
    assert_eq!(scores[0], None);
    close(&scores[1..].to_vec(), &[80.0, 0.0]);
}

#[test]
fn no_hit_counts_for_a_request_that_skips_the_cache() {
    let cycle = CycleState { skips_cache: true, ..asking(4000, &[4000, 0]) };
    let scores = scores_of(&KvasirCost::default(), &cycle, &pool_of([Load::default(); 2]));
    assert_eq!(scores[0], scores[1]);
}

#[test]
fn near_ties_go_to_the_less_loaded_and_then_to_chance() {
    let scorer = KvasirCost::default();
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
    let scorer = KvasirCost::default();
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
    let scorer = KvasirCost::default();
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
    let scorer = KvasirCost::default();
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
    let scorer = KvasirCost::default();
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
    assert!((scorer.typical.get() - 10.0).abs() < 1.0, "{}", scorer.typical.get());
    assert_eq!(choose(&scorer, &cycle, &pool, 1), 0);
}

/// Serves `count` requests of 200 to 4,000 tokens, one at a time, wherever the scorer puts them, at these seconds a token.
fn serve(scorer: &KvasirCost, each: &[f64], count: u32, streamed: bool) -> Vec<u32> {
    let pool = pool_of(vec![Load::default(); each.len()]);
    let mut served = vec![0; each.len()];
    for turn in 0..count {
        let prompt = 200 + turn * 389 % 3800;
        let cycle = CycleState { streamed, ..asking(prompt, &[]) };
        let index = choose(scorer, &cycle, &pool, u64::from(turn));
        let endpoint = &pool.all()[index].endpoint;
        let cost = InFlightCost { prefill_tokens: prompt, ..InFlightCost::default() };
        scorer.dispatched(&cycle, endpoint, cost);
        // The noise repeats with a period that is none of the prompts'.
        let noise = 0.8 + f64::from(turn * 7 % 41) / 100.0;
        let took = (0.02 + each[index] * f64::from(prompt)) * noise;
        scorer.first_byte(&cycle, endpoint, cost, Duration::from_secs_f64(took));
        scorer.completed(&cycle, endpoint, None);
        served[index] += 1;
    }
    served
}

#[test]
fn equal_endpoints_share_whatever_noise_says() {
    let scorer = KvasirCost::default();
    let served = serve(&scorer, &[1.0e-4; 4], 4000, true);
    assert!(served.iter().all(|count| (850..1150).contains(count)), "{served:?}");
    let pace = scorer.pace_of(&endpoint(0));
    assert!((pace.each / 1.0e-4 - 1.0).abs() < 0.1, "{pace:?}");
}

#[test]
fn a_fast_endpoint_is_found_and_a_slow_one_is_left_to_the_queue() {
    let scorer = KvasirCost::default();
    serve(&scorer, &[1.0e-4, 1.0e-4, 5.0e-5, 1.0e-4], 400, true);
    let slow = scorer.pace_of(&endpoint(0)).each;
    let fast = scorer.pace_of(&endpoint(2)).each;
    assert!(slow / fast > 1.5, "{slow} to {fast}");
    // With the same queue per second of work, both are taken alike.
    let queue = |tokens| Load { in_flight: 1, prefill_tokens: tokens, ..Load::default() };
    let cycle = asking(1000, &[]);
    let mut loads = [queue(4000); 4];
    assert_eq!(choose(&scorer, &cycle, &pool_of(loads), 1), 2);
    loads[2] = queue(12_000);
    assert_ne!(choose(&scorer, &cycle, &pool_of(loads), 1), 2);
}

#[test]
fn a_new_endpoint_begins_with_the_pace_of_its_fleet() {
    let scorer = KvasirCost::default();
    serve(&scorer, &[4.0e-4; 2], 300, true);
    let pace = scorer.pace_of(&endpoint(7));
    assert!((pace.each / 4.0e-4 - 1.0).abs() < 0.15, "{pace:?}");
}

#[test]
fn answers_that_are_no_streams_teach_nothing() {
    let scorer = KvasirCost::default();
    serve(&scorer, &[4.0e-4; 2], 100, false);
    assert_eq!(scorer.pace_of(&endpoint(0)), Pace::UNSEEN);
}

#[test]
fn near_counts_of_requests_are_equal_where_others_send_too() {
    for (requests, kept) in
        [(0, 0), (1, 1), (7, 7), (8, 8), (9, 8), (15, 14), (16, 16), (19, 16), (33, 32), (63, 56)]
    {
        assert_eq!(ranking::rounded(requests), kept, "{requests}");
    }
    let scorer = KvasirCost::default();
    let with = |in_flight, peers_in_flight| Load { in_flight, peers_in_flight, ..Load::default() };
    let chosen = |pool: &Candidates| -> u32 {
        (0..100).map(|seed| choose(&scorer, &asking(26, &[]), pool, seed) as u32).sum()
    };
    assert_eq!(chosen(&pool_of([with(32, 0), with(34, 0)])), 0, "alone, counts are exact");
    assert!((20..80).contains(&chosen(&pool_of([with(32, 16), with(34, 17)]))));
    assert_eq!(chosen(&pool_of([with(32, 16), with(48, 24)])), 0);
}

/// A prompt that all endpoints hold, or could soon: answers are shorter where fewer generate.
#[test]
fn company_moves_requests_from_crowds_as_far_as_answers_are_long() {
    let crowd = Load { in_flight: 20, decoding: 20, ..Load::default() };
    let pool = pool_of([crowd, Load::default()]);
    let cycle = |max_tokens| CycleState { max_tokens, ..asking(2000, &[1984, 0]) };
    let scorer = KvasirCost::default();
    assert_eq!(choose(&scorer, &cycle(None), &pool, 1), 1);
    assert_eq!(choose(&scorer, &cycle(Some(8)), &pool, 1), 0, "a word or two");
    for _ in 0..500 {
        let usage = Usage { completion_tokens: 8, ..Usage::default() };
        scorer.completed(&cycle(None), &endpoint(0), Some(&usage));
        scorer.completed(
            &cycle(None),
            &Endpoint { role: Role::Prefill, ..endpoint(0) },
            Some(&Usage::default()),
        );
    }
    assert!((scorer.answer.get() - 8.0).abs() < 1.0, "{}", scorer.answer.get());
    assert_eq!(choose(&scorer, &cycle(None), &pool, 1), 0, "as answers have been");
}

#[test]
fn where_everybody_queues_a_prompt_stays_with_its_holder_and_a_hot_one_is_left() {
    let scorer = KvasirCost::default();
    let cycle = asking(8000, &[7984, 0, 0, 0, 0, 0, 0, 0]);
    // Three prompts' time apart: where others have room, the holder is left.
    let hot = pool_of([28_000, 0, 0, 0, 0, 0, 0, 0].map(queued));
    assert_ne!(choose(&scorer, &cycle, &hot, 1), 0);
    let two_hot = pool_of([28_000, 28_000, 0, 0, 0, 0, 0, 0].map(queued));
    assert_ne!(choose(&scorer, &cycle, &two_hot, 1), 0);
    // As far apart, with a prompt's time queued everywhere.
    let all = pool_of([36_000, 8000, 8000, 8000, 8000, 8000, 8000, 8000].map(queued));
    assert_eq!(choose(&scorer, &cycle, &all, 1), 0);
    // Not for ever.
    let too_long = pool_of([240_000, 8000, 8000, 8000, 8000, 8000, 8000, 8000].map(queued));
    assert_ne!(choose(&scorer, &cycle, &too_long, 1), 0);
}

#[test]
fn congestion_binds_no_short_prompt_to_whoever_holds_its_first_block() {
    let scorer = KvasirCost::default();
    let cycle = asking(100, &[16, 0, 0, 0]);
    let pool = pool_of([3000, 2000, 2000, 2000].map(queued));
    assert!((1..40).all(|seed| choose(&scorer, &cycle, &pool, seed) != 0));
}

#[test]
fn equals_take_turns() {
    let scorer = KvasirCost::default();
    let pool = pool_of([Load::default(); 4]);
    let cycle = asking(500, &[]);
    let mut order = Vec::new();
    for seed in 0..40 {
        let index = choose(&scorer, &cycle, &pool, seed);
        scorer.dispatched(&cycle, &pool.all()[index].endpoint, InFlightCost::default());
        order.push(index);
    }
    for round in order.chunks(4) {
        let mut seen = round.to_vec();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3], "{order:?}");
    }
}

/// Retries of one request share the prefill endpoints that are equally good, so that one that is dead does not fail them all.
#[test]
fn equal_prefill_endpoints_stay_equal() {
    let scorer = KvasirCost::default();
    let mut pool = pool_of([Load::default(); 3]);
    let cycle = asking(500, &[]);
    scorer.dispatched(&cycle, &endpoint(1), InFlightCost::default());
    let scores = scores_of(&scorer, &cycle, &pool);
    assert!(scores[1] < scores[0], "{scores:?}");
    pool.begin_phase(Phase::Prefill, |_| true);
    let scores = scores_of(&scorer, &cycle, &pool);
    assert!(scores.iter().all(|score| *score == scores[0]), "{scores:?}");
}

/// A request elsewhere outweighs the turn of whoever was chosen last.
#[test]
fn fewer_requests_come_before_turns() {
    let scorer = KvasirCost::default();
    let cycle = asking(26, &[]);
    scorer.dispatched(&cycle, &endpoint(0), InFlightCost::default());
    let busy = Load { in_flight: 1, decoding: 1, ..Load::default() };
    assert!((0..40).all(|seed| choose(&scorer, &cycle, &pool_of([Load::default(), busy]), seed) == 0));
}

#[test]
fn one_absurd_value_is_not_typical() {
    let scorer = KvasirCost::default();
    let usage = Usage { completion_tokens: u64::MAX, ..Usage::default() };
    scorer.completed(&cycle(), &endpoint(0), Some(&usage));
    assert!(scorer.answer.get() < 1.3 * ANSWER_TOKENS, "{}", scorer.answer.get());
    let cost = InFlightCost { prefill_tokens: u32::MAX, ..InFlightCost::default() };
    scorer.dispatched(&cycle(), &endpoint(0), cost);
    assert!(scorer.typical.get() < 1.3 * TYPICAL_TOKENS, "{}", scorer.typical.get());
    // What comes again and again is typical.
    for _ in 0..400 {
        scorer.completed(&cycle(), &endpoint(0), Some(&Usage { completion_tokens: 8000, ..usage }));
    }
    assert!((scorer.answer.get() / 8000.0 - 1.0).abs() < 0.05, "{}", scorer.answer.get());
}
