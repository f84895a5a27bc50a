//! One chunk of a snapshot as bytes: a header of 32 bytes, and eight bytes for each block.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | schema, 1 |
//! | 1..4 | zero |
//! | 4..8 | which chunk |
//! | 8..16 | epoch |
//! | 16..24 | generation |
//! | 24..28 | blocks in GPU memory |
//! | 28..32 | blocks on slower tiers |
//! | 32.. | the blocks' hashes, those in GPU memory first |
//!
//! All numbers are little-endian. A block is in the chunk that its hash's top bits name.

use kvasir_core::BlockHash;

use super::Epoch;

/// Blocks that a chunk is meant for: 32 KiB, small enough to be rewritten for a few changes, and a million blocks are
/// still only 256 keys.
pub const CHUNK_BLOCKS: usize = 4096;

/// The most chunks of one owner: room for 16 million blocks at the intended size.
pub const MOST_CHUNKS: u32 = 4096;

/// The most blocks that a reader takes from one chunk; hashes spread evenly, so no writer comes near it.
const MOST_BLOCKS: usize = 1 << 18;

const SCHEMA: u8 = 1;
const HEADER: usize = 32;

/// Where a chunk belongs. A chunk that says otherwise is from another time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLabel {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The generation of chunks.
    pub generation: u64,
    /// Its place among them.
    pub index: u32,
}

/// Blocks by tier.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    /// Those in GPU memory.
    pub gpu: Vec<BlockHash>,
    /// Those on slower tiers.
    pub other_tiers: Vec<BlockHash>,
}

/// Why bytes are not the chunk that was wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunkError {
    /// Another schema.
    #[error("the chunk has schema {0}")]
    Schema(u8),
    /// It has not the length that its header promises, or more blocks than any writer writes.
    #[error("the chunk's length is wrong")]
    Length,
    /// It belongs elsewhere.
    #[error("the chunk is of another epoch, generation or place")]
    Label,
    /// A block in it belongs into another chunk.
    #[error("a block is in the wrong chunk")]
    Block,
}

/// How many chunks `blocks` blocks are spread over: a power of two.
pub fn chunks_for(blocks: usize) -> u32 {
    let wanted = blocks.div_ceil(CHUNK_BLOCKS).max(1).next_power_of_two();
    u32::try_from(wanted).unwrap_or(MOST_CHUNKS).min(MOST_CHUNKS)
}

/// The chunk of a block, of `chunks` (a power of two).
pub fn chunk_of(block: BlockHash, chunks: u32) -> u32 {
    // A shift by 64 for a single chunk would overflow.
    block.0.checked_shr(64 - chunks.trailing_zeros()).unwrap_or(0) as u32
}

