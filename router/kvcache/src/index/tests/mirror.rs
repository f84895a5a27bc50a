//! What changes in one index, entered into another.

use std::sync::atomic::{AtomicBool, Ordering};

use kvasir_core::{BlockChange, BlockHash, HeldOn, OwnerJournal};
use proptest::prelude::*;

use super::script::{BLOCKS, PROMPTS, credits, held, play, steps};
use super::*;
use crate::follow::Link;

const SLOT: OwnerSlot = OwnerSlot(0);

/// An index with one owner of model `m` of which nothing is known.
fn mirror() -> Index {
    let index = Index::default();
    index.register(SLOT, &model(), "mirrored").unwrap();
    index
}

fn recorded(most: usize) -> Index {
    let index = index(1);
    index.record(SLOT, most);
    index
}

/// What went from one index to the other so far.
#[derive(Default)]
struct Publication {
    told: Option<(u64, Option<BlockSize>)>,
    snapshots: usize,
}

impl Publication {
    /// Brings `mirror` up to date with what `source` recorded.
    fn publish(&mut self, source: &Index, mirror: &Index) {
        let changes = source.take_changes(SLOT).unwrap();
        let now = Some((changes.life, changes.block_size));
        if changes.overflowed {
            assert!(changes.changes.is_empty());
            self.snapshot(source, mirror);
            return;
        }
        if self.told != now {
            // Of a new life the changes are all there is; a size alone says that nothing was held before.
            let of_new_life = self.told.is_none_or(|(life, _)| life != changes.life);
            if !of_new_life {
                assert!(mirror.content(SLOT).unwrap().gpu.is_empty());
            }
            let empty = OwnerContent {
                life: changes.life,
                block_size: changes.block_size,
                completeness: changes.completeness,
                gpu: Vec::new(),
                other_tiers: Vec::new(),
            };
            assert!(mirror.load(SLOT, empty));
            self.told = now;
        }
        mirror.set_completeness(SLOT, changes.completeness);
        assert!(mirror.change(SLOT, &changes.changes));
    }

    fn snapshot(&mut self, source: &Index, mirror: &Index) {
        let content = source.content(SLOT).unwrap();
        self.told = Some((content.life, content.block_size));
        self.snapshots += 1;
        assert!(mirror.load(SLOT, content));
    }
}

fn assert_equal(source: &Index, mirror: &Index) -> Result<(), TestCaseError> {
    prop_assert_eq!(credits(mirror), credits(source));
    prop_assert_eq!(held(mirror), held(source));
    prop_assert_eq!(mirror.size().blocks, source.size().blocks);
    Ok(())
}

proptest! {
    /// At every moment at which all changes were told, the mirror holds what its source holds.
    #[test]
    fn a_mirror_holds_what_its_source_holds(
        steps in steps(true), takes in proptest::collection::vec(0..4u8, 60), most in 0..40usize,
    ) {
        let (source, mirror) = (recorded(most), mirror());
        let mut publication = Publication::default();
        for (step, take) in steps.iter().zip(takes) {
            play(&source, 0, step);
            match take {
                0 => publication.publish(&source, &mirror),
                1 => publication.snapshot(&source, &mirror),
                _ => continue,
            }
            assert_equal(&source, &mirror)?;
        }
        publication.publish(&source, &mirror);
        assert_equal(&source, &mirror)?;
        // Nothing is left to tell, and telling all again changes nothing.
        prop_assert_eq!(source.take_changes(SLOT).unwrap().changes, []);
        publication.snapshot(&source, &mirror);
        assert_equal(&source, &mirror)?;
    }

    /// Changes are net, each block once for each tier, and fewer than their bound.
    #[test]
    fn changes_are_the_difference(before in steps(true), after in steps(false), most in 1..60usize) {
        let source = recorded(most);
        before.iter().for_each(|step| play(&source, 0, step));
        let (old, start) = (source.content(SLOT).unwrap(), source.content(SLOT).unwrap().life);
        after.iter().for_each(|step| play(&source, 0, step));
        let changes = source.take_changes(SLOT).unwrap();
        let new = held(&source);
        prop_assert!(changes.changes.len() <= most);
        if !changes.overflowed {
            let old = if changes.life == start { old } else { OwnerContent { gpu: vec![], other_tiers: vec![], ..old } };
            let mut expected: Vec<(u64, bool, bool)> = Vec::new();
            for (on, old, new) in [(true, &old.gpu, &new.gpu), (false, &old.other_tiers, &new.other_tiers)] {
                expected.extend(new.iter().filter(|block| !old.contains(block)).map(|block| (block.0, on, true)));
                expected.extend(old.iter().filter(|block| !new.contains(block)).map(|block| (block.0, on, false)));
            }
            let mut told: Vec<_> =
                changes.changes.iter().map(|change| (change.block.0, change.on == HeldOn::Gpu, change.held)).collect();
            expected.sort_unstable();
            told.sort_unstable();
            prop_assert_eq!(told, expected);
        }
    }
}

