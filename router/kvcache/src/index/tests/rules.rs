//! One test for each rule and each known fault.

use super::*;

#[test]
fn a_block_after_another_prefix_does_not_count() {
    // HSH-01: P holds [1..16][17..32] and [101..116][201..216]; Q holds [1..16][201..216].
    let index = index(2);
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    store(&index, 0, &[3, 4], None, &[range(101, 116), range(201, 216)].concat(), 16);
    store(&index, 1, &[5, 6], None, &[range(1, 16), range(201, 216)].concat(), 16);
    assert_eq!(tokens_held(&index, &[range(1, 16), range(201, 216)].concat(), 2), [16, 32]);
}

#[test]
fn adapters_do_not_share() {
    // HSH-02
    let index = index(2);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    let adapter = Stored { adapter: Some("l1".into()), ..stored(&[1], None, &range(1, 16), 16) };
    let keys = Stored { extra_keys: vec![Some(vec!["l1".into()])], ..adapter };
    apply(&index, 1, vec![KvEvent::Stored(keys)]);
    let held = |scope: &CacheScope| {
        hits(&index, scope, &range(1, 16), 2).iter().map(|hit| hit.tokens).collect::<Vec<_>>()
    };
    assert_eq!(held(&CacheScope::default()), [16, 0]);
    assert_eq!(held(&with_adapter("l1")), [0, 16]);
    assert_eq!(held(&with_adapter("l2")), [0, 0]);
}

#[test]
fn salts_meet_and_images_do_not() {
    let index = index(2);
    let salted = CacheScope { adapter: Some(AdapterName::from("l1")), salt: Some("s".into()) };
    let event = |key: &str| Stored {
        adapter: Some("l1".into()),
        extra_keys: vec![Some(vec!["l1".into(), key.into()]), Some(vec!["l1".into()])],
        ..stored(&[1, 2], None, &range(1, 32), 16)
    };
    apply(&index, 0, vec![KvEvent::Stored(event("s"))]);
    apply(&index, 1, vec![KvEvent::Stored(event("image-digest"))]);
    let held = |scope: &CacheScope| {
        hits(&index, scope, &range(1, 32), 2).iter().map(|hit| hit.tokens).collect::<Vec<_>>()
    };
    assert_eq!(held(&salted), [32, 0]);
    assert_eq!(held(&with_adapter("l1")), [0, 0]);
}

#[test]
fn engine_hashes_are_the_owners_own_business() {
    // HSH-05: different engine hashes for equal tokens, equal engine hashes for different tokens.
    let index = index(2);
    store(&index, 0, &[11], None, &range(1, 16), 16);
    store(&index, 1, &[99], None, &range(1, 16), 16);
    store(&index, 1, &[11], None, &range(101, 116), 16);
    assert_eq!(tokens_held(&index, &range(1, 16), 2), [16, 16]);
    apply(&index, 1, vec![removed(&[11])]);
    assert_eq!(tokens_held(&index, &range(1, 16), 2), [16, 16]);
    apply(&index, 1, vec![removed(&[99])]);
    assert_eq!(tokens_held(&index, &range(1, 16), 2), [16, 0]);
}

#[test]
fn generated_ids_that_differ_from_the_prompt_end_the_match() {
    // TOK-10: the engine holds the ids it generated, the next turn renders the same text to other ids.
    let index = index(1);
    let held: Vec<u32> = [range(1, 20), vec![70], range(22, 48)].concat();
    store(&index, 0, &[1, 2, 3], None, &held, 16);
    assert_eq!(tokens_held(&index, &range(1, 48), 1), [16]);
}

#[test]
fn only_whole_blocks_count() {
    // HSH-07: prompts that differ only in their last 10 of 26 tokens share one block.
    let index = index(1);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    assert_eq!(tokens_held(&index, &[range(1, 16), range(90, 99)].concat(), 1), [16]);
}

#[test]
fn a_repeated_batch_changes_nothing() {
    // KVE-12: the same batch three times, then one removal.
    let index = index(1);
    let batch = Batch {
        seq: 4,
        events: vec![KvEvent::Stored(stored(&[1], None, &range(1, 16), 16))],
        ..Batch::default()
    };
    let applied: Vec<_> = (0..3).map(|_| index.apply(OwnerSlot(0), &batch)).collect();
    assert_eq!(applied, [true, false, false]);
    assert_eq!(stats(&index, 0).blocks, 1);
    apply(&index, 0, vec![removed(&[1])]);
    assert_eq!((stats(&index, 0).blocks, stats(&index, 0).repeated_batches), (0, 2));
    assert_eq!(tokens_held(&index, &range(1, 16), 1), [0]);
}

