//! Our block hashes: chained over everything that decides reuse; and kthena's content-only hash.
//!
//! A chained hash is XXH3 with 64 bits over the parent's hash and the block's token ids. Two prefixes are taken
//! for equal with a chance of about `n * n / 2^65` among `n` resident blocks: 4e-7 with four million. What that
//! would cost is one request on a pod that has less of its prompt than thought, never a wrong answer, so the
//! wider digest is not worth twice the memory of the index. The hash is not keyed: whoever crafts a collision
//! misplaces requests of their own.

use kvasir_core::{BlockChain, BlockHash, BlockSize, CacheScope};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

/// Start of every root: changes with the definition, so that stored keys of two definitions never meet.
const ROOT_TAG: &[u8] = b"kvasir block chain 1";

/// Start of every hash that mixes extra keys in: keeps them apart from token blocks.
const KEYS_TAG: &[u8] = b"kvasir extra keys 1";

/// The chained hashes of the full blocks of `ids`, at most `max_blocks` of them.
///
/// Prefix law: `chain(a ++ b)` starts with `chain(a)`. The salt is an extra key of the first block, as in the
/// engines, so that a request and the events about it meet.
pub fn chain(scope: &CacheScope, block: BlockSize, ids: &[u32], max_blocks: Option<usize>) -> BlockChain {
    let mut chainer = Chainer::new(block);
    let adapter = scope.adapter.as_ref().map(|name| name.as_str());
    let mut hash = root(block, adapter);
    if let Some(salt) = &scope.salt {
        hash = mix(hash, [&**salt]);
    }
    let blocks = max_blocks.unwrap_or(usize::MAX);
    let hashes = ids.chunks_exact(block.tokens()).take(blocks).map(|ids| {
        hash = chainer.next(hash, ids);
        hash
    });
    BlockChain { block_size: block, hashes: hashes.collect() }
}

/// Where a prompt's chain starts: block size and adapter.
pub fn root(block: BlockSize, adapter: Option<&str>) -> BlockHash {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(ROOT_TAG);
    bytes.extend_from_slice(&u32::from(block).to_le_bytes());
    if let Some(adapter) = adapter {
        bytes.extend_from_slice(adapter.as_bytes());
    }
    // No adapter and an adapter with an empty name are two scopes.
    bytes.push(u8::from(adapter.is_some()));
    finish(&bytes)
}

/// The parent of a block that has extra keys (salt, multimodal identities): without keys it is `parent` itself.
pub fn mix<'a>(parent: BlockHash, keys: impl IntoIterator<Item = &'a str>) -> BlockHash {
    let mut keys = keys.into_iter().peekable();
    if keys.peek().is_none() {
        return parent;
    }
    let mut bytes = Vec::with_capacity(128);
    bytes.extend_from_slice(KEYS_TAG);
    bytes.extend_from_slice(&parent.0.to_le_bytes());
    for key in keys {
        bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
    }
    finish(&bytes)
}

/// Hashes block after block, with one buffer.
#[derive(Debug)]
pub struct Chainer {
    block: BlockSize,
    bytes: Vec<u8>,
}

impl Chainer {
    /// For blocks of this size.
    pub fn new(block: BlockSize) -> Self {
        Self { block, bytes: Vec::with_capacity(8 + 4 * block.tokens().min(4096)) }
    }

    /// The size its blocks have.
    pub fn block_size(&self) -> BlockSize {
        self.block
    }

    /// The hash of the block `ids` after `parent`.
    pub fn next(&mut self, parent: BlockHash, ids: &[u32]) -> BlockHash {
        self.bytes.clear();
        self.bytes.extend_from_slice(&parent.0.to_le_bytes());
        self.bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        finish(&self.bytes)
    }
}

/// 0 marks a free place in the index's tables, so no hash is 0.
fn finish(bytes: &[u8]) -> BlockHash {
    BlockHash(xxh3_64(bytes).max(1))
}

/// kthena's hash of one block: SHA-256 over the ids as big-endian 32-bit numbers, its first 8 bytes as a
/// big-endian number with the top bit cleared; 0 for no ids. Knows no position, parent, model or adapter.
pub fn kthena_block_hash(ids: &[u32]) -> u64 {
    if ids.is_empty() {
        return 0;
    }
    let mut digest = Sha256::new();
    for id in ids {
        digest.update(id.to_be_bytes());
    }
    let digest = digest.finalize();
    let first = digest.iter().take(8).fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    first & (u64::MAX >> 1)
}

#[cfg(test)]
mod tests;
