//! The prefix cache: reuse, eviction, and events that tell exactly what it holds.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::config::HashRoot;
use crate::hash::Hasher;

const BLOCK: usize = 4;

struct Rig {
    cache: Cache,
    hasher: Hasher,
    scope: Scope,
}

impl Rig {
    fn new(kv_blocks: usize) -> Self {
        Self {
            cache: Cache::new(kv_blocks, BLOCK, true),
            hasher: Hasher::new(HashRoot::Fixed, BLOCK, 0),
            scope: Scope::default(),
        }
    }

    fn chain(&self, tokens: &[u32]) -> Vec<Hash> {
        let mut chain = Vec::new();
        self.hasher.extend(&mut chain, tokens, &self.scope);
        chain
    }

    fn begin(&mut self, tokens: &[u32]) -> Option<Lease> {
        let chain = self.chain(tokens);
        let hits = self.cache.reusable(&chain, tokens.len());
        let mut lease = self.cache.admit(&chain, hits, tokens.len())?;
        self.cache.grow(&mut lease, tokens.len());
        Some(lease)
    }

    fn compute(&mut self, lease: &mut Lease, tokens: &[u32]) {
        let chain = self.chain(tokens);
        let content = Content { tokens, chain: &chain, scope: &self.scope, adapter_id: None };
        self.cache.store(lease, content, tokens.len());
    }

    fn run(&mut self, tokens: &[u32]) -> usize {
        let mut lease = self.begin(tokens).expect("room");
        let hits = lease.known_blocks();
        self.compute(&mut lease, tokens);
        self.cache.free(lease);
        hits
    }
}

fn tokens(first: u32, count: u32) -> Vec<u32> {
    (first..first + count).collect()
}

#[test]
fn the_last_token_is_never_reused() {
    let mut rig = Rig::new(32);
    rig.run(&tokens(0, 12));
    assert_eq!(rig.run(&tokens(0, 12)), 2, "12 tokens: floor(11 / 4) blocks");
    assert_eq!(rig.run(&tokens(0, 13)), 3);
}

#[test]
fn a_partial_hit_stores_only_what_is_new_under_the_shared_parent() {
    let mut rig = Rig::new(32);
    rig.run(&tokens(0, 12));
    rig.cache.take_events();
    let mut longer = tokens(0, 8);
    longer.extend(tokens(100, 8));
    rig.run(&longer);
    let chain = rig.chain(&longer);
    let events = rig.cache.take_events();
    let [Event::Stored(stored)] = &events[..] else { panic!("one store, not {events:?}") };
    assert_eq!(stored.parent, Some(chain[1]));
    assert_eq!(stored.hashes, chain[2..]);
    assert_eq!(stored.token_ids, longer[8..]);
}

#[test]
fn a_full_hit_tells_nothing() {
    let mut rig = Rig::new(32);
    rig.run(&tokens(0, 13));
    rig.cache.take_events();
    assert_eq!(rig.run(&tokens(0, 13)), 3);
    assert!(rig.cache.take_events().is_empty());
}

#[test]
fn concurrent_equal_prompts_store_twice_and_are_removed_twice() {
    let mut rig = Rig::new(8);
    let prompt = tokens(0, 8);
    let mut first = rig.begin(&prompt).expect("room");
    let mut second = rig.begin(&prompt).expect("room");
    rig.compute(&mut first, &prompt);
    rig.compute(&mut second, &prompt);
    rig.cache.free(first);
    rig.cache.free(second);
    assert_eq!(rig.cache.take_events().len(), 2);
    rig.run(&tokens(1000, 28));
    let removed = rig.cache.take_events().iter().filter(|event| matches!(event, Event::Removed(_))).count();
    assert_eq!(removed, 4);
}

#[test]
fn a_sequence_waits_until_there_is_room_for_all_of_it() {
    let mut rig = Rig::new(5);
    let first = rig.begin(&tokens(0, 12)).expect("room");
    assert!(rig.begin(&tokens(100, 8)).is_none(), "one block is left");
    rig.cache.free(first);
    assert!(rig.begin(&tokens(100, 8)).is_some());
}

#[test]
fn a_reset_waits_for_the_next_batch_and_is_refused_while_blocks_are_used() {
    let mut rig = Rig::new(8);
    let lease = rig.begin(&tokens(0, 8)).expect("room");
    assert!(!rig.cache.reset());
    rig.cache.free(lease);
    rig.run(&tokens(0, 8));
    rig.cache.take_events();
    assert!(rig.cache.reset());
    assert_eq!(rig.run(&tokens(0, 8)), 0);
    assert!(matches!(&rig.cache.take_events()[..], [Event::Cleared, Event::Stored(_)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whoever applies the events, counting copies, knows the cache exactly.
    #[test]
    fn the_events_tell_exactly_what_is_held(
        kv_blocks in 6usize..24,
        prompts in prop::collection::vec((0u32..4, 1u32..20, any::<bool>()), 1..60),
    ) {
        let mut rig = Rig::new(kv_blocks);
        let mut copies: HashMap<Hash, usize> = HashMap::new();
        let mut open: Vec<(Lease, Vec<u32>)> = Vec::new();
        for (family, length, keep_open) in prompts {
            let prompt = tokens(family * 1000, length);
            if let Some(lease) = rig.begin(&prompt) {
                open.push((lease, prompt));
            }
            if !keep_open {
                for (mut lease, prompt) in open.drain(..) {
                    rig.compute(&mut lease, &prompt);
                    rig.cache.free(lease);
                }
            }
            for event in rig.cache.take_events() {
                match event {
                    Event::Stored(stored) => {
                        for hash in stored.hashes {
                            *copies.entry(hash).or_default() += 1;
                        }
                    }
                    Event::Removed(hash) => {
                        let left = copies.get_mut(&hash).expect("was stored");
                        *left -= 1;
                        if *left == 0 {
                            copies.remove(&hash);
                        }
                    }
                    Event::Cleared => copies.clear(),
                }
            }
            prop_assert_eq!(copies.len(), rig.cache.contents());
            prop_assert!(copies.keys().all(|hash| rig.cache.blocks.holds(*hash)));
        }
        for (lease, _) in open.drain(..) {
            rig.cache.free(lease);
        }
        prop_assert_eq!((rig.cache.used_blocks(), rig.cache.promised), (0, 0));
    }
}
