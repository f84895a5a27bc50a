//! Placements with and without events behind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvasir_core::{
    Address, BlockIndex, BlockSize, CacheScope, Completeness, EndpointId, EngineKind, InferenceRequest,
    KvEvent, ModelName, OwnerSlot, PrefixHit, Prompt, RequestId, RequestKind, Role,
};

use super::*;
use crate::hash::chain;
use crate::index::tests::{TestClock, apply, index as exact_index, model, range, removed, stats, store};

fn endpoint(slot: u32) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", "p", 8000, slot),
        slot: OwnerSlot(slot),
        address: Address::parse("http://p:8000").unwrap(),
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: model(),
        started_at: None,
        pin_rank: false,
        adapters: Vec::new(),
        labels: BTreeMap::new(),
    }
}

/// A request with these tokens, its chains and hits gathered.
fn cycle(index: &Index, id: &str, tokens: &[u32]) -> CycleState {
    let request = InferenceRequest {
        id: RequestId::from(id),
        kind: RequestKind::Completions,
        requested_model: "m".into(),
        model: ModelName::from("m"),
        adapter: None,
        stream: false,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: bytes::Bytes::new(),
    };
    let mut cycle = CycleState::new(&request);
    cycle.prompt_tokens = tokens.len() as u32;
    let sizes = index.block_sizes(&model());
    cycle.chains = sizes.iter().map(|size| chain(&CacheScope::default(), *size, tokens, None)).collect();
    cycle
}

fn hit(index: &Index, slot: u32, tokens: &[u32]) -> (u32, u32) {
    let cycle = cycle(index, "", tokens);
    let mut hits = [PrefixHit::default()];
    index.walk(&model(), &cycle.chains, &[OwnerSlot(slot)], &mut hits);
    (hits[0].tokens, hits[0].predicted_tokens)
}

fn usage(cached: u64) -> Usage {
    Usage { cached_tokens: Some(cached), ..Usage::default() }
}

/// An index with one owner without events, with room for `blocks`.
fn approximate(blocks: usize) -> (Arc<Index>, Placements) {
    let index = Index::default();
    index.register(OwnerSlot(0), &model(), "").unwrap();
    index.set_capacity(OwnerSlot(0), blocks, BlockSize::DEFAULT);
    let index = Arc::new(index);
    (Arc::clone(&index), Placements::new(index, DEFAULT_LIFETIME))
}

#[test]
fn an_owner_without_events_gets_the_prompt_at_dispatch() {
    let (index, placements) = approximate(100);
    let cycle = cycle(&index, "a", &range(1, 40));
    placements.dispatched(&cycle, &endpoint(0), InFlightCost::default());
    assert_eq!(hit(&index, 0, &range(1, 40)), (32, 32));
    assert_eq!(hit(&index, 0, &[range(1, 16), range(90, 120)].concat()), (16, 16));
    placements.completed(&cycle, &endpoint(0), None);
    assert_eq!((hit(&index, 0, &range(1, 40)), placements.running()), ((32, 32), 0));
    assert_eq!(stats(&index, 0).completeness, Completeness::Approximate);
}

#[test]
fn the_least_recently_used_prompt_leaves_end_first() {
    let (index, placements) = approximate(4);
    for (id, tokens) in [("a", range(1, 32)), ("b", range(101, 132)), ("c", range(201, 216))] {
        placements.dispatched(&cycle(&index, id, &tokens), &endpoint(0), InFlightCost::default());
    }
    assert_eq!(hit(&index, 0, &range(1, 32)), (16, 16));
    assert_eq!(hit(&index, 0, &range(101, 132)), (32, 32));
    // A prompt larger than the cache keeps its beginning.
    placements.dispatched(&cycle(&index, "d", &range(1001, 1160)), &endpoint(0), InFlightCost::default());
    assert_eq!(hit(&index, 0, &range(1001, 1160)), (64, 64));
    assert_eq!((stats(&index, 0).predicted_blocks, index.size().blocks), (4, 4));
}

#[test]
fn memory_has_a_plateau() {
    // RTE-03
    let (index, placements) = approximate(1000);
    for number in 0..20_000u32 {
        let cycle = cycle(&index, "x", &[number; 64]);
        placements.dispatched(&cycle, &endpoint(0), InFlightCost::default());
        placements.completed(&cycle, &endpoint(0), None);
    }
    assert_eq!((stats(&index, 0).predicted_blocks, index.size().blocks), (1000, 1000));
    assert!(index.size().bytes < 200_000);
}

