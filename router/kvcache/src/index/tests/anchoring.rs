//! Orphans of partial owners, anchored through owners that hash alike.

use super::*;

/// Prompts of one block that both owners store; `agree` of them under equal engine hashes.
fn shared(index: &Index, agree: u64, disagree: u64) {
    for number in 0..agree + disagree {
        let tokens = vec![10_000 + number as u32; 16];
        store(index, 0, &[1000 + number], None, &tokens, 16);
        let other = if number < agree { 1000 + number } else { 5000 + number };
        store(index, 1, &[other], None, &tokens, 16);
    }
}

fn partial_pair() -> Index {
    let index = index(2);
    index.set_completeness(OwnerSlot(1), Completeness::Partial);
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    index
}

#[test]
fn sixty_four_agreeing_pairs_are_needed() {
    let index = partial_pair();
    store(&index, 1, &[3], Some(2), &range(33, 48), 16);
    shared(&index, 63, 0);
    assert_eq!((tokens_held(&index, &range(1, 48), 2), stats(&index, 1).orphans), (vec![32, 0], 1));
    shared(&index, 64, 0);
    let found = hits(&index, &CacheScope::default(), &range(1, 48), 2);
    // The first block was never told by owner 1: it counts as predicted.
    assert_eq!((found[1].tokens, found[1].predicted_tokens), (48, 16));
    assert_eq!((stats(&index, 1).orphans, stats(&index, 1).orphans_anchored), (0, 1));
    // From now on at once.
    store(&index, 1, &[4], Some(2), &range(133, 148), 16);
    assert_eq!(tokens_held(&index, &[range(1, 32), range(133, 148)].concat(), 2), [32, 48]);
}

#[test]
fn one_disagreement_is_enough_to_refuse() {
    let index = partial_pair();
    store(&index, 1, &[3], Some(2), &range(33, 48), 16);
    shared(&index, 100, 1);
    store(&index, 1, &[4], Some(1), &range(133, 148), 16);
    // The first orphan was anchored after 64 pairs, before the disagreement showed; later ones are not.
    assert_eq!((stats(&index, 1).orphans, stats(&index, 1).orphans_anchored), (1, 1));
}

#[test]
fn a_restarted_peer_is_not_trusted_any_more() {
    let index = partial_pair();
    shared(&index, 64, 0);
    index.reset(OwnerSlot(0));
    store(&index, 0, &[1, 2], None, &range(1, 32), 16);
    store(&index, 1, &[3], Some(2), &range(33, 48), 16);
    assert_eq!(stats(&index, 1).orphans, 1);
}

#[test]
fn exact_owners_have_no_gaps_bridged() {
    let index = index(2);
    for slot in 0..2 {
        store(&index, slot, &[1, 2, 3], None, &range(1, 48), 16);
    }
    apply(&index, 1, vec![removed(&[2])]);
    assert_eq!(tokens_held(&index, &range(1, 48), 2), [48, 16]);
    index.set_completeness(OwnerSlot(1), Completeness::Partial);
    let found = hits(&index, &CacheScope::default(), &range(1, 48), 2);
    assert_eq!((found[1].tokens, found[1].predicted_tokens), (48, 16));
}
