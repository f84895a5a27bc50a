//! `kvcache-aware`: prefers endpoints that hold the most of the prompt's blocks.
//!
//! `score = trunc(matched / blocks x 100)` in floating point, where `blocks` are the full blocks that were looked at
//! (a partial last one is not counted, so a fully cached prompt scores 100) and `matched` those that the endpoint
//! holds from the first on without a gap. No opinion without blocks (a prompt shorter than one, or no tokens),
//! for a request that skips the engine's cache, and for an endpoint of which nothing is known.
//!
//! | parameter | default | |
//! |---|---|---|
//! | `coordination` | each owner where it is known | `mirror` looks in memory, `query` in Redis, in kthena's layout |
//! | `maxBlocksToMatch` | the whole prompt; 128 in Redis | blocks looked at, from the first on |
//! | `blockSizeToHash` | 16 | tokens in a block in Redis; the index in memory knows the engines' own sizes |
//! | `queryBudget` | 5ms | longest wait for Redis |
//!
//! The tokenizer arguments of this plugin configure the tokenizer chain.
//!
//! ```yaml
//! scheduler:
//!   pluginConfig:
//!     - name: kvcache-aware
//!       args: {maxBlocksToMatch: 128}
//!   plugins:
//!     Score:
//!       enabled:
//!         - {name: kvcache-aware, weight: 1}
//! ```

use std::sync::Arc;

use kvasir_core::{
    Candidate, Candidates, CycleState, Needs, Plugin, PrefixHit, ScheduleMeter, Scorer, Scores, TokenSlot,
};
use kvasir_settings::resolved::KvCacheAwareArgs;

use crate::hit_source::{HitSource, Window};

/// The scorer.
pub struct KvCacheAware {
    window: Window,
    source: Arc<HitSource>,
    meter: Arc<dyn ScheduleMeter>,
}

impl KvCacheAware {
    /// The name in settings and metrics.
    pub const NAME: &'static str = "kvcache-aware";

    /// With its arguments and where the hits come from; match ratios go to `meter`.
    pub fn new(args: &KvCacheAwareArgs, source: Arc<HitSource>, meter: Arc<dyn ScheduleMeter>) -> Self {
        Self { window: Window::of(args), source, meter }
    }
}

impl std::fmt::Debug for KvCacheAware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvCacheAware").field("window", &self.window).finish_non_exhaustive()
    }
}

impl Plugin for KvCacheAware {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl Scorer for KvCacheAware {
    fn needs(&self) -> Needs {
        Needs::BLOCKS | Needs::PREFIX_HITS
    }

