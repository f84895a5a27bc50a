//! What is kept of an owner in Redis: its head, and its blocks in chunks.

mod chunk;
mod head;

pub use chunk::{
    Blocks, CHUNK_BLOCKS, ChunkError, ChunkLabel, MOST_CHUNKS, chunk_of, chunks_for, decode_chunk,
    encode_chunk,
};
pub use head::{Epoch, Head, HeadFault};

pub(crate) use head::{completeness_code, completeness_of_code};
