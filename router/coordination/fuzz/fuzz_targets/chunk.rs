//! Any bytes as a chunk: they are refused, or say the same when written again.
#![no_main]

use kvasir_coordination::snapshot::{Blocks, ChunkLabel, Epoch, decode_chunk, encode_chunk};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first byte says how many chunks there are, the rest is the chunk, whose label is taken from itself so that
    // the checks behind it are reached.
    let Some((chunks, bytes)) = input.split_first() else { return };
    let chunks = 1 << (chunks % 13);
    let word = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes);
    let label = ChunkLabel { epoch: Epoch(word(8)), generation: word(16), index: (word(4) & 0xffff_ffff) as u32 };
    let mut blocks = Blocks::default();
    if decode_chunk(bytes, label, chunks, &mut blocks).is_ok() {
        let written = encode_chunk(label, &blocks);
        // The three bytes after the schema are not read.
        assert_eq!((written[0], &written[4..]), (bytes[0], &bytes[4..]));
    } else {
        assert_eq!(blocks, Blocks::default());
    }
});