#[test]
fn content_and_changes_fit_while_events_are_applied() {
    let (source, mirror) = (recorded(64), mirror());
    let done = AtomicBool::new(false);
    let mut publication = Publication::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..4000usize {
                let (prompt, to) = (number % PROMPTS, 1 + number * 7 % BLOCKS);
                play(&source, 0, &script::Step::Store { prompt, from: 0, to, alias: number % 3 == 0 });
                let (prompt, block) = (number * 5 % PROMPTS, number * 3 % BLOCKS);
                play(&source, 0, &script::Step::Remove { prompt, block, alias: number % 5 == 0 });
            }
            done.store(true, Ordering::Release);
        });
        let mut turn = 0;
        while !done.load(Ordering::Acquire) {
            turn += 1;
            if turn % 3 == 0 {
                publication.snapshot(&source, &mirror);
            } else {
                publication.publish(&source, &mirror);
            }
        }
    });
    publication.publish(&source, &mirror);
    assert_equal(&source, &mirror).unwrap();
}

#[test]
fn too_many_changes_are_told_as_a_whole() {
    let (source, mirror) = (recorded(3), mirror());
    let mut publication = Publication::default();
    store(&source, 0, &[1, 2, 3], None, &range(1, 48), 16);
    publication.publish(&source, &mirror);
    assert_eq!((publication.snapshots, tokens_held(&mirror, &range(1, 48), 1)), (0, vec![48]));
    store(&source, 0, &[4, 5, 6, 7], None, &range(101, 164), 16);
    publication.publish(&source, &mirror);
    assert_eq!((publication.snapshots, tokens_held(&mirror, &range(101, 164), 1)), (1, vec![64]));
    // Emptying a large cache is one message.
    apply(&source, 0, vec![KvEvent::AllCleared]);
    publication.publish(&source, &mirror);
    assert_eq!((publication.snapshots, mirror.size().blocks), (2, 0));
}

#[test]
fn what_reaches_its_bound_is_told_too() {
    let (source, mirror) = (recorded(100_000), mirror());
    source.set_capacity(SLOT, 512, BlockSize::DEFAULT);
    let mut publication = Publication::default();
    for number in 0..3000u64 {
        store(&source, 0, &[number + 1], None, &[number as u32; 16], 16);
    }
    publication.publish(&source, &mirror);
    assert!(stats(&source, 0).over_limit > 0);
    assert_eq!(held(&mirror), held(&source));
}

#[test]
fn only_who_asked_is_told() {
    let index = index(1);
    assert_eq!(index.take_changes(SLOT), None);
    assert_eq!((index.take_changes(OwnerSlot(9)), index.content(OwnerSlot(9))), (None, None));
    index.record(OwnerSlot(9), 10);
    index.record(SLOT, 10);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    index.record(SLOT, 10);
    assert_eq!(index.take_changes(SLOT).unwrap().changes.len(), 1);
    // An owner that comes anew is recorded when it is asked for anew.
    index.register(SLOT, &model(), "again").unwrap();
    assert_eq!(index.take_changes(SLOT), None);
}

#[test]
fn a_life_begins_with_each_reset() {
    let index = recorded(10);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    let first = index.take_changes(SLOT).unwrap();
    apply(&index, 0, vec![KvEvent::AllCleared]);
    let cleared = index.take_changes(SLOT).unwrap();
    assert_eq!((cleared.life, cleared.changes.len(), cleared.changes[0].held), (first.life, 1, false));
    store(&index, 0, &[2], None, &range(17, 32), 16);
    index.reset(SLOT);
    let second = index.take_changes(SLOT).unwrap();
    assert!(second.life > first.life && second.changes.is_empty() && !second.overflowed);
}

/// Loads blocks of a prompt that starts at token `from`, as another process would tell them.
fn told(life: u64, completeness: Completeness, tokens: &[u32]) -> OwnerContent {
    let chain = chain(&CacheScope::default(), BlockSize::DEFAULT, tokens, None);
    OwnerContent {
        life,
        block_size: Some(BlockSize::DEFAULT),
        completeness,
        gpu: chain.hashes.to_vec(),
        other_tiers: Vec::new(),
    }
}

fn change(block: BlockHash, held: bool) -> BlockChange {
    BlockChange { block, on: HeldOn::Gpu, held }
}

