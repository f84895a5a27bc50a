//! A saved owner as bytes: little-endian, versioned, with its length ahead and a checksum behind.
//!
//! ```text
//! magic 4 | version u16 | length u64 | definition u64
//! model: u16, text | completeness u8
//! first batch: seq u64, ts f64, 0 or 1, digest u64 | last batch: the same
//! page u32 | followed group: 0 or 1, u32 | partial groups u64
//! GPU tier | number of other tiers u8, each: u16, name, tier
//! pages: u32, each: key u64, previous u64 or 0, chain u64, tokens u8, u32 each
//! XXH3 of all before u64
//! tier: blocks u32, each: key u64, block u64 | copies u32, each: key u64, further copies u32
//! ```

use kvasir_core::{BlockSize, Completeness};
use xxhash_rust::xxh3::xxh3_64;

use super::SavedOwner;
use crate::hash;
use crate::index::BatchMark;
use crate::index::pages::SavedPage;
use crate::index::tier::SavedTier;

/// First bytes of a saved owner.
pub(super) const MAGIC: &[u8; 4] = b"KVSO";

/// The layout of the module's header.
pub(super) const VERSION: u16 = 1;

/// Longest name of a model or a tier, bytes. Engines and registries stay far below.
pub(in crate::index) const LONGEST_NAME: usize = 4096;

/// Where the length stands.
const LENGTH_AT: usize = MAGIC.len() + 2;

/// Changes with the definition of a block's hash, so that keys of two definitions never meet.
pub(super) fn definition() -> u64 {
    hash::root(BlockSize::DEFAULT, None).0
}

impl SavedOwner {
    /// The bytes, for a file or a store: 16 a block and about 100 more. Read back by
    /// [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let content = &self.content;
        let blocks = |tier: &SavedTier| tier.blocks.len() * 16 + tier.copies.len() * 12;
        let others = content.other_tiers.iter().map(|(_, tier)| blocks(tier)).sum::<usize>();
        let mut out = Vec::with_capacity(256 + blocks(&content.gpu) + others + content.pages.len() * 32);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&definition().to_le_bytes());
        put_text(&mut out, self.model.as_str());
        out.push(match self.completeness {
            Completeness::Exact => 0,
            Completeness::Partial => 1,
            Completeness::Approximate => 2,
        });
        put_mark(&mut out, &self.first);
        put_mark(&mut out, &self.last);
        out.extend_from_slice(&content.page.to_le_bytes());
        out.push(u8::from(content.groups.followed.is_some()));
        out.extend_from_slice(&content.groups.followed.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&content.groups.partial.to_le_bytes());
        put_tier(&mut out, &content.gpu);
        out.push(u8::try_from(content.other_tiers.len()).unwrap_or(u8::MAX));
        for (name, tier) in content.other_tiers.iter().take(usize::from(u8::MAX)) {
            put_text(&mut out, name);
            put_tier(&mut out, tier);
        }
        put_count(&mut out, content.pages.len());
        content.pages.iter().for_each(|page| put_page(&mut out, page));
        let length = (out.len() + 8) as u64;
        if let Some(place) = out.get_mut(LENGTH_AT..LENGTH_AT + 8) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }
}

/// What is written is bounded far below 2^32 by the index's own limits.
fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_mark(out: &mut Vec<u8>, mark: &BatchMark) {
    out.extend_from_slice(&mark.seq.to_le_bytes());
    out.extend_from_slice(&mark.ts.to_bits().to_le_bytes());
    out.push(u8::from(mark.digest.is_some()));
    out.extend_from_slice(&mark.digest.unwrap_or(0).to_le_bytes());
}

fn put_tier(out: &mut Vec<u8>, tier: &SavedTier) {
    put_count(out, tier.blocks.len());
    for (key, block) in &tier.blocks {
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&block.to_le_bytes());
    }
    put_count(out, tier.copies.len());
    for (key, copies) in &tier.copies {
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&copies.to_le_bytes());
    }
}

fn put_page(out: &mut Vec<u8>, page: &SavedPage) {
    out.extend_from_slice(&page.key.0.to_le_bytes());
    out.extend_from_slice(&page.previous.map_or(0, |previous| previous.0).to_le_bytes());
    out.extend_from_slice(&page.chain.0.to_le_bytes());
    out.push(page.tokens.len() as u8);
    for token in &page.tokens {
        out.extend_from_slice(&token.to_le_bytes());
    }
}
