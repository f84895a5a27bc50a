//! Stored blocks whose parent is not known: kept, within a bound, until the parent turns up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use super::tier::EngineKey;

/// Most blocks kept for one owner; with 16 tokens a block this is about 2 MiB.
const MOST_BLOCKS: usize = 16_384;

/// What beside the tokens is in a block's hash, by block.
pub(crate) type ExtraKeys = Vec<Option<Vec<Arc<str>>>>;

/// Consecutive blocks of one store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// One for each block; `None` for one that was removed meanwhile.
    pub(crate) keys: Vec<Option<EngineKey>>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) extra_keys: ExtraKeys,
    pub(crate) adapter: Option<Arc<str>>,
}

/// Runs by the parent they wait for, oldest dropped first.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    runs: BTreeMap<u64, (EngineKey, Run)>,
    waiting: HashMap<EngineKey, SmallVec<[u64; 1]>>,
    blocks: HashMap<EngineKey, u64>,
    next: u64,
    /// Blocks dropped because of the bound.
    pub(crate) dropped: u64,
}

impl Orphans {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Blocks kept.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Keeps a run. Blocks that wait already are not kept twice.
    pub(crate) fn keep(&mut self, parent: EngineKey, mut run: Run) {
        for key in &mut run.keys {
            if key.is_some_and(|key| self.blocks.contains_key(&key)) {
                *key = None;
            }
        }
        let fresh = run.keys.iter().flatten().count();
        if fresh == 0 || fresh > MOST_BLOCKS {
            self.dropped += fresh as u64;
            return;
        }
        while self.blocks.len() + fresh > MOST_BLOCKS {
            let Some(oldest) = self.runs.keys().next().copied() else { break };
            self.dropped += self.take(oldest).map_or(0, |run| run.keys.iter().flatten().count() as u64);
        }
        let number = self.next;
        self.next += 1;
        for key in run.keys.iter().flatten() {
            self.blocks.insert(*key, number);
        }
        self.waiting.entry(parent).or_default().push(number);
        self.runs.insert(number, (parent, run));
    }

    /// The runs that waited for `parent`.
    pub(crate) fn take_children(&mut self, parent: EngineKey) -> Vec<Run> {
        let numbers = self.waiting.get(&parent).cloned().unwrap_or_default();
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }

    /// Forgets one block; false when it does not wait here.
    pub(crate) fn remove(&mut self, key: EngineKey) -> bool {
        let Some(number) = self.blocks.remove(&key) else { return false };
        let mut left = false;
        if let Some((_, run)) = self.runs.get_mut(&number) {
            for slot in &mut run.keys {
                if *slot == Some(key) {
                    *slot = None;
                }
                left |= slot.is_some();
            }
        }
        if !left {
            self.take(number);
        }
        true
    }

    /// The parents that are waited for.
    pub(crate) fn parents(&self) -> Vec<EngineKey> {
        self.waiting.keys().copied().collect()
    }

    pub(crate) fn clear(&mut self) {
        let dropped = self.dropped;
        *self = Self { dropped, ..Self::default() };
    }

    fn take(&mut self, number: u64) -> Option<Run> {
        let (parent, run) = self.runs.remove(&number)?;
        for key in run.keys.iter().flatten() {
            self.blocks.remove(key);
        }
        if let Some(numbers) = self.waiting.get_mut(&parent) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.waiting.remove(&parent);
            }
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(keys: std::ops::Range<u64>) -> Run {
        Run { keys: keys.map(|key| Some(EngineKey(key))).collect(), ..Run::default() }
    }

    #[test]
    fn the_oldest_are_dropped_within_the_bound() {
        let mut orphans = Orphans::default();
        for number in 0..3 * MOST_BLOCKS as u64 {
            orphans.keep(EngineKey(1_000_000 + number), run(1 + number..2 + number));
        }
        assert_eq!(orphans.len(), MOST_BLOCKS);
        assert_eq!(orphans.dropped, 2 * MOST_BLOCKS as u64);
        assert_eq!(orphans.parents().len(), MOST_BLOCKS);
        assert!(orphans.take_children(EngineKey(1_000_000)).is_empty());
    }

    #[test]
    fn removed_blocks_do_not_come_back() {
        let mut orphans = Orphans::default();
        orphans.keep(EngineKey(100), run(1..4));
        assert!(orphans.remove(EngineKey(2)));
        assert!(!orphans.remove(EngineKey(2)));
        let taken = orphans.take_children(EngineKey(100));
        assert_eq!(taken[0].keys, [Some(EngineKey(1)), None, Some(EngineKey(3))]);
        assert!(orphans.is_empty() && orphans.parents().is_empty());
        assert_eq!(orphans.blocks.len(), 0);
        orphans.keep(EngineKey(100), run(1..2));
        assert!(orphans.remove(EngineKey(1)));
        assert!(orphans.is_empty() && orphans.parents().is_empty());
    }
}