#[test]
fn loading_again_takes_away_before_it_gives() {
    let index = mirror();
    index.record(SLOT, 100);
    assert!(index.load(SLOT, told(1, Completeness::Exact, &range(1, 48))));
    index.take_changes(SLOT);
    let next = [range(1, 16), range(101, 132)].concat();
    assert!(index.load(SLOT, told(1, Completeness::Exact, &next)));
    let order: Vec<bool> =
        index.take_changes(SLOT).unwrap().changes.iter().map(|change| change.held).collect();
    assert_eq!(order, [false, false, true, true]);
    assert_eq!((tokens_held(&index, &next, 1), tokens_held(&index, &range(1, 48), 1)), (vec![48], vec![16]));
}

#[test]
fn a_change_told_twice_is_told_once() {
    let index = mirror();
    let content = told(1, Completeness::Exact, &range(1, 48));
    let blocks = content.gpu.clone();
    // Before anything was loaded there is nothing to change.
    assert!(!index.change(SLOT, &[change(blocks[0], true)]));
    assert_eq!(index.size().blocks, 0);
    assert!(index.load(SLOT, OwnerContent { gpu: blocks[..1].to_vec(), ..content }));
    for _ in 0..2 {
        assert!(
            index.change(
                SLOT,
                &[change(blocks[0], true), change(blocks[1], true), change(BlockHash(0), true)]
            )
        );
    }
    assert_eq!((tokens_held(&index, &range(1, 48), 1), stats(&index, 0).blocks), (vec![32], 2));
    for _ in 0..2 {
        assert!(index.change(SLOT, &[change(blocks[0], false), change(BlockHash(0), false)]));
    }
    let seen = stats(&index, 0);
    assert_eq!((seen.blocks, seen.unknown_removals, index.size().blocks), (1, 0, 1));
}

#[test]
fn a_lapsed_owner_is_an_owner_without_events() {
    let index = mirror();
    let content = told(1, Completeness::Exact, &range(1, 32));
    assert!(index.load(SLOT, content.clone()));
    assert_eq!(stats(&index, 0).completeness, Completeness::Exact);
    let other = BlockChange { on: HeldOn::OtherTier, ..change(content.gpu[1], true) };
    assert!(index.change(SLOT, &[other]));
    assert_eq!(stats(&index, 0).other_tier_blocks, 1);
    index.lapse(SLOT);
    // What comes late belongs to what lapsed.
    assert!(!index.change(SLOT, &[change(content.gpu[0], true)]));
    let seen = stats(&index, 0);
    assert_eq!((seen.completeness, seen.blocks, seen.mirrored), (Completeness::Approximate, 0, false));
    assert_eq!((index.size().blocks, seen.block_size), (0, Some(BlockSize::DEFAULT)));
    // Placements count again, and another lapse does not take them.
    let chains = [chain(&CacheScope::default(), BlockSize::DEFAULT, &range(1, 32), None)];
    index.predict(SLOT, &chains, Duration::from_secs(2), 0).unwrap();
    index.lapse(SLOT);
    assert_eq!(tokens_held(&index, &range(1, 32), 1), [32]);
    assert!(index.load(SLOT, told(2, Completeness::Exact, &range(1, 16))));
    assert_eq!(tokens_held(&index, &range(1, 32), 1), [16]);
}

/// KVE-08: the router sees that the engine sleeps; whoever tells its content may not have seen it yet.
#[test]
fn a_mirrored_owner_that_was_emptied_hears_on() {
    let index = mirror();
    let content = told(1, Completeness::Exact, &range(1, 48));
    assert!(index.load(SLOT, content.clone()));
    index.reset(SLOT);
    let seen = stats(&index, 0);
    assert_eq!((seen.blocks, seen.mirrored, seen.resets), (0, true, 1));
    assert_eq!((tokens_held(&index, &range(1, 48), 1), index.size().blocks), (vec![0], 0));
    // Removals of what is not there any more are harmless, and what comes is held.
    assert!(index.change(SLOT, &[change(content.gpu[2], false), change(content.gpu[0], true)]));
    let seen = stats(&index, 0);
    assert_eq!((tokens_held(&index, &range(1, 48), 1), seen.unknown_removals), (vec![16], 0));
    assert_eq!((seen.block_size, seen.completeness), (Some(BlockSize::DEFAULT), Completeness::Exact));
    assert!(index.load(SLOT, told(2, Completeness::Exact, &range(1, 32))));
    assert_eq!(tokens_held(&index, &range(1, 48), 1), [32]);
    assert!(!index.load(OwnerSlot(9), content));
}