#[test]
fn a_block_with_two_copies_needs_two_removals() {
    let index = index(1);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    assert_eq!(stats(&index, 0).blocks, 1);
    apply(&index, 0, vec![removed(&[1])]);
    assert_eq!(tokens_held(&index, &range(1, 16), 1), [16]);
    apply(&index, 0, vec![removed(&[1])]);
    assert_eq!(tokens_held(&index, &range(1, 16), 1), [0]);
}

#[test]
fn two_engine_hashes_for_one_block_count_apart() {
    let index = index(1);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    store(&index, 0, &[2], None, &range(1, 16), 16);
    apply(&index, 0, vec![removed(&[1])]);
    assert_eq!(tokens_held(&index, &range(1, 16), 1), [16]);
    apply(&index, 0, vec![removed(&[2])]);
    assert_eq!(tokens_held(&index, &range(1, 16), 1), [0]);
    assert_eq!(index.size().blocks, 0);
}

#[test]
fn clearing_empties_one_owner() {
    // KVE-08
    let index = index(2);
    let hashes: Vec<u64> = (1..=100).collect();
    store(&index, 0, &hashes, None, &range(1, 1600), 16);
    store(&index, 1, &hashes[..50], None, &range(1, 800), 16);
    apply(&index, 0, vec![KvEvent::AllCleared]);
    assert_eq!(tokens_held(&index, &range(1, 1600), 2), [0, 800]);
    assert_eq!((stats(&index, 0).blocks, index.size().blocks), (0, 50));
}

#[test]
fn other_tiers_are_tracked_without_credit() {
    // KVE-10
    let index = index(2);
    let cpu = Medium::Other("CPU".into());
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    store(&index, 1, &[1, 2], None, &range(1, 32), 16);
    let offload = Stored { medium: cpu.clone(), ..stored(&[1, 2], None, &[], 16) };
    apply(&index, 0, vec![KvEvent::Stored(offload), removed(&[1, 2])]);
    assert_eq!(tokens_held(&index, &range(1, 32), 2), [0, 32]);
    assert_eq!((stats(&index, 0).blocks, stats(&index, 0).other_tier_blocks), (0, 2));
    assert_eq!(tokens_offloaded(&index, &range(1, 48), 2), [32, 0]);
    // Loaded back: the parent is found on the other tier.
    store(&index, 0, &[1], None, &range(1, 16), 16);
    store(&index, 0, &[3], Some(2), &range(33, 48), 16);
    assert_eq!(
        (tokens_held(&index, &range(1, 48), 2)[0], tokens_offloaded(&index, &range(1, 48), 2)[0]),
        (16, 32)
    );
    store(&index, 0, &[2], Some(1), &range(17, 32), 16);
    assert_eq!(tokens_offloaded(&index, &range(1, 48), 2), [0, 0], "at hand and offloaded is at hand");
    assert_eq!(tokens_held(&index, &range(1, 48), 2), [48, 32]);
    let gone = KvEvent::Removed { hashes: vec![int(1), int(2), int(7)], group: 0, medium: cpu.clone() };
    apply(&index, 0, vec![gone]);
    assert_eq!(tokens_held(&index, &range(1, 48), 2), [48, 32]);
    assert_eq!((stats(&index, 0).other_tier_blocks, stats(&index, 0).unknown_removals), (0, 1));
    // A unit larger than a block gives nothing, and neither does a plain store on another tier.
    let unit = Stored { medium: cpu.clone(), ..stored(&[50], None, &range(1, 64), 64) };
    let whole = Stored { medium: cpu, ..stored(&[60], None, &range(101, 116), 16) };
    apply(&index, 1, vec![KvEvent::Stored(unit), KvEvent::Stored(whole)]);
    assert_eq!(stats(&index, 1).other_tier_blocks, 1);
    assert_eq!(tokens_held(&index, &range(101, 116), 2), [0, 0]);
}