    fn score(&self, cycle: &CycleState, pool: &Candidates, out: &mut Scores) {
        if cycle.skips_cache || cycle.hits.is_empty() {
            return;
        }
        let kept = pool.kept().filter_map(|(index, _)| cycle.hits.get(index));
        let window = self.window.blocks(self.source.measured_by(kept));
        let mut best: Option<f64> = None;
        super::fill(pool, out, |index, candidate| {
            let hit = cycle.hits.get(index)?;
            let (size, full) = full_blocks(cycle, hit, candidate)?;
            let blocks = full.min(window);
            if blocks == 0 {
                return None;
            }
            let matched = (hit.tokens as usize / size).min(blocks);
            let ratio = matched as f64 / blocks as f64;
            best = Some(best.map_or(ratio, |best| best.max(ratio)));
            (matched > 0 || hit.completeness.is_some()).then(|| (ratio * 100.0).trunc())
        });
        if let Some(best) = best {
            self.meter.match_ratio(&cycle.model, Self::NAME, best);
        }
    }
}

/// Tokens in a block of the candidate, and how many full ones the prompt has. The size is the hit's; where nothing was
/// found to tell it, the one that the engine reports, else the most common one.
fn full_blocks(cycle: &CycleState, hit: &PrefixHit, candidate: &Candidate) -> Option<(usize, usize)> {
    let chain_of = |size: u32| cycle.chains.iter().find(|chain| u32::from(chain.block_size) == size);
    let reported = candidate.load.sample.map_or(0, |sample| sample.block_size);
    let chain = match hit.block_tokens {
        0 => chain_of(reported).or_else(|| cycle.chains.first())?,
        size => match (chain_of(size), &cycle.tokens) {
            (Some(chain), _) => chain,
            // Blocks of a store have a size of their own, which no engine need have.
            (None, TokenSlot::Ready(tokens)) => {
                return Some((size as usize, tokens.ids.len() / size as usize));
            }
            (None, TokenSlot::Empty | TokenSlot::Failed(_)) => return None,
        },
    };
    Some((chain.block_size.tokens(), chain.hashes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hit_source::HitPolicy;
    use crate::testing::{Heard, cycle, pool_of, sampled, scores_of};
    use kvasir_core::{
        BlockChain, BlockHash, BlockSize, Completeness, EngineSample, Load, NoMeter, TokenSource, Tokenized,
    };

    fn chain(size: u32, blocks: u64) -> BlockChain {
        BlockChain { block_size: BlockSize::new(size).unwrap(), hashes: (0..blocks).map(BlockHash).collect() }
    }

    fn hit(tokens: u32) -> PrefixHit {
        PrefixHit {
            tokens,
            block_tokens: 16,
            completeness: Some(Completeness::Exact),
            ..PrefixHit::default()
        }
    }

    fn gathered(blocks: u64, tokens: &[u32]) -> CycleState {
        let mut cycle = cycle();
        cycle.chains.push(chain(16, blocks));
        cycle.hits = tokens.iter().copied().map(hit).collect();
        cycle
    }

    fn scorer(max_blocks_to_match: Option<u32>) -> KvCacheAware {
        let args = KvCacheAwareArgs { max_blocks_to_match, ..KvCacheAwareArgs::default() };
        KvCacheAware::new(&args, Arc::default(), Arc::new(NoMeter))
    }

    #[test]
    fn scores_are_the_matched_share_of_the_full_blocks() {
        // The last rows keep the artefacts of floating point: 29 of 50 is 57, 29 of 100 is 28.
        for (blocks, max, matched_blocks, expected) in [
            (2, None, [2, 1, 0], [100.0, 50.0, 0.0]),
            (3, None, [2, 1, 3], [66.0, 33.0, 100.0]),
            (200, Some(128), [200, 64, 128], [100.0, 50.0, 100.0]),
            (200, None, [200, 64, 128], [100.0, 32.0, 64.0]),
            (50, None, [29, 25, 0], [57.0, 50.0, 0.0]),
            (100, None, [29, 57, 58], [28.0, 56.0, 57.0]),
        ] {
            let cycle = gathered(blocks, &matched_blocks.map(|blocks| blocks * 16));
            let pool = pool_of([Load::default(); 3]);
            assert_eq!(scores_of(&scorer(max), &cycle, &pool), expected.map(Some), "{matched_blocks:?}");
        }
    }

    /// 40 tokens in blocks of 16: of kthena's three blocks the last one, of 8 tokens, is held by nobody, so that its
    /// scores there are 66 and 33.
    #[test]
    fn kthenas_worked_example_without_its_partial_block() {
        let source = Arc::new(HitSource::new(HitPolicy::Query));
        let scorer = KvCacheAware::new(&KvCacheAwareArgs::default(), source, Arc::new(NoMeter));
        let pool = pool_of([Load::default(); 3]);
        assert_eq!(
            scores_of(&scorer, &gathered(2, &[32, 16, 0]), &pool),
            [Some(100.0), Some(50.0), Some(0.0)]
        );
        for (tokens, blocks) in [(15, 0), (16, 1), (31, 1), (47, 2), (1000, 62), (4096, 128)] {
            let held = [tokens / 16 * 16; 3];
            let best = (blocks > 0).then_some(100.0);
            let cycle = gathered(u64::from(tokens / 16), &held);
            assert_eq!(scores_of(&scorer, &cycle, &pool), [best; 3], "{tokens} tokens");
        }
    }

    #[test]
    fn truncation_is_that_of_floating_point() {
        let mut apart = Vec::new();
        for blocks in 1..=128_u32 {
            let matched: Vec<u32> = (0..=blocks).map(|matched| matched * 16).collect();
            let pool = pool_of(vec![Load::default(); matched.len()]);
            let scores = scores_of(&scorer(None), &gathered(u64::from(blocks), &matched), &pool);
            for (matched, score) in (0..=blocks).zip(scores) {
                let whole = f64::from(matched * 100 / blocks);
                if score != Some(whole) {
                    apart.push((matched, blocks, score.unwrap()));
                }
            }
        }
        assert_eq!(apart, [(29, 50, 57.0), (29, 100, 28.0), (57, 100, 56.0), (58, 100, 57.0)]);
    }

    #[test]
    fn without_data_there_is_no_opinion() {
        let pool = pool_of([Load::default(); 2]);
        let none = [None, None];
        assert_eq!(scores_of(&scorer(None), &cycle(), &pool), none, "nothing gathered");
        assert_eq!(scores_of(&scorer(None), &gathered(0, &[0, 0]), &pool), none, "shorter than a block");
        let mut skipping = gathered(2, &[32, 0]);
        skipping.skips_cache = true;
        assert_eq!(scores_of(&scorer(None), &skipping, &pool), none, "cache skipped");
        let mut unheard = gathered(2, &[32, 0]);
        unheard.hits[1].completeness = None;
        assert_eq!(scores_of(&scorer(None), &unheard, &pool), [Some(100.0), None], "unknown owner");
    }

    #[test]
    fn each_candidate_is_measured_with_its_own_block_size() {
        let mut cycle = cycle();
        cycle.chains.push(chain(16, 62));
        cycle.chains.push(chain(64, 15));
        cycle.hits = [(992, 16), (960, 64), (992, 0)]
            .map(|(tokens, block_tokens)| PrefixHit { block_tokens, ..hit(tokens) })
            .to_vec();
        let sized = |block_size| sampled(EngineSample { block_size, ..EngineSample::default() });
        let pool = pool_of([sized(16), sized(64), sized(1)]);
        assert_eq!(scores_of(&scorer(None), &cycle, &pool), [Some(100.0); 3]);
    }

    /// The denominator of `query` is what was looked at there: blocks of the store's size, at most its window.
    #[test]
    fn hits_of_a_store_are_measured_with_its_own_window() {
        for (size, max, ids, matched, expected) in [
            (16, None, 40, [2, 1, 0], [100.0, 50.0, 0.0]),
            (16, None, 4096, [128, 64, 1], [100.0, 50.0, 0.0]),
            (16, Some(200), 4096, [200, 100, 1], [100.0, 50.0, 0.0]),
            (64, None, 200, [3, 2, 1], [100.0, 66.0, 33.0]),
        ] {
            let args = KvCacheAwareArgs { max_blocks_to_match: max, ..KvCacheAwareArgs::default() };
            let source = Arc::new(HitSource::new(HitPolicy::Query));
            let scorer = KvCacheAware::new(&args, source, Arc::new(NoMeter));
            let mut cycle = cycle();
            cycle.chains.push(chain(32, ids / 32));
            cycle.tokens = TokenSlot::Ready(Tokenized {
                ids: (0..ids as u32).collect(),
                source: TokenSource::Given,
                took: std::time::Duration::ZERO,
                whole: true,
            });
            cycle.hits =
                matched.map(|blocks| PrefixHit { block_tokens: size, ..hit(blocks * size) }).to_vec();
            let pool = pool_of([Load::default(); 3]);
            assert_eq!(scores_of(&scorer, &cycle, &pool), expected.map(Some), "{size} {max:?} {ids}");
        }
    }

    /// 4,096 tokens, of which a store is asked for 2,048: what the index knows beyond them counts for more.
    #[test]
    fn hits_from_both_places_are_measured_alike() {
        let source = Arc::new(HitSource::new(HitPolicy::PerOwner));
        source.filled();
        let scorer = KvCacheAware::new(&KvCacheAwareArgs::default(), source, Arc::new(NoMeter));
        let mut cycle = gathered(256, &[4096, 2048, 1024]);
        let mut pool = pool_of([Load::default(); 3]);
        for hit in &mut cycle.hits[1..] {
            hit.completeness = Some(Completeness::Approximate);
        }
        assert_eq!(scores_of(&scorer, &cycle, &pool), [Some(100.0), Some(50.0), Some(25.0)]);
        pool.retain(|candidate| candidate.endpoint.slot.0 != 0);
        assert_eq!(scores_of(&scorer, &cycle, &pool), [None, Some(100.0), Some(50.0)], "as kthena counts");
    }

    #[test]
    fn the_best_kept_match_is_counted_also_when_it_is_none() {
        let heard = Arc::new(Heard::default());
        let args = KvCacheAwareArgs::default();
        let scorer = KvCacheAware::new(&args, Arc::default(), Arc::clone(&heard) as _);
        let mut pool = pool_of([Load::default(); 3]);
        pool.retain(|candidate| candidate.endpoint.slot.0 != 0);
        scores_of(&scorer, &gathered(4, &[64, 16, 32]), &pool);
        scores_of(&scorer, &gathered(4, &[64, 0, 0]), &pool);
        scores_of(&scorer, &gathered(0, &[0, 0, 0]), &pool);
        assert_eq!(*heard.ratios.lock(), [("kvcache-aware", 0.5), ("kvcache-aware", 0.0)]);
    }
}
