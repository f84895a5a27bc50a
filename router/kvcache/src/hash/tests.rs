//! Laws of the chain, and kthena's vectors.

use std::sync::Arc;

use kvasir_core::AdapterName;
use proptest::prelude::*;

use super::*;

fn size(tokens: u32) -> BlockSize {
    BlockSize::new(tokens).unwrap()
}

fn scope(adapter: Option<&str>, salt: Option<&str>) -> CacheScope {
    CacheScope { adapter: adapter.map(AdapterName::from), salt: salt.map(Arc::from) }
}

#[test]
fn kthena_vectors() {
    let range = |from: u32, to: u32| (from..=to).collect::<Vec<u32>>();
    let qwen = vec![
        151644, 8948, 198, 2610, 525, 264, 10950, 17847, 13, 151645, 198, 151644, 872, 198, 9707, 151645,
    ];
    for (ids, hash) in [
        (vec![], 0),
        (vec![0], 6863311662677045211),
        (vec![123], 3207548891546131000),
        (range(1, 5), 6818328894798336332),
        (range(0, 15), 6473494984593326032),
        (range(16, 31), 3036027678049585822),
        (range(32, 39), 6854313229097116608),
        (vec![65536, 131072, 262144], 8449045214337056412),
        (vec![4294967295, 4294967196, 4294966296], 4722989680274072345),
        (qwen, 2533699462918788988),
        (range(1, 16), 6615856733697512468),
        (range(17, 32), 1408734799202240436),
        (range(101, 116), 7210291566073553847),
    ] {
        assert_eq!(kthena_block_hash(&ids), hash, "{ids:?}");
    }
}

#[test]
fn the_definition_stands_still() {
    // Stored keys depend on it: a change needs a new ROOT_TAG.
    let ids: Vec<u32> = (0..32).collect();
    let plain = chain(&CacheScope::default(), size(16), &ids, None);
    let scoped = chain(&scope(Some("l1"), Some("s")), size(16), &ids, None);
    assert_eq!(plain.hashes.iter().map(|hash| hash.0).collect::<Vec<_>>(), PLAIN);
    assert_eq!(scoped.hashes.iter().map(|hash| hash.0).collect::<Vec<_>>(), SCOPED);
}

const PLAIN: [u64; 2] = [14664337881464501507, 5879910920031427833];
const SCOPED: [u64; 2] = [1533150694712374240, 8444460646880875214];

#[test]
fn every_part_of_the_scope_changes_every_block() {
    let ids: Vec<u32> = (0..64).collect();
    let chains = [
        chain(&scope(None, None), size(16), &ids, None),
        chain(&scope(Some("l1"), None), size(16), &ids, None),
        chain(&scope(Some("l2"), None), size(16), &ids, None),
        chain(&scope(Some(""), None), size(16), &ids, None),
        chain(&scope(None, Some("a")), size(16), &ids, None),
        chain(&scope(None, Some("")), size(16), &ids, None),
        chain(&scope(None, Some("l1")), size(16), &ids, None),
        chain(&scope(None, None), size(32), &ids, None),
    ];
    for (left, one) in chains.iter().enumerate() {
        for other in &chains[left + 1..] {
            assert!(one.hashes.iter().all(|hash| !other.hashes.contains(hash)));
        }
    }
}

#[test]
fn a_block_after_another_prefix_is_another_block() {
    // HSH-01: equal tokens in another place do not match.
    let first = chain(&CacheScope::default(), size(4), &[1, 2, 3, 4, 9, 9, 9, 9], None);
    let second = chain(&CacheScope::default(), size(4), &[5, 6, 7, 8, 9, 9, 9, 9], None);
    assert_ne!(first.hashes[1], second.hashes[1]);
}

#[test]
fn short_tails_and_the_window_are_left_out() {
    let ids: Vec<u32> = (0..26).collect();
    assert_eq!(chain(&CacheScope::default(), size(16), &ids, None).hashes.len(), 1);
    assert_eq!(chain(&CacheScope::default(), size(4), &ids, Some(3)).hashes.len(), 3);
    assert_eq!(chain(&CacheScope::default(), size(16), &[], None).hashes.len(), 0);
}

#[test]
fn extra_keys_do_not_run_into_each_other() {
    let parent = BlockHash(7);
    assert_eq!(mix(parent, []), parent);
    assert_ne!(mix(parent, ["ab", "c"]), mix(parent, ["a", "bc"]));
    assert_ne!(mix(parent, ["a", "b"]), mix(parent, ["b", "a"]));
}

proptest! {
    #[test]
    fn a_prefix_has_a_prefix_of_the_chain(
        ids in proptest::collection::vec(any::<u32>(), 0..300),
        cut in 0usize..300,
        tokens in 1u32..40,
    ) {
        let cut = cut.min(ids.len());
        let whole = chain(&CacheScope::default(), size(tokens), &ids, None);
        let part = chain(&CacheScope::default(), size(tokens), &ids[..cut], None);
        prop_assert!(whole.hashes.starts_with(&part.hashes));
    }

    #[test]
    fn one_changed_token_changes_its_block_and_all_after_it(
        ids in proptest::collection::vec(any::<u32>(), 16..200),
        at in 0usize..200,
    ) {
        let at = at % (ids.len() / 8 * 8);
        let mut changed = ids.clone();
        changed[at] ^= 1;
        let one = chain(&CacheScope::default(), size(8), &ids, None);
        let other = chain(&CacheScope::default(), size(8), &changed, None);
        let same = one.hashes.iter().zip(other.hashes.iter()).filter(|(a, b)| a == b).count();
        prop_assert_eq!(same, at / 8);
    }
}