/// The bytes of a chunk.
pub fn encode_chunk(label: ChunkLabel, blocks: &Blocks) -> Vec<u8> {
    let count = blocks.gpu.len() + blocks.other_tiers.len();
    let mut bytes = Vec::with_capacity(HEADER + 8 * count);
    bytes.extend_from_slice(&[SCHEMA, 0, 0, 0]);
    bytes.extend_from_slice(&label.index.to_le_bytes());
    bytes.extend_from_slice(&label.epoch.0.to_le_bytes());
    bytes.extend_from_slice(&label.generation.to_le_bytes());
    bytes.extend_from_slice(&(blocks.gpu.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(blocks.other_tiers.len() as u32).to_le_bytes());
    for block in blocks.gpu.iter().chain(&blocks.other_tiers) {
        bytes.extend_from_slice(&block.0.to_le_bytes());
    }
    bytes
}

/// Reads the chunk that `label` names, one of `chunks`, and adds its blocks to `into`.
///
/// # Errors
/// The bytes are something else; nothing is added then.
pub fn decode_chunk(
    bytes: &[u8],
    label: ChunkLabel,
    chunks: u32,
    into: &mut Blocks,
) -> Result<(), ChunkError> {
    let (header, packed) = bytes.split_at_checked(HEADER).ok_or(ChunkError::Length)?;
    if header[0] != SCHEMA {
        return Err(ChunkError::Schema(header[0]));
    }
    let found = ChunkLabel {
        epoch: Epoch(long(&header[8..16])),
        generation: long(&header[16..24]),
        index: short(&header[4..8]),
    };
    if found != label {
        return Err(ChunkError::Label);
    }
    let (gpu, other) = (short(&header[24..28]) as usize, short(&header[28..32]) as usize);
    let count = gpu.checked_add(other).filter(|count| *count <= MOST_BLOCKS).ok_or(ChunkError::Length)?;
    if packed.len() != 8 * count {
        return Err(ChunkError::Length);
    }
    let (on_gpu, elsewhere) = packed.split_at(8 * gpu);
    if packed.chunks_exact(8).any(|word| chunk_of(BlockHash(long(word)), chunks) != label.index) {
        return Err(ChunkError::Block);
    }
    into.gpu.extend(on_gpu.chunks_exact(8).map(|word| BlockHash(long(word))));
    into.other_tiers.extend(elsewhere.chunks_exact(8).map(|word| BlockHash(long(word))));
    Ok(())
}

/// A little-endian number of 8 bytes; the callers cut exactly that.
fn long(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// A little-endian number of 4 bytes; the callers cut exactly that.
fn short(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LABEL: ChunkLabel = ChunkLabel { epoch: Epoch(7), generation: 9, index: 2 };

    fn blocks(gpu: &[u64], other: &[u64]) -> Blocks {
        let hashes = |hashes: &[u64]| hashes.iter().map(|hash| BlockHash(*hash)).collect();
        Blocks { gpu: hashes(gpu), other_tiers: hashes(other) }
    }

    #[test]
    fn a_block_is_in_the_chunk_of_its_top_bits() {
        assert_eq!(chunk_of(BlockHash(u64::MAX), 1), 0);
        assert_eq!(chunk_of(BlockHash(u64::MAX), 4), 3);
        assert_eq!(chunk_of(BlockHash(1 << 62), 4), 1);
        assert_eq!(chunk_of(BlockHash(u64::MAX), MOST_CHUNKS), MOST_CHUNKS - 1);
    }

    #[test]
    fn chunks_grow_with_the_blocks_up_to_the_limit() {
        let cases = [
            (0, 1),
            (1, 1),
            (4096, 1),
            (4097, 2),
            (1_000_000, 256),
            (100_000_000, MOST_CHUNKS),
            (usize::MAX, MOST_CHUNKS),
        ];
        for (count, chunks) in cases {
            assert_eq!(chunks_for(count), chunks, "{count}");
        }
    }

    #[test]
    fn what_is_not_the_chunk_is_refused_and_adds_nothing() {
        let good = encode_chunk(LABEL, &blocks(&[2 << 62, (2 << 62) + 5], &[(2 << 62) + 9]));
        let broken = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            bytes
        };
        let cases: [(Vec<u8>, ChunkError); 9] = [
            (Vec::new(), ChunkError::Length),
            (good[..31].to_vec(), ChunkError::Length),
            (good[..good.len() - 1].to_vec(), ChunkError::Length),
            (broken(0, 2), ChunkError::Schema(2)),
            (broken(4, 1), ChunkError::Label),
            (broken(8, 1), ChunkError::Label),
            (broken(16, 1), ChunkError::Label),
            (broken(27, 255), ChunkError::Length),
            (broken(39, 0), ChunkError::Block),
        ];
        for (bytes, error) in cases {
            let mut into = Blocks::default();
            assert_eq!(decode_chunk(&bytes, LABEL, 4, &mut into), Err(error));
            assert_eq!(into, Blocks::default());
        }
        let mut into = Blocks::default();
        decode_chunk(&good, LABEL, 4, &mut into).unwrap();
        assert_eq!(into, blocks(&[2 << 62, (2 << 62) + 5], &[(2 << 62) + 9]));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            gpu in proptest::collection::vec(any::<u64>(), 0..50),
            other in proptest::collection::vec(any::<u64>(), 0..50),
            bits in 0..13u32,
            index in any::<u32>(),
        ) {
            let chunks = 1 << bits;
            let index = index % chunks;
            let place = |hash: u64| if bits == 0 { hash } else { (hash >> bits) | (u64::from(index) << (64 - bits)) };
            let place = |hashes: Vec<u64>| hashes.into_iter().map(|hash| BlockHash(place(hash))).collect();
            let blocks = Blocks { gpu: place(gpu), other_tiers: place(other) };
            let label = ChunkLabel { index, ..LABEL };
            let mut into = Blocks::default();
            decode_chunk(&encode_chunk(label, &blocks), label, chunks, &mut into).unwrap();
            prop_assert_eq!(into, blocks);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_chunk(&bytes, LABEL, 4, &mut Blocks::default());
        }
    }
}
