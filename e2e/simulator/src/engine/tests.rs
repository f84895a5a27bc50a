use super::*;
use crate::trace::{Planned, Segment};
use proptest::prelude::*;

fn shape() -> EngineShape {
    EngineShape {
        rates: Rates {
            step: 0.01,
            prefill_token: 1e-4,
            attention_pair: 0.0,
            decode_sequence: 1e-3,
            context_token: 0.0,
            request: 0.0,
            request_token: 0.0,
        },
        kv_blocks: 64,
        block_size: 16,
        step_tokens: 256,
        most_running: 4,
    }
}

fn work(request: u32, parts: &[(u64, u32)], answer: u32) -> Work {
    let planned = Planned {
        at: 0,
        after: None,
        prompt: parts.iter().map(|(seed, tokens)| Segment { seed: *seed, tokens: *tokens }).collect(),
        answer: Segment { seed: u64::from(request) + 1000, tokens: answer },
        session: 0,
    };
    planned.work(request, 16)
}

/// Runs dry; outcomes with the time of the step's end.
fn play(engine: &mut Engine) -> Vec<(f64, StepOutcome)> {
    let mut now = 0.0;
    let mut all = Vec::new();
    let mut outcomes = Vec::new();
    while let Some(took) = engine.begin_step() {
        now += took;
        engine.end_step(&mut outcomes);
        all.extend(outcomes.drain(..).map(|outcome| (now, outcome)));
    }
    all
}

fn first_token(outcomes: &[(f64, StepOutcome)], wanted: u32) -> (f64, u32) {
    outcomes
        .iter()
        .find_map(|(at, outcome)| match outcome {
            StepOutcome::FirstToken { request, cached } if *request == wanted => Some((*at, *cached)),
            _ => None,
        })
        .unwrap()
}

#[test]
fn a_prompt_is_computed_in_chunks_and_each_answer_token_is_a_step() {
    let mut engine = Engine::new(shape());
    engine.enqueue(work(1, &[(1, 300)], 3));
    let outcomes = play(&mut engine);
    // 256 and 44 tokens; then two steps of one sequence.
    assert!((first_token(&outcomes, 1).0 - (0.0256 + 0.01 + 0.0044 + 0.01)).abs() < 1e-9);
    let (ended, outcome) = outcomes.last().unwrap();
    assert_eq!(*outcome, StepOutcome::Ended { request: 1 });
    assert!((ended - (0.05 + 2.0 * 0.011)).abs() < 1e-9);
    assert_eq!((engine.pool().used(), engine.running(), engine.waiting()), (0, 0, 0));
}

#[test]
fn whole_blocks_are_reused_but_never_the_last_token() {
    let mut engine = Engine::new(shape());
    engine.enqueue(work(1, &[(1, 160)], 1));
    play(&mut engine);
    for (request, parts, cached) in
        [(2, [(1, 160), (9, 0)], 144), (3, [(1, 160), (9, 5)], 160), (4, [(1, 100), (8, 60)], 96)]
    {
        engine.enqueue(work(request, &parts, 1));
        assert_eq!(engine.cached_tokens(&work(request, &parts, 1)), cached);
        assert_eq!(first_token(&play(&mut engine), request).1, cached, "{request}");
    }
}

#[test]
fn siblings_in_one_batch_share_the_prefill_of_the_first() {
    let mut engine = Engine::new(shape());
    engine.enqueue(work(1, &[(1, 160), (2, 10)], 1));
    engine.enqueue(work(2, &[(1, 160), (3, 10)], 1));
    let outcomes = play(&mut engine);
    assert_eq!((first_token(&outcomes, 1).1, first_token(&outcomes, 2).1), (0, 160));
}

#[test]
fn those_that_find_no_memory_wait_in_order() {
    let mut engine = Engine::new(shape());
    for request in 1..=3 {
        engine.enqueue(work(request, &[(u64::from(request), 500)], 2));
    }
    engine.begin_step();
    // 32 blocks each of 64.
    assert_eq!((engine.running(), engine.waiting()), (1, 2), "the budget is one chunk");
    let outcomes = play(&mut engine);
    let firsts: Vec<f64> = (1..=3).map(|request| first_token(&outcomes, request).0).collect();
    assert!(firsts.is_sorted(), "{firsts:?}");
}

