//! Every router's view beside the engines' truth, for every prompt that was ever sent.

use std::fmt;

use kvasir_core::{BlockIndex as _, CacheScope, OwnerSlot, PrefixHit};
use kvasir_kvcache::chain;
use kvasir_mock_engine::Engine;
use kvasir_suite::router::{MODEL, Router};

use crate::conversations::{BLOCK, Conversations};
use crate::fleet::Fleet;

/// Differences that are told in words.
const TOLD: usize = 5;

/// What was compared, and what differed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    /// Prompts.
    pub prompts: usize,
    /// Prompts, for each router and engine.
    pub compared: usize,
    /// Those where the view is not the truth.
    pub differ: usize,
    /// Tokens that the engines would reuse, over all prompts.
    pub held_tokens: usize,
    /// Blocks that the engines hold, whatever they are of.
    pub held_blocks: usize,
    /// Views of an engine with another number of blocks than the engine.
    pub counts_differ: usize,
    told: Vec<String>,
}

impl Comparison {
    /// Asks engines by what they would reuse, not by their events, and routers by a lookup as a request makes it.
    pub fn make(fleet: &Fleet, conversations: &Conversations) -> Self {
        let mut result = Self::default();
        let slots: Vec<Vec<Option<OwnerSlot>>> = fleet
            .routers
            .iter()
            .map(|router| fleet.engines.iter().map(|engine| slot_of(router, engine)).collect())
            .collect();
        for ids in conversations.longest() {
            result.prompts += 1;
            let truth: Vec<u32> = fleet
                .engines
                .iter()
                .map(|engine| engine.cached_prefix_tokens(&ids, None, None) as u32)
                .collect();
            result.held_tokens += truth.iter().sum::<u32>() as usize;
            for (number, (router, slots)) in fleet.routers.iter().zip(&slots).enumerate() {
                let view = view(router, slots, &ids);
                for (engine, (view, truth)) in view.iter().zip(&truth).enumerate() {
                    result.compared += 1;
                    if view != truth {
                        result.differ += 1;
                        let prompt = result.prompts;
                        result.tell(|| {
                            format!("prompt {prompt}: engine {engine} {truth}, router {number} {view}")
                        });
                    }
                }
            }
        }
        result.count(fleet, &slots);
        result
    }

    /// Whether every view is the truth.
    pub fn is_equal(&self) -> bool {
        self.differ == 0 && self.counts_differ == 0
    }

    /// Blocks of answers are in no prompt; there are as many of them.
    fn count(&mut self, fleet: &Fleet, slots: &[Vec<Option<OwnerSlot>>]) {
        let held: Vec<usize> = fleet.engines.iter().map(|engine| engine.stats().cached_blocks).collect();
        self.held_blocks = held.iter().sum();
        for (number, (router, slots)) in fleet.routers.iter().zip(slots).enumerate() {
            let stats = router.gateway.index.stats();
            for (engine, (slot, held)) in slots.iter().zip(&held).enumerate() {
                let known =
                    stats.iter().find(|owner| Some(owner.slot) == *slot).map_or(0, |owner| owner.blocks);
                if known != *held {
                    self.counts_differ += 1;
                    self.tell(|| format!("engine {engine} has {held} blocks, router {number} knows {known}"));
                }
            }
        }
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.told.len() < TOLD {
            self.told.push(what());
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prompts, compared, differ, counts_differ, .. } = self;
        write!(
            f,
            "{prompts} prompts, {compared} comparisons, {differ} differ, {counts_differ} counts differ"
        )?;
        if !self.told.is_empty() {
            write!(f, ": {}", self.told.join("; "))?;
        }
        Ok(())
    }
}

fn slot_of(router: &Router, engine: &Engine) -> Option<OwnerSlot> {
    let endpoints = router.gateway.state.endpoints();
    endpoints.iter().find(|endpoint| endpoint.url == engine.url()).map(|endpoint| endpoint.slot)
}

/// Tokens that a router credits each engine with by what is known, not by what it placed there itself.
fn view(router: &Router, slots: &[Option<OwnerSlot>], ids: &[u32]) -> Vec<u32> {
    let index = &router.gateway.index;
    let model = MODEL.into();
    let chains: Vec<_> = index
        .block_sizes(&model)
        .iter()
        .map(|size| chain(&CacheScope::default(), *size, ids, None))
        .collect();
    // Requests leave the last token out.
    let most = (ids.len() as u32 - 1) / BLOCK * BLOCK;
    slots
        .iter()
        .map(|slot| {
            let mut hits = [PrefixHit::default()];
            slot.inspect(|slot| index.walk(&model, &chains, &[*slot], &mut hits));
            let [hit] = hits;
            hit.tokens.saturating_sub(hit.predicted_tokens).min(most)
        })
        .collect()
}
