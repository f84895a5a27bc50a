//! Producer `text_hashes`: the byte chain of the flat prompt that `prefix-cache` matches on.
//!
//! `h0 = XXH64(name)`, `h(i) = XXH64(decimal digits of h(i-1), then the bytes of block i)`, seed 0. The last block
//! may be shorter and is hashed too. The list is h1, h2, ...; `name` is the adapter's, else the engine's served
//! name. A request with a cache salt starts from another h0, because engines never share its blocks.

use std::io::Write;

use kvasir_core::{
    BoxFuture, Candidates, CycleState, DataProducer, InferenceRequest, Needs, Plugin, ProduceError,
};
use kvasir_settings::resolved::PrefixCacheArgs;
use xxhash_rust::xxh64::xxh64;

use super::flat_prompt::flat_prompt;

/// The arguments are those of `prefix-cache`.
#[derive(Clone, Debug)]
pub struct TextHashes {
    block_bytes: usize,
    max_blocks: usize,
}

impl TextHashes {
    /// The name in metrics.
    pub const NAME: &'static str = "text-hashes";

    /// With the block size and the number of blocks of `prefix-cache`.
    pub fn new(args: &PrefixCacheArgs) -> Self {
        Self { block_bytes: args.block_size_to_hash.max(1), max_blocks: args.max_blocks_to_match }
    }

    fn hashes(&self, request: &InferenceRequest) -> Vec<u64> {
        let most = self.block_bytes.saturating_mul(self.max_blocks);
        let prompt = flat_prompt(request, most);
        if prompt.is_empty() {
            return Vec::new();
        }
        let name =
            request.adapter.as_ref().map_or(request.model.as_str(), |adapter| adapter.as_str()).as_bytes();
        let first = match &request.cache_salt {
            // 0 is in no model's name, so a salted name is never another model's plain one.
            Some(salt) => xxh64(&[name, &[0], salt.as_bytes()].concat(), 0),
            None => xxh64(name, 0),
        };
        chain(first, prompt.as_bytes(), self.block_bytes, self.max_blocks)
    }
}

impl Plugin for TextHashes {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl DataProducer for TextHashes {
    fn provides(&self) -> Needs {
        Needs::TEXT_HASHES
    }

    fn produce<'a>(
        &'a self,
        request: &'a InferenceRequest,
        _: &'a Candidates,
        cycle: &'a mut CycleState,
    ) -> BoxFuture<'a, Result<(), ProduceError>> {
        Box::pin(async move {
            cycle.text_hashes = self.hashes(request);
            Ok(())
        })
    }
}

/// The chain over `text` after `first`.
fn chain(first: u64, text: &[u8], block_bytes: usize, max_blocks: usize) -> Vec<u64> {
    let mut input = Vec::with_capacity(block_bytes.min(text.len()) + 20);
    let mut before = first;
    text.chunks(block_bytes)
        .take(max_blocks)
        .map(|block| {
            input.clear();
            // Writing to a vector cannot fail.
            let _ = write!(input, "{before}");
            input.extend_from_slice(block);
            before = xxh64(&input, 0);
            before
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{chat, completion, pool_of};
    use proptest::prelude::{any, prop_assert_eq, proptest};

    fn defaults() -> TextHashes {
        TextHashes::new(&PrefixCacheArgs::default())
    }

    fn of_model(model: &str, request: InferenceRequest) -> InferenceRequest {
        InferenceRequest { model: model.into(), ..request }
    }

    #[test]
    fn known_vectors() {
        let cycling: String = (b'a'..=b'z').cycle().take(8192).map(char::from).collect();
        let hashes = defaults().hashes(&of_model("bench-model", completion(&cycling)));
        assert_eq!(xxh64(b"bench-model", 0), 2_499_964_667_930_441_617);
        assert_eq!(hashes.len(), 128);
        assert_eq!(
            (hashes[0], hashes[1], hashes[2], hashes[127]),
            (
                2_255_003_460_060_045_391,
                11_149_546_857_834_002_314,
                17_187_590_233_846_641_107,
                3_713_727_362_220_958_295
            )
        );
        let hashes = defaults().hashes(&of_model("test-model", completion("same prompt for both pods")));
        assert_eq!(hashes, [12_024_042_426_369_328_852]);
        let hashes = defaults().hashes(&of_model("llama-3", chat(r#"[{"role":"user","content":"Hello"}]"#)));
        assert_eq!(hashes, [11_849_941_108_252_479_218]);
        let hashes = defaults().hashes(&of_model("m", completion(&"\u{65e5}\u{672c}\u{8a9e}".repeat(30))));
        assert_eq!(
            hashes,
            [
                4_088_780_339_618_142_058,
                1_047_504_981_797_725_561,
                13_103_744_798_841_096_414,
                4_631_405_432_898_381_489,
                15_762_492_958_623_394_570
            ]
        );
    }

    #[tokio::test]
    async fn an_empty_prompt_has_no_hashes() {
        let request = completion("");
        let mut cycle = CycleState::new(&request);
        assert_eq!(defaults().produce(&request, &pool_of([]), &mut cycle).await, Ok(()));
        assert!(cycle.text_hashes.is_empty());
    }

    #[test]
    fn what_lies_beyond_the_window_is_not_looked_at() {
        let args =
            PrefixCacheArgs { block_size_to_hash: 4, max_blocks_to_match: 2, ..PrefixCacheArgs::default() };
        let hashes = |text: &str| TextHashes::new(&args).hashes(&completion(text));
        assert_eq!(hashes("abcdefgh"), hashes("abcdefghijkl"));
        assert_eq!(hashes("abcdefgh").len(), 2);
    }

    #[test]
    fn adapter_and_salt_have_chains_of_their_own() {
        let plain = defaults().hashes(&completion("x"));
        let adapted = InferenceRequest { adapter: Some("red".into()), ..completion("x") };
        let salted = InferenceRequest { cache_salt: Some("s".into()), ..completion("x") };
        assert_eq!(defaults().hashes(&adapted), defaults().hashes(&of_model("red", completion("x"))));
        assert_ne!(defaults().hashes(&adapted), plain);
        assert_ne!(defaults().hashes(&salted), plain);
    }

    proptest! {
        #[test]
        fn a_common_beginning_gives_common_hashes(
            start in any::<[u8; 32]>(), one in any::<Vec<u8>>(), other in any::<Vec<u8>>(),
        ) {
            let hashes = |tail: &[u8]| chain(1, &[&start, tail].concat(), 8, 99);
            prop_assert_eq!(&hashes(&one)[..4], &hashes(&other)[..4]);
            prop_assert_eq!(hashes(&one).len(), 4 + one.len().div_ceil(8));
        }
    }
}
