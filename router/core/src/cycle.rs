//! What was gathered for one request before the decision.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::block::BlockChain;
use crate::block_index::PrefixHit;
use crate::ids::{AdapterName, ModelName, RequestId};
use crate::request::{InferenceRequest, SessionKey};
use crate::tokens::{TokenizeError, Tokenized};

/// The number of the next cycle.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The token slot: empty until a producer ran, then ids or the reason why there are none.
#[derive(Clone, Debug, Default)]
pub enum TokenSlot {
    /// No producer ran.
    #[default]
    Empty,
    /// The ids.
    Ready(Tokenized),
    /// Why there are none.
    Failed(TokenizeError),
}

/// Typed slots for one request's gathered data. Filled by producers, read by filters, scorers and observers.
#[derive(Clone, Debug)]
pub struct CycleState {
    /// The request's id. Clients may choose it, so two requests may share one.
    pub request_id: RequestId,
    /// This cycle's own number, unlike every other's in this process.
    pub number: u64,
    /// The engine's served name.
    pub model: ModelName,
    /// The name the client used (adapter name included), for plugins that match on it.
    pub requested_model: String,
    /// Tokens.
    pub tokens: TokenSlot,
    /// Chained hashes, one chain for each distinct block size of the live owners.
    pub chains: SmallVec<[BlockChain; 2]>,
    /// Prefix hits, aligned with the candidates; empty until produced.
    pub hits: Vec<PrefixHit>,
    /// Prompt length in tokens: exact when tokens are ready, else estimated from the body's bytes (4 bytes a token).
    pub prompt_tokens: u32,
    /// The flat prompt text hashes of `prefix-cache` (kthena's byte chain), empty until produced.
    pub text_hashes: Vec<u64>,
    /// Whether the engine skips its cache for this request, so that no hit counts.
    pub skips_cache: bool,
    /// Whether the answer is streamed, so that its first byte tells of the first token.
    pub streamed: bool,
    /// Most output tokens the client asked for, when it said.
    pub max_tokens: Option<u32>,
    /// The adapter, when the client asked for one.
    pub adapter: Option<AdapterName>,
    /// The conversation, when it is known.
    pub session: Option<SessionKey>,
    /// How long gathering took.
    pub gathered_in: Duration,
}

impl CycleState {
    /// Empty slots for `request`, with the prompt length estimated.
    pub fn new(request: &InferenceRequest) -> Self {
        Self {
            request_id: request.id.clone(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            model: request.model.clone(),
            requested_model: request.requested_model.to_string(),
            tokens: TokenSlot::Empty,
            chains: SmallVec::new(),
            hits: Vec::new(),
            prompt_tokens: u32::try_from(request.body.len() / 4).unwrap_or(u32::MAX),
            text_hashes: Vec::new(),
            skips_cache: request.skips_cache,
            streamed: request.stream,
            max_tokens: request.max_tokens,
            adapter: request.adapter.clone(),
            session: request.session,
            gathered_in: Duration::ZERO,
        }
    }

    /// The hit of candidate `index`; zero when nothing was produced or the cache is skipped.
    ///
    /// Engines compute at least the last token, so the reusable part never reaches the whole prompt: it is
    /// bounded by the last full block before the last token (decision D4, credit).
    pub fn reusable_tokens(&self, index: usize) -> u32 {
        if self.skips_cache {
            return 0;
        }
        let Some(hit) = self.hits.get(index) else { return 0 };
        hit.tokens.min(self.most_reusable(hit))
    }

    /// What candidate `index` may load from slower tiers beyond [`reusable_tokens`](Self::reusable_tokens), under the same
    /// bound.
    pub fn loadable_tokens(&self, index: usize) -> u32 {
        if self.skips_cache {
            return 0;
        }
        let Some(hit) = self.hits.get(index) else { return 0 };
        let most = self.most_reusable(hit);
        hit.tokens.saturating_add(hit.offloaded_tokens).min(most).saturating_sub(hit.tokens)
    }

    /// The last full block before the last token.
    fn most_reusable(&self, hit: &PrefixHit) -> u32 {
        let block = hit.block_tokens.max(1);
        self.prompt_tokens.saturating_sub(1) / block * block
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::request::{Prompt, RequestKind};

    #[test]
    fn credit_never_covers_the_last_token_and_counts_whole_blocks_of_the_owner() {
        let request = InferenceRequest {
            id: "r".into(),
            kind: RequestKind::Chat,
            requested_model: "m".into(),
            model: "m".into(),
            adapter: None,
            stream: false,
            prompt: Prompt::None,
            cache_salt: None,
            skips_cache: false,
            max_tokens: None,
            session: None,
            body: Bytes::new(),
        };
        let mut cycle = CycleState::new(&request);
        let hit = |tokens, block_tokens| PrefixHit { tokens, block_tokens, ..PrefixHit::default() };
        cycle.hits = vec![hit(64, 16), hit(64, 32), hit(32, 32), hit(0, 0)];
        for (prompt_tokens, credit) in [(64, [48, 32, 32, 0]), (65, [64, 64, 32, 0]), (40, [32, 32, 32, 0])] {
            cycle.prompt_tokens = prompt_tokens;
            let got: Vec<u32> = (0..4).map(|index| cycle.reusable_tokens(index)).collect();
            assert_eq!(got, credit, "{prompt_tokens} tokens");
        }
        cycle.hits = vec![PrefixHit { offloaded_tokens: 64, ..hit(32, 16) }, hit(96, 16)];
        for (prompt_tokens, credit, loadable) in
            [(200, 32, 64), (97, 32, 64), (96, 32, 48), (40, 32, 0), (20, 16, 0)]
        {
            cycle.prompt_tokens = prompt_tokens;
            assert_eq!((cycle.reusable_tokens(0), cycle.loadable_tokens(0)), (credit, loadable));
            assert_eq!(
                (cycle.loadable_tokens(1), cycle.loadable_tokens(2)),
                (0, 0),
                "nothing is on another tier"
            );
        }
        cycle.skips_cache = true;
        assert_eq!((cycle.reusable_tokens(0), cycle.loadable_tokens(0)), (0, 0));
        assert_eq!(cycle.reusable_tokens(9), 0);
    }
}
