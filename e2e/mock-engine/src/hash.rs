//! Block hashes of the engine's own: chained over the tokens, the adapter and the salt.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::HashRoot;

/// Root of [`HashRoot::Fixed`]: any number, the same for every engine.
const FIXED_ROOT: u64 = 0x6b76_6173_6972_0001;

/// One engine's own name for a block's content and everything before it.
pub(crate) type Hash = u64;

/// What beside the tokens goes into the hashes of one sequence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// On every block.
    pub(crate) adapter: Option<Arc<str>>,
    /// On the first block, and through the chain on all others.
    pub(crate) salt: Option<Arc<str>>,
}

/// Makes hashes for one start of one engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    root: u64,
    block_size: usize,
}

impl Hasher {
    /// `chance` is used for a random root only.
    pub(crate) fn new(root: HashRoot, block_size: usize, chance: u64) -> Self {
        let root = match root {
            HashRoot::Fixed => FIXED_ROOT,
            HashRoot::Random => chance,
        };
        Self { root, block_size }
    }

    /// Adds the hashes of the full blocks of `tokens` that `chain` does not have yet.
    pub(crate) fn extend(&self, chain: &mut Vec<Hash>, tokens: &[u32], scope: &Scope) {
        let mut bytes = Vec::with_capacity(self.block_size * 4 + 64);
        for block in tokens.chunks_exact(self.block_size).skip(chain.len()) {
            bytes.clear();
            for token in block {
                bytes.extend_from_slice(&token.to_le_bytes());
            }
            if let Some(adapter) = &scope.adapter {
                bytes.push(1);
                bytes.extend_from_slice(adapter.as_bytes());
            }
            if let (Some(salt), true) = (&scope.salt, chain.is_empty()) {
                bytes.push(2);
                bytes.extend_from_slice(salt.as_bytes());
            }
            let parent = chain.last().copied().unwrap_or(self.root);
            chain.push(xxh3_64_with_seed(&bytes, parent));
        }
    }
}

/// The 32 bytes that stand for a hash where the engine publishes raw bytes.
pub(crate) fn widen(hash: Hash) -> [u8; 32] {
    let mut wide = [0; 32];
    let source = hash.to_be_bytes();
    for (lane, target) in wide.chunks_exact_mut(8).enumerate() {
        target.copy_from_slice(&xxh3_64_with_seed(&source, lane as u64).to_be_bytes());
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(root: HashRoot, tokens: &[u32], scope: &Scope) -> Vec<Hash> {
        let mut chain = Vec::new();
        Hasher::new(root, 4, 77).extend(&mut chain, tokens, scope);
        chain
    }

    #[test]
    fn a_block_hash_covers_everything_before_it() {
        let plain = Scope::default();
        let first = chain(HashRoot::Fixed, &[1, 2, 3, 4, 5, 6, 7, 8, 9], &plain);
        let second = chain(HashRoot::Fixed, &[0, 2, 3, 4, 5, 6, 7, 8], &plain);
        assert_eq!(first.len(), 2, "the partial block has no hash");
        assert_ne!(first[0], second[0]);
        assert_ne!(first[1], second[1], "equal tokens after another parent");
        assert_ne!(first, chain(HashRoot::Random, &[1, 2, 3, 4, 5, 6, 7, 8], &plain));
    }

    #[test]
    fn growing_a_chain_gives_the_chain_of_the_whole() {
        let scope = Scope { adapter: Some("a".into()), salt: Some("s".into()) };
        let hasher = Hasher::new(HashRoot::Fixed, 4, 0);
        let tokens: Vec<u32> = (0..20).collect();
        let mut grown = Vec::new();
        for end in 0..=tokens.len() {
            hasher.extend(&mut grown, &tokens[..end], &scope);
        }
        let mut whole = Vec::new();
        hasher.extend(&mut whole, &tokens, &scope);
        assert_eq!(grown, whole);
    }

    #[test]
    fn adapter_and_salt_separate_and_are_not_each_other() {
        let tokens = [1, 2, 3, 4];
        let none = chain(HashRoot::Fixed, &tokens, &Scope::default());
        let salt = chain(HashRoot::Fixed, &tokens, &Scope { adapter: None, salt: Some("x".into()) });
        let adapter = chain(HashRoot::Fixed, &tokens, &Scope { adapter: Some("x".into()), salt: None });
        assert!(none != salt && none != adapter && salt != adapter);
        assert_ne!(widen(none[0]), widen(salt[0]));
    }
}
