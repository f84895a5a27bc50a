//! Pages smaller than 16 tokens, gathered into units that are worth a hash (decision D3).
//!
//! SGLang's default page is one token. A unit is held while its last page is: radix caches give up leaves
//! first, so a page never leaves before those that follow it.

use std::collections::HashMap;

use kvasir_core::{BlockHash, BlockSize};
use smallvec::SmallVec;

use super::tier::EngineKey;

/// Fewest tokens that are hashed together.
const SMALLEST_UNIT: u32 = 16;

/// How an engine's pages become blocks of the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Paging {
    /// Tokens in one of the engine's blocks.
    pub(crate) page: u32,
    /// Tokens in one of ours.
    pub(crate) unit: BlockSize,
}

impl Paging {
    /// The smallest multiple of the page that has at least 16 tokens; `None` for a page of 0.
    pub(crate) fn of(page: u32) -> Option<Self> {
        let pages = if page == 0 { return None } else { SMALLEST_UNIT.div_ceil(page) };
        Some(Self { page, unit: BlockSize::new(page.checked_mul(pages)?)? })
    }

    /// Whether each page is a unit.
    pub(crate) fn is_plain(self) -> bool {
        self.page as usize == self.unit.tokens()
    }
}

/// A place in a prompt: the last whole unit's hash and the tokens after it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) chain: BlockHash,
    pub(crate) tail: SmallVec<[u32; 16]>,
}

impl Place {
    pub(crate) fn at(chain: BlockHash) -> Self {
        Self { chain, tail: SmallVec::new() }
    }
}

#[derive(Debug)]
struct Page {
    /// The page before it in the same unit.
    previous: Option<EngineKey>,
    /// The hash that the unit's tokens are chained to.
    chain: BlockHash,
    tokens: SmallVec<[u32; 4]>,
}

/// A page as it is left behind.
#[derive(Clone, PartialEq)]
pub(crate) struct SavedPage {
    pub(crate) key: EngineKey,
    pub(crate) previous: Option<EngineKey>,
    pub(crate) chain: BlockHash,
    pub(crate) tokens: SmallVec<[u32; 4]>,
}

/// The pages that end no unit. Those that end one are in the tier, like any block.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: HashMap<EngineKey, Page>,
}

impl Pages {
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn insert(
        &mut self,
        key: EngineKey,
        previous: Option<EngineKey>,
        chain: BlockHash,
        tokens: &[u32],
    ) {
        self.pages.insert(key, Page { previous, chain, tokens: SmallVec::from_slice(tokens) });
    }

    pub(crate) fn save(&self) -> Vec<SavedPage> {
        let saved = |(key, page): (&EngineKey, &Page)| SavedPage {
            key: *key,
            previous: page.previous,
            chain: page.chain,
            tokens: page.tokens.clone(),
        };
        self.pages.iter().map(saved).collect()
    }

    pub(crate) fn remove(&mut self, key: EngineKey) -> bool {
        self.pages.remove(&key).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.pages = HashMap::new();
    }

    /// The place after `key`; `None` when it, or a page before it in its unit, is not known.
    pub(crate) fn place_after(&self, key: EngineKey) -> Option<Place> {
        let mut page = self.pages.get(&key)?;
        let chain = page.chain;
        let mut backwards: SmallVec<[&[u32]; 16]> = SmallVec::new();
        loop {
            backwards.push(&page.tokens);
            match page.previous {
                // A unit has at most 16 pages; more is a ring made of reused hashes.
                Some(_) if backwards.len() >= SMALLEST_UNIT as usize => return None,
                Some(previous) => page = self.pages.get(&previous)?,
                None => break,
            }
        }
        let tail = backwards.iter().rev().flat_map(|tokens| tokens.iter().copied()).collect();
        Some(Place { chain, tail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_at_least_sixteen_tokens() {
        for (page, unit) in [(1, 16), (2, 16), (3, 18), (5, 20), (15, 30), (16, 16), (64, 64)] {
            assert_eq!(Paging::of(page).map(|paging| paging.unit.tokens()), Some(unit), "{page}");
        }
        assert_eq!(Paging::of(0), None);
    }

    #[test]
    fn a_ring_of_pages_ends() {
        let mut pages = Pages::default();
        pages.insert(EngineKey(1), Some(EngineKey(2)), BlockHash(1), &[1]);
        pages.insert(EngineKey(2), Some(EngineKey(1)), BlockHash(1), &[2]);
        assert!(pages.place_after(EngineKey(1)).is_none());
    }
}