#[test]
fn the_engines_own_count_corrects_what_was_believed() {
    let (index, placements) = approximate(100);
    let first = cycle(&index, "a", &range(1, 64));
    placements.dispatched(&first, &endpoint(0), InFlightCost::default());
    placements.completed(&first, &endpoint(0), Some(&usage(0)));
    assert_eq!(placements.lost_blocks(), 0);
    // The engine lost all but one block meanwhile; it computed them again for this request.
    let second = cycle(&index, "b", &range(1, 64));
    placements.dispatched(&second, &endpoint(0), InFlightCost::default());
    placements.completed(&second, &endpoint(0), Some(&usage(16)));
    assert_eq!((placements.lost_blocks(), hit(&index, 0, &range(1, 64))), (2, (64, 64)));
    // A wholly cached prompt of whole blocks reuses one block less: nothing is lost.
    let third = cycle(&index, "c", &range(1, 64));
    placements.dispatched(&third, &endpoint(0), InFlightCost::default());
    placements.completed(&third, &endpoint(0), Some(&usage(48)));
    assert_eq!(placements.lost_blocks(), 2);
}

#[test]
fn a_failed_attempt_leaves_what_was_there_before() {
    for completeness in [Completeness::Approximate, Completeness::Exact] {
        let (index, placements) = approximate(100);
        index.set_completeness(OwnerSlot(0), completeness);
        let first = cycle(&index, "a", &range(1, 32));
        placements.dispatched(&first, &endpoint(0), InFlightCost::default());
        let second = cycle(&index, "b", &range(1, 64));
        placements.dispatched(&second, &endpoint(0), InFlightCost::default());
        placements.failed(&second, &endpoint(0));
        assert_eq!(hit(&index, 0, &range(1, 64)), (32, 32));
        // Twice does nothing more, and an attempt that is not known neither.
        placements.failed(&second, &endpoint(0));
        placements.failed(&cycle(&index, "c", &range(1, 32)), &endpoint(0));
        assert_eq!(hit(&index, 0, &range(1, 64)), (32, 32));
    }
}

/// A stream may outlive its pod, and another pod have the slot before it ends.
#[test]
fn what_outlives_its_owner_tells_nothing_of_the_next() {
    for (name, end) in [
        ("completed", Placements::completed as fn(&Placements, &CycleState, &Endpoint, Option<&Usage>)),
        ("failed", |placements, cycle, endpoint, _| placements.failed(cycle, endpoint)),
    ] {
        let (index, placements) = approximate(100);
        let long = cycle(&index, "a", &range(1, 64));
        placements.dispatched(&long, &endpoint(0), InFlightCost::default());
        placements.completed(&long, &endpoint(0), None);
        placements.dispatched(&long, &endpoint(0), InFlightCost::default());
        index.forget(OwnerSlot(0));
        index.register(OwnerSlot(0), &model(), "").unwrap();
        index.set_capacity(OwnerSlot(0), 100, BlockSize::DEFAULT);
        end(&placements, &long, &endpoint(0), Some(&usage(16)));
        assert_eq!(hit(&index, 0, &range(1, 64)), (0, 0), "{name}: the new pod never saw it");
        assert_eq!(
            (placements.lost_blocks(), placements.running(), index.size().blocks),
            (0, 0, 0),
            "{name}"
        );
        // Nor does it take from the new pod what that has of its own.
        placements.dispatched(&long, &endpoint(0), InFlightCost::default());
        index.forget(OwnerSlot(0));
        index.register(OwnerSlot(0), &model(), "").unwrap();
        let own = cycle(&index, "b", &range(1, 64));
        placements.dispatched(&own, &endpoint(0), InFlightCost::default());
        placements.completed(&own, &endpoint(0), None);
        end(&placements, &long, &endpoint(0), Some(&usage(16)));
        assert_eq!((hit(&index, 0, &range(1, 64)), placements.lost_blocks()), ((64, 64), 0), "{name}");
    }
}

/// A reset means that the engine lost everything, so nothing of before it counts.
#[test]
fn what_outlives_a_reset_is_not_entered_again() {
    let (index, placements) = approximate(100);
    let request = cycle(&index, "a", &range(1, 64));
    placements.dispatched(&request, &endpoint(0), InFlightCost::default());
    index.reset(OwnerSlot(0));
    placements.completed(&request, &endpoint(0), None);
    assert_eq!((hit(&index, 0, &range(1, 64)), index.size().blocks), ((0, 0), 0));
}