#[test]
fn predictions_are_confirmed_and_dropped_as_by_events() {
    let index = mirror();
    let content = told(1, Completeness::Partial, &range(1, 64));
    let blocks = content.gpu.clone();
    let predicted = |index: &Index| {
        let hit = hits(index, &CacheScope::default(), &range(1, 64), 1)[0];
        (hit.tokens, hit.predicted_tokens)
    };
    let chains = [chain(&CacheScope::default(), BlockSize::DEFAULT, &range(1, 64), None)];
    assert!(index.load(SLOT, OwnerContent { gpu: blocks[..1].to_vec(), ..content.clone() }));
    index.predict(SLOT, &chains, Duration::from_secs(2), 0).unwrap();
    assert_eq!(predicted(&index), (64, 48));
    assert!(index.change(SLOT, &[change(blocks[1], true)]));
    assert_eq!(predicted(&index), (64, 32));
    // The same content again leaves them; an eviction ends the block's own.
    assert!(index.load(SLOT, OwnerContent { gpu: blocks[..2].to_vec(), ..content.clone() }));
    assert_eq!(predicted(&index), (64, 32));
    assert!(index.change(SLOT, &[change(blocks[1], false)]));
    assert_eq!(predicted(&index), (16, 0));
    // A cleared cache ends all of them, and so does a new life.
    index.predict(SLOT, &chains, Duration::from_secs(2), 0).unwrap();
    assert!(index.change(SLOT, &[change(blocks[0], false)]));
    assert_eq!((predicted(&index), index.size().blocks), ((0, 0), 0));
    index.predict(SLOT, &chains, Duration::from_secs(2), 0).unwrap();
    assert!(index.load(SLOT, OwnerContent { life: 2, gpu: Vec::new(), ..content }));
    assert_eq!((predicted(&index), index.size().blocks), ((0, 0), 0));
}

#[test]
fn a_mirrored_owner_keeps_to_its_engines_size_and_bound() {
    let index = mirror();
    index.set_capacity(SLOT, 600, BlockSize::DEFAULT);
    let chain = chain(&CacheScope::default(), BlockSize::new(32).unwrap(), &range(1, 64_000), None);
    let content = OwnerContent {
        life: 1,
        block_size: BlockSize::new(32),
        completeness: Completeness::Exact,
        gpu: chain.hashes.to_vec(),
        other_tiers: chain.hashes.to_vec(),
    };
    assert!(index.load(SLOT, content));
    let seen = stats(&index, 0);
    assert_eq!(seen.block_size_conflict, Some((BlockSize::DEFAULT, BlockSize::new(32).unwrap())));
    assert_eq!((seen.block_size, &*seen.source, seen.mirrored), (BlockSize::new(32), "mirrored", true));
    assert!(seen.last_event_age.is_some() && seen.last_seq.is_none());
    assert!(seen.blocks <= 1200 && seen.other_tier_blocks <= 1200 && seen.over_limit >= 1600, "{seen:?}");
    assert!(index.size().blocks <= 2400);
}

#[test]
fn a_mirrored_block_costs_no_more_than_a_followed_one() {
    let index = mirror();
    let blocks: Vec<BlockHash> =
        (1..=100_000u64).map(|block| BlockHash(block.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    assert!(index.load(SLOT, OwnerContent { gpu: blocks, ..told(1, Completeness::Exact, &[]) }));
    let size = index.size();
    assert!(size.bytes <= 64 * size.blocks, "{} bytes for {} blocks", size.bytes, size.blocks);
}

#[test]
fn an_engine_that_is_followed_is_not_mirrored_too() {
    let index = index(1);
    store(&index, 0, &[1], None, &range(1, 16), 16);
    index.update_follower(SLOT, |status| status.link = Link::Following);
    assert!(!index.load(SLOT, told(1, Completeness::Exact, &range(101, 132))));
    index.lapse(SLOT);
    assert_eq!((tokens_held(&index, &range(1, 16), 1), stats(&index, 0).mirrored), (vec![16], false));
    // Without its follower it may be; then events have nothing to say.
    index.update_follower(SLOT, |status| status.link = Link::None);
    assert!(index.load(SLOT, told(1, Completeness::Exact, &range(101, 132))));
    assert!(!apply(&index, 0, vec![KvEvent::AllCleared]));
    assert_eq!((tokens_held(&index, &range(101, 132), 1), index.size().blocks), (vec![32], 2));
    assert!(index.save(SLOT).is_none());
    // A block that both know is no evidence about engine hashes.
    index.register(OwnerSlot(1), &model(), "").unwrap();
    index.set_completeness(OwnerSlot(1), Completeness::Partial);
    store(&index, 1, &[7, 8], None, &range(101, 132), 16);
    assert_eq!(tokens_held(&index, &range(101, 132), 2), [32, 32]);
}
