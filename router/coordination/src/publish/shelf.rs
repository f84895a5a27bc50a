//! What was handed to the publisher so far, sorted into chunks: the content that Redis is to have.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use kvasir_core::{BlockChange, BlockHash, HeldOn, OwnerContent};

use crate::snapshot::{Blocks, CHUNK_BLOCKS, ChunkLabel, MOST_CHUNKS, chunk_of, chunks_for, encode_chunk};

const GPU: u8 = 1;
const OTHER_TIER: u8 = 2;

/// An owner's blocks by chunk, with a mark on each chunk that changed since it was last written.
#[derive(Debug)]
pub(super) struct Shelf {
    parts: Vec<Part>,
    blocks: usize,
}

#[derive(Debug, Default)]
struct Part {
    held: HashMap<BlockHash, u8, BuildHasherDefault<Spread>>,
    dirty: bool,
}

/// Block hashes are random already; one multiplication moves what differs within a chunk to the bits that the table
/// uses.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Shelf {
    /// Without blocks.
    pub(super) fn new() -> Self {
        Self { parts: vec![Part::default()], blocks: 0 }
    }

    /// With these blocks instead.
    pub(super) fn replace(&mut self, content: &OwnerContent) {
        *self = Self::with_chunks(chunks_for(content.gpu.len() + content.other_tiers.len()));
        let on = |blocks: &[BlockHash], on, shelf: &mut Self| {
            for block in blocks {
                shelf.apply(&BlockChange { block: *block, on, held: true });
            }
        };
        on(&content.gpu, HeldOn::Gpu, self);
        on(&content.other_tiers, HeldOn::OtherTier, self);
    }

    pub(super) fn apply(&mut self, change: &BlockChange) {
        let chunk = chunk_of(change.block, self.chunks());
        let Some(part) = self.parts.get_mut(chunk as usize) else { return };
        let tier = match change.on {
            HeldOn::Gpu => GPU,
            HeldOn::OtherTier => OTHER_TIER,
        };
        part.dirty = true;
        if change.held {
            let held = part.held.entry(change.block).or_insert(0);
            self.blocks += usize::from(*held == 0);
            *held |= tier;
        } else if let Some(held) = part.held.get_mut(&change.block) {
            *held &= !tier;
            if *held == 0 {
                part.held.remove(&change.block);
                self.blocks -= 1;
            }
        }
    }

    /// Blocks held, each counted once.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> u32 {
        self.parts.len() as u32
    }

    /// Whether the chunks have grown so much that there should be more of them.
    pub(super) fn is_crowded(&self) -> bool {
        self.chunks() < MOST_CHUNKS && self.blocks > 2 * CHUNK_BLOCKS * self.parts.len()
    }

    /// Spreads the blocks over as many chunks as suit them; all of them are to be written then.
    pub(super) fn spread_out(&mut self) {
        let old = std::mem::replace(self, Self::with_chunks(chunks_for(self.blocks)));
        self.blocks = old.blocks;
        let chunks = self.chunks();
        for (block, tiers) in old.parts.into_iter().flat_map(|part| part.held) {
            if let Some(part) = self.parts.get_mut(chunk_of(block, chunks) as usize) {
                part.held.insert(block, tiers);
            }
        }
    }

    /// The chunks that changed since they were written.
    pub(super) fn dirty(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().enumerate().filter(|(_, part)| part.dirty).map(|(index, _)| index as u32)
    }

    /// A chunk must be written although nothing in it changed.
    pub(super) fn mark(&mut self, index: u32) {
        if let Some(part) = self.parts.get_mut(index as usize) {
            part.dirty = true;
        }
    }

    /// The bytes of a chunk, which counts as written from here on.
    pub(super) fn encode(&mut self, label: ChunkLabel) -> Vec<u8> {
        let mut blocks = Blocks::default();
        if let Some(part) = self.parts.get_mut(label.index as usize) {
            part.dirty = false;
            let on = |tier: u8| {
                part.held.iter().filter(move |(_, held)| **held & tier != 0).map(|(block, _)| *block)
            };
            blocks.gpu.reserve_exact(part.held.len());
            blocks.gpu.extend(on(GPU));
            blocks.other_tiers.extend(on(OTHER_TIER));
        }
        encode_chunk(label, &blocks)
    }

    fn with_chunks(chunks: u32) -> Self {
        let part = || Part { dirty: true, ..Part::default() };
        Self { parts: (0..chunks).map(|_| part()).collect(), blocks: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kvasir_core::Completeness;
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::{Epoch, decode_chunk};

    fn read(shelf: &mut Shelf) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let mut blocks = Blocks::default();
        let chunks = shelf.chunks();
        for index in 0..chunks {
            let label = ChunkLabel { epoch: Epoch(1), generation: 2, index };
            decode_chunk(&shelf.encode(label), label, chunks, &mut blocks).unwrap();
        }
        let sorted = |blocks: Vec<BlockHash>| blocks.into_iter().map(|block| block.0).collect();
        (sorted(blocks.gpu), sorted(blocks.other_tiers))
    }

    #[test]
    fn a_crowded_shelf_is_spread_out_and_loses_nothing() {
        let mut shelf = Shelf::new();
        let hash = |number: u64| BlockHash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for number in 0..=2 * CHUNK_BLOCKS as u64 {
            assert!(!shelf.is_crowded());
            shelf.apply(&BlockChange { block: hash(number), on: HeldOn::Gpu, held: true });
        }
        assert!(shelf.is_crowded());
        let before = read(&mut shelf);
        assert_eq!(shelf.dirty().count(), 0);
        shelf.spread_out();
        assert_eq!((shelf.chunks(), shelf.dirty().count(), shelf.is_crowded()), (4, 4, false));
        assert_eq!(read(&mut shelf), before);
    }

    #[test]
    fn only_what_changed_is_dirty() {
        let mut shelf = Shelf::new();
        let blocks = (0..20_000u64).map(|number| BlockHash(number << 49)).collect();
        let content = OwnerContent {
            life: 0,
            block_size: None,
            completeness: Completeness::Exact,
            gpu: blocks,
            other_tiers: Vec::new(),
        };
        shelf.replace(&content);
        assert_eq!(shelf.chunks(), 8);
        read(&mut shelf);
        shelf.apply(&BlockChange { block: BlockHash(7 << 61), on: HeldOn::OtherTier, held: false });
        shelf.mark(2);
        assert_eq!(shelf.dirty().collect::<Vec<_>>(), [2, 7]);
    }

    proptest! {
        #[test]
        fn it_holds_what_two_sets_hold(
            changes in proptest::collection::vec((0..20u64, any::<bool>(), any::<bool>()), 0..200),
        ) {
            let mut shelf = Shelf::new();
            let mut sets = (BTreeSet::new(), BTreeSet::new());
            for (block, gpu, held) in changes {
                let on = if gpu { HeldOn::Gpu } else { HeldOn::OtherTier };
                shelf.apply(&BlockChange { block: BlockHash(block), on, held });
                let set = if gpu { &mut sets.0 } else { &mut sets.1 };
                if held { set.insert(block) } else { set.remove(&block) };
            }
            prop_assert_eq!(shelf.blocks(), sets.0.union(&sets.1).count());
            prop_assert_eq!(read(&mut shelf), sets);
        }
    }
}