#[test]
fn siblings_stay_together_until_events_arrive() {
    // RTE-04
    let clock = TestClock::new();
    let index = Arc::new(Index::new(clock.clone()));
    for slot in 0..2 {
        index.register(OwnerSlot(slot), &model(), "").unwrap();
        index.set_completeness(OwnerSlot(slot), Completeness::Exact);
    }
    let placements = Placements::new(Arc::clone(&index), Duration::from_secs(2));
    let prompt = range(1, 48);
    placements.dispatched(&cycle(&index, "a", &prompt), &endpoint(0), InFlightCost::default());
    clock.advance(Duration::from_millis(300));
    assert_eq!((hit(&index, 0, &prompt), hit(&index, 1, &prompt)), ((48, 48), (0, 0)));
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    assert_eq!(hit(&index, 0, &prompt), (48, 16));
    // What no event confirmed ends; a later placement lasts from its own time on.
    clock.advance(Duration::from_millis(1000));
    placements.dispatched(&cycle(&index, "b", &range(101, 116)), &endpoint(0), InFlightCost::default());
    clock.advance(Duration::from_millis(700));
    assert_eq!((hit(&index, 0, &prompt), hit(&index, 0, &range(101, 116))), ((32, 0), (16, 16)));
    clock.advance(Duration::from_millis(1300));
    assert_eq!((hit(&index, 0, &range(101, 116)), stats(&index, 0).predicted_blocks), ((0, 0), 0));
    assert_eq!(index.size().blocks, 2);
}

#[test]
fn a_repeated_placement_lasts_longer() {
    let clock = TestClock::new();
    let index = Arc::new(Index::new(clock.clone()));
    index.register(OwnerSlot(0), &model(), "").unwrap();
    index.set_completeness(OwnerSlot(0), Completeness::Partial);
    let placements = Placements::new(Arc::clone(&index), Duration::from_secs(2));
    for _ in 0..3 {
        placements.dispatched(&cycle(&index, "a", &range(1, 16)), &endpoint(0), InFlightCost::default());
        clock.advance(Duration::from_millis(1500));
        assert_eq!(hit(&index, 0, &range(1, 16)), (16, 16));
    }
    clock.advance(Duration::from_millis(500));
    assert_eq!(hit(&index, 0, &range(1, 16)), (0, 0));
}

#[test]
fn what_the_decision_has_just_found_is_not_entered_again() {
    let index = Arc::new(exact_index(1));
    let placements = Placements::new(Arc::clone(&index), DEFAULT_LIFETIME);
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    let found = InFlightCost { confirmed_tokens: 32, ..InFlightCost::default() };
    let request = cycle(&index, "a", &range(1, 64));
    placements.dispatched(&request, &endpoint(0), found);
    assert_eq!((stats(&index, 0).predicted_blocks, hit(&index, 0, &range(1, 64))), (2, (64, 32)));
    placements.failed(&request, &endpoint(0));
    assert_eq!((stats(&index, 0).predicted_blocks, hit(&index, 0, &range(1, 64))), (0, (32, 0)));
}

#[test]
fn an_eviction_or_a_clear_ends_a_prediction() {
    let index = Arc::new(exact_index(1));
    let placements = Placements::new(Arc::clone(&index), DEFAULT_LIFETIME);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    placements.dispatched(&cycle(&index, "a", &range(1, 48)), &endpoint(0), InFlightCost::default());
    apply(&index, 0, vec![removed(&[1])]);
    assert_eq!(hit(&index, 0, &range(1, 48)), (0, 0));
    store(&index, 0, &[1], None, &range(1, 16), 16);
    assert_eq!(hit(&index, 0, &range(1, 48)), (48, 32));
    apply(&index, 0, vec![KvEvent::AllCleared]);
    assert_eq!((hit(&index, 0, &range(1, 48)), index.size().blocks), ((0, 0), 0));
}

#[test]
fn without_chains_or_owner_nothing_happens() {
    let (index, placements) = approximate(100);
    let mut bare = cycle(&index, "a", &range(1, 40));
    placements.dispatched(&bare, &endpoint(5), InFlightCost::default());
    bare.chains.clear();
    placements.dispatched(&bare, &endpoint(0), InFlightCost::default());
    assert_eq!((placements.running(), index.size().blocks), (0, 0));
    index.forget(OwnerSlot(0));
    placements.dispatched(&cycle(&index, "b", &range(1, 40)), &endpoint(0), InFlightCost::default());
    assert_eq!(index.size().blocks, 0);
}