#[test]
fn a_sequence_without_memory_makes_the_last_one_start_over() {
    let small = EngineShape { kv_blocks: 8, ..shape() };
    let mut engine = Engine::new(small);
    engine.enqueue(work(1, &[(1, 60)], 60));
    engine.enqueue(work(2, &[(2, 60)], 60));
    let outcomes = play(&mut engine);
    let ended = outcomes.iter().filter(|(_, outcome)| matches!(outcome, StepOutcome::Ended { .. })).count();
    assert_eq!((ended, engine.sums().preempted > 0), (2, true));
    assert!(first_token(&outcomes, 1).0 <= first_token(&outcomes, 2).0);
}

#[test]
fn events_tell_the_cache_exactly() {
    let mut engine = Engine::new(EngineShape { kv_blocks: 24, ..shape() });
    let mut told: std::collections::HashMap<EngineHash, i32> = std::collections::HashMap::new();
    for request in 0..12 {
        engine.enqueue(work(request, &[(u64::from(request % 3), 64), (100 + u64::from(request), 80)], 20));
        play(&mut engine);
        for event in engine.take_events() {
            match event {
                KvEvent::Stored(stored) => {
                    assert_eq!(stored.token_ids.len(), 16 * stored.hashes.len());
                    stored.hashes.into_iter().for_each(|hash| *told.entry(hash).or_default() += 1);
                }
                KvEvent::Removed { hashes, .. } => {
                    for hash in hashes {
                        *told.entry(hash).or_default() -= 1;
                    }
                }
                KvEvent::AllCleared => {}
            }
        }
    }
    assert!(told.values().all(|count| *count >= 0));
    assert_eq!(told.values().filter(|count| **count > 0).count(), engine.pool().contents());
}

#[test]
fn a_forecast_is_what_then_happens() {
    let mut engine = Engine::new(shape());
    engine.enqueue(work(1, &[(1, 300)], 9));
    engine.enqueue(work(2, &[(1, 300), (2, 40)], 30));
    let step_left = engine.begin_step().unwrap();
    engine.enqueue(work(3, &[(3, 200)], 5));
    let newcomer = work(4, &[(1, 300), (4, 90)], 3);
    let forecast = engine.forecast(&[], &newcomer, 0.0, step_left);
    engine.enqueue(newcomer);
    let (at, cached) = first_token(&play(&mut engine), 4);
    assert!((forecast.first_token - at).abs() < 1e-9, "{forecast:?} {at}");
    assert_eq!(forecast.cached, cached);
}

proptest! {
    #[test]
    fn every_request_ends_once_and_memory_never_overflows(
        requests in proptest::collection::vec((0..4_u64, 0..200_u32, 1..120_u32, 1..40_u32), 1..30),
        kv_blocks in 24..80_u32,
        step_tokens in 16..300_u32,
    ) {
        let mut engine = Engine::new(EngineShape { kv_blocks, step_tokens, ..shape() });
        let mut first = vec![0; requests.len()];
        let mut ended = vec![0; requests.len()];
        let mut outcomes = Vec::new();
        let mut coming = requests.iter().enumerate();
        let mut steps = 0;
        loop {
            // They come one after the other while others run.
            if steps % 3 == 0 && let Some((number, (group, shared, own, answer))) = coming.next() {
                let parts = [(*group, *shared), (50 + number as u64, *own)];
                engine.enqueue(work(number as u32, &parts, *answer));
            }
            steps += 1;
            prop_assert!(steps < 100_000, "it stands still");
            if engine.begin_step().is_none() && coming.len() == 0 {
                break;
            }
            prop_assert!(engine.pool().used() <= kv_blocks);
            prop_assert!(engine.running() <= 4);
            engine.end_step(&mut outcomes);
            for outcome in outcomes.drain(..) {
                match outcome {
                    StepOutcome::FirstToken { request, cached } => {
                        first[request as usize] += 1;
                        let (_, shared, own, _) = requests[request as usize];
                        prop_assert!(cached < shared + own);
                    }
                    StepOutcome::Ended { request } => ended[request as usize] += 1,
                }
            }
        }
        prop_assert!(first.iter().all(|count| *count == 1), "{first:?}");
        prop_assert!(ended.iter().all(|count| *count == 1), "{ended:?}");
        prop_assert_eq!((engine.pool().used(), engine.waiting()), (0, 0));
    }
}