#[test]
fn the_engines_block_size_is_followed_and_a_conflict_is_told() {
    // KVE-15
    let index = index(2);
    index.set_capacity(OwnerSlot(0), 100, BlockSize::new(16).unwrap());
    store(&index, 0, &[1], None, &range(1, 32), 32);
    store(&index, 1, &[1, 2], None, &range(1, 32), 16);
    store(&index, 0, &[5], None, &range(1, 16), 16);
    assert_eq!(tokens_held(&index, &range(1, 32), 2), [32, 32]);
    let told = stats(&index, 0);
    assert_eq!(told.block_size_conflict, Some((BlockSize::new(16).unwrap(), BlockSize::new(32).unwrap())));
    assert_eq!((told.block_size_mismatches, told.capacity_blocks), (1, 50));
    assert_eq!(index.block_sizes(&model()).len(), 2);
}

#[test]
fn at_most_four_sizes_the_most_common_first() {
    let index = index(8);
    for (slot, size) in [16, 32, 64, 128, 256, 64, 64, 32].into_iter().enumerate() {
        index.set_capacity(OwnerSlot(slot as u32), 10, BlockSize::new(size).unwrap());
    }
    let sizes: Vec<usize> = index.block_sizes(&model()).iter().map(|size| size.tokens()).collect();
    assert_eq!(sizes, [64, 32, 16, 128]);
    assert_eq!(index.block_sizes(&ModelName::from("unheard of"))[..], [BlockSize::DEFAULT]);
}

#[test]
fn unknown_parents_wait_and_unknown_removals_are_harmless() {
    // KVE-16
    let index = index(1);
    store(&index, 0, &[3], Some(2), &range(33, 48), 16);
    store(&index, 0, &[4], Some(3), &range(49, 64), 16);
    assert_eq!((tokens_held(&index, &range(1, 64), 1), stats(&index, 0).orphans), (vec![0], 2));
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    assert_eq!((tokens_held(&index, &range(1, 64), 1), stats(&index, 0).orphans), (vec![64], 0));
    apply(&index, 0, vec![removed(&[4]), KvEvent::Stored(stored(&[4], Some(3), &range(49, 64), 16))]);
    assert_eq!(tokens_held(&index, &range(1, 64), 1), [64]);
    let before = stats(&index, 0).bytes;
    for _ in 0..10_000 {
        apply(&index, 0, vec![removed(&[777])]);
    }
    assert_eq!((stats(&index, 0).unknown_removals, stats(&index, 0).bytes), (10_000, before));
}

#[test]
fn an_orphan_that_was_removed_does_not_come_back() {
    let index = index(1);
    store(&index, 0, &[2, 3, 4], Some(1), &range(17, 64), 16);
    apply(&index, 0, vec![removed(&[3])]);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    assert_eq!(tokens_held(&index, &range(1, 64), 1), [32]);
    assert_eq!((stats(&index, 0).blocks, stats(&index, 0).unknown_removals), (3, 0));
}

#[test]
fn a_small_page_engine_is_counted_in_units_of_sixteen() {
    let index = index(1);
    let keys: Vec<u64> = (1..=40).collect();
    store(&index, 0, &keys, None, &range(1, 40), 1);
    assert_eq!(stats(&index, 0).block_size, BlockSize::new(16));
    assert_eq!(tokens_held(&index, &range(1, 40), 1), [32]);
    // Another prompt branches off inside a unit, another event ends it.
    store(&index, 0, &[100, 101], Some(20), &[900, 901], 1);
    let branch: Vec<u64> = (102..=111).collect();
    store(&index, 0, &branch, Some(101), &range(902, 911), 1);
    assert_eq!(tokens_held(&index, &[range(1, 20), range(900, 911)].concat(), 1), [32]);
    // Leaves go first.
    apply(&index, 0, vec![removed(&branch)]);
    assert_eq!(tokens_held(&index, &[range(1, 20), range(900, 911)].concat(), 1), [16]);
    apply(&index, 0, vec![KvEvent::AllCleared]);
    assert_eq!((stats(&index, 0).pages, index.size().blocks), (0, 0));
}

#[test]
fn small_pages_wait_for_their_parents_too() {
    let index = index(1);
    let keys: Vec<u64> = (9..=32).collect();
    store(&index, 0, &keys, Some(8), &range(9, 32), 1);
    assert_eq!(tokens_held(&index, &range(1, 32), 1), [0]);
    let keys: Vec<u64> = (1..=8).collect();
    store(&index, 0, &keys, None, &range(1, 8), 1);
    assert_eq!(tokens_held(&index, &range(1, 32), 1), [32]);
}

