//! Time, order, books and cancellation of sequences, on a paused clock.

use std::time::Duration;

use super::*;
use crate::answer::Vocabulary;
use crate::backlog::Backlog;
use crate::config::EngineConfig;
use crate::tokenize::WordTokenizer;

/// 1 ms for a prompt token, 10 ms for an output token.
fn core(change: impl FnOnce(&mut EngineConfig)) -> Arc<Core> {
    let mut config = EngineConfig {
        block_size: 4,
        kv_blocks: 64,
        prefill_us_per_token: 1_000.0,
        decode_us_per_token: 10_000.0,
        ..EngineConfig::default()
    };
    change(&mut config);
    Core::new(Arc::new(config), Arc::new(Vocabulary::new(&WordTokenizer, "m")), None, 1)
}

fn order(first: u32, prompt: u32, answer: usize) -> Order {
    Order {
        tokens: (first..first + prompt).collect(),
        scope: Scope::default(),
        reads_cache: true,
        uses_cache: true,
        received: None,
        script: Script::words(u64::from(first), answer, true),
    }
}

fn begin(core: &Arc<Core>, order: Order) -> tokio::task::JoinHandle<(Duration, Duration, usize)> {
    let mut generation = Generation::new(Arc::clone(core), order);
    let start = Instant::now();
    tokio::spawn(async move {
        generation.next().await;
        let first = start.elapsed();
        generation.finish().await;
        (first, start.elapsed(), generation.cached_tokens())
    })
}

fn about(actual: Duration, millis: u64) -> bool {
    let expected = Duration::from_millis(millis);
    actual >= expected && actual <= expected + Duration::from_millis(2)
}

#[tokio::test(start_paused = true)]
async fn prompts_wait_for_the_place_and_answers_run_side_by_side() {
    let core = core(|_| {});
    let first = begin(&core, order(0, 40, 5));
    let second = begin(&core, order(1000, 20, 5));
    let (first, second) = (first.await.expect("ran"), second.await.expect("ran"));
    assert!(about(first.0, 40) && about(first.1, 80), "{first:?}");
    assert!(about(second.0, 60) && about(second.1, 100), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn cached_tokens_cost_nothing() {
    let core = core(|_| {});
    begin(&core, order(0, 41, 1)).await.expect("ran");
    let again = begin(&core, order(0, 41, 1)).await.expect("ran");
    assert_eq!(again.2, 40);
    assert!(about(again.0, 1), "{again:?}");
    let unread = begin(&core, Order { reads_cache: false, ..order(0, 41, 1) }).await.expect("ran");
    assert_eq!(unread.2, 0);
    assert!(about(unread.0, 41), "{unread:?}");
}

#[tokio::test(start_paused = true)]
async fn more_places_compute_more_prompts_and_the_scale_shortens_all() {
    let core = core(|config| {
        config.prefill_slots = 2;
        config.time_scale = 0.5;
    });
    let both = [begin(&core, order(0, 40, 3)), begin(&core, order(1000, 40, 3))];
    for one in both {
        let one = one.await.expect("ran");
        assert!(about(one.0, 20) && about(one.1, 30), "{one:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sequences_over_the_limit_wait_for_an_end() {
    let core = core(|config| config.max_running = 1);
    let first = begin(&core, order(0, 10, 11));
    let second = begin(&core, order(1000, 10, 1));
    assert!(about(first.await.expect("ran").1, 110));
    assert!(about(second.await.expect("ran").0, 120));
}

#[tokio::test(start_paused = true)]
async fn a_sequence_without_room_waits_for_memory() {
    let core = core(|config| config.kv_blocks = 11);
    let first = begin(&core, order(0, 28, 2));
    let second = begin(&core, order(1000, 20, 1));
    assert!(about(first.await.expect("ran").1, 38));
    assert!(about(second.await.expect("ran").0, 58), "starts when the first one is gone");
}

#[tokio::test(start_paused = true)]
async fn the_books_are_exact_at_every_moment() {
    let core = core(|config| config.prefill_chunk_tokens = 16);
    let running = begin(&core, order(0, 32, 3));
    let queued = begin(&core, order(1000, 24, 1));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(
        core.backlog(),
        Backlog {
            queued: 1,
            queued_prefill_tokens: 24,
            prefilling: 1,
            running_prefill_tokens: 32,
            decoding: 0
        }
    );
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(core.backlog().running_prefill_tokens, 16, "one chunk is done");
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert_eq!((core.backlog().prefilling, core.backlog().decoding), (1, 1));
    assert_eq!(core.backlog().queued, 0);
    running.await.expect("ran");
    queued.await.expect("ran");
    assert_eq!(core.backlog(), Backlog::default());
    assert_eq!(core.state.lock().cache.used_blocks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_prompt_counts_what_the_cache_will_spare_it() {
    let core = core(|_| {});
    let first = begin(&core, order(0, 33, 1));
    let same = begin(&core, order(0, 33, 1));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(core.backlog().queued_prefill_tokens, 33);
    first.await.expect("ran");
    assert_eq!(same.await.expect("ran").2, 32);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_sequence_gives_everything_back() {
    let core = core(|_| {});
    for millis in [0, 5, 30, 55] {
        let first = begin(&core, order(0, 40, 50));
        let second = begin(&core, order(1000, 40, 50));
        tokio::time::sleep(Duration::from_millis(millis)).await;
        first.abort();
        second.abort();
        let _ = tokio::join!(first, second);
        assert_eq!(core.backlog(), Backlog::default(), "after {millis} ms");
        let mut state = core.state.lock();
        assert_eq!(state.cache.used_blocks(), 0, "after {millis} ms");
        state.cache.reset();
    }
    let alone = begin(&core, order(2000, 10, 1)).await.expect("ran");
    assert!(about(alone.0, 10), "the place is free: {alone:?}");
}

#[tokio::test(start_paused = true)]
async fn the_answer_becomes_part_of_the_reusable_prefix() {
    let core = core(|_| {});
    let mut generation = Generation::new(Arc::clone(&core), order(0, 6, 11));
    generation.finish().await;
    let mut next_turn: Vec<u32> = (0..6).collect();
    next_turn.extend((0..11).map(|index| generation.piece(index).id));
    next_turn.extend([7; 8]);
    let reusable = core.cached_prefix_tokens(&next_turn, &Scope::default());
    assert_eq!(reusable, 16, "6 + 11 tokens, of which the last one was never computed");
}