#[test]
fn forgotten_and_reset_owners_hold_nothing() {
    // STL-01, STL-06
    let index = index(2);
    for cycle in 0..200 {
        store(&index, 0, &[1, 2], None, &range(1, 32), 16);
        if cycle % 2 == 0 {
            index.reset(OwnerSlot(0));
        } else {
            index.forget(OwnerSlot(0));
            assert_eq!(hits(&index, &CacheScope::default(), &range(1, 32), 1)[0], PrefixHit::default());
            index.register(OwnerSlot(0), &model(), "again").unwrap();
        }
        assert_eq!(tokens_held(&index, &range(1, 32), 2), [0, 0]);
        assert_eq!(index.size().blocks, 0);
    }
    assert_eq!(index.size().owners, 2);
    index.forget(OwnerSlot(7));
    assert!(!index.apply(OwnerSlot(7), &Batch::default()));
    assert!(index.register(OwnerSlot(1 << 18), &model(), "").is_err());
}

#[test]
fn an_owner_of_another_model_has_no_hit() {
    let index = index(1);
    index.register(OwnerSlot(1), &ModelName::from("other"), "").unwrap();
    store(&index, 1, &[1], None, &range(1, 16), 16);
    let found = hits(&index, &CacheScope::default(), &range(1, 16), 2);
    assert_eq!((found[1].tokens, found[1].completeness), (0, None));
    assert_eq!(found[0].completeness, Some(Completeness::Exact));
}

#[test]
fn an_owner_over_its_bound_loses_the_oldest() {
    let index = index(1);
    index.set_capacity(OwnerSlot(0), 600, BlockSize::DEFAULT);
    for number in 0..10_000u32 {
        store(&index, 0, &[u64::from(number) + 1], None, &[number; 16], 16);
        assert!(stats(&index, 0).blocks <= 1300);
    }
    assert_eq!(tokens_held(&index, &[9_999; 16], 1), [16]);
    assert_eq!(tokens_held(&index, &[0; 16], 1), [0]);
    assert_eq!(stats(&index, 0).over_limit as usize + stats(&index, 0).blocks, 10_000);
    assert_eq!(index.size().blocks, stats(&index, 0).blocks);
}

#[test]
fn an_unread_event_ends_exactness() {
    let index = index(1);
    index.apply(OwnerSlot(0), &Batch { seq: 0, malformed: 1, unknown: 2, ..Batch::default() });
    let seen = stats(&index, 0);
    assert_eq!((seen.decode_failures, seen.unknown_events), (1, 2));
    assert_eq!(seen.completeness, Completeness::Partial);
}

#[test]
fn a_followed_group_that_proves_partial_is_forgotten() {
    let index = index(1);
    let of = |group: u32, stored: Stored| KvEvent::Stored(Stored { group, ..stored });
    let tokens = range(1, 32);
    apply(
        &index,
        0,
        vec![of(0, stored(&[1, 2], None, &tokens, 16)), of(1, stored(&[1, 2], None, &tokens, 16))],
    );
    assert_eq!(tokens_held(&index, &tokens, 1), [32]);
    apply(&index, 0, vec![of(0, stored(&[3], None, &range(101, 132), 16))]);
    assert_eq!(tokens_held(&index, &tokens, 1), [0]);
    assert_eq!(stats(&index, 0).completeness, Completeness::Partial);
    apply(&index, 0, vec![of(1, stored(&[3, 4], None, &range(101, 132), 16)), removed(&[3])]);
    assert_eq!(tokens_held(&index, &range(101, 132), 1), [32]);
}

#[test]
fn a_walk_handles_thousands_of_owners() {
    let index = Index::default();
    for slot in 0..3000 {
        index.register(OwnerSlot(slot), &model(), "").unwrap();
        index.set_completeness(OwnerSlot(slot), Completeness::Exact);
        let blocks = slot % 5;
        let hashes: Vec<u64> = (1..=u64::from(blocks)).collect();
        store(&index, slot, &hashes, None, &range(1, blocks * 16), 16);
    }
    let held = tokens_held(&index, &range(1, 128), 3000);
    assert!(held.iter().enumerate().all(|(slot, tokens)| *tokens == slot as u32 % 5 * 16));
}
