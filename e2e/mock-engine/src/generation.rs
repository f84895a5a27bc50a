//! The life of one sequence: queue, prefill in chunks, decode token by token.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::adapters::InUse;
use crate::answer::{Piece, Script};
use crate::backlog::Queued;
use crate::cache::{Content, Lease};
use crate::core::{Core, State};
use crate::hash::{Hash, Scope};
use crate::slots::Slot;

/// What one sequence is to do.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) tokens: Vec<u32>,
    pub(crate) scope: Scope,
    /// False for requests whose prompt must be computed in full (`prompt_logprobs`).
    pub(crate) reads_cache: bool,
    /// False for embeddings, which pass the cache by.
    pub(crate) uses_cache: bool,
    /// Set where the prompt's KV cache comes from another engine: the cached tokens to report.
    pub(crate) received: Option<usize>,
    pub(crate) script: Script,
}

/// One sequence. Dropping it cancels it and gives back all it holds.
#[derive(Debug)]
pub(crate) struct Generation {
    core: Arc<Core>,
    id: u64,
    script: Script,
    scope: Scope,
    adapter_id: Option<u32>,
    adapter: Option<InUse>,
    reads_cache: bool,
    uses_cache: bool,
    /// Prompt, then the output that was computed.
    tokens: Vec<u32>,
    chain: Vec<Hash>,
    prompt_tokens: usize,
    cached: usize,
    received: Option<usize>,
    produced: usize,
    stage: Stage,
    place: Option<OwnedSemaphorePermit>,
    lease: Option<Lease>,
    asked_at: Instant,
    scheduled_at: Instant,
    /// When the first output token was due by the model's clock.
    first_due: Instant,
    last_token_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Queued,
    Prefill { left: usize },
    Decode,
    Done,
}

impl Generation {
    /// Joins the queue. The order among sequences is that of their first call of [`next`](Self::next).
    pub(crate) fn new(core: Arc<Core>, order: Order) -> Self {
        let now = Instant::now();
        let chain = if order.uses_cache { core.chain(&order.tokens, &order.scope) } else { Vec::new() };
        let id = core.next_id();
        let needs = Queued {
            chain: chain.as_slice().into(),
            prompt_tokens: order.tokens.len(),
            reads_cache: order.reads_cache && order.uses_cache,
        };
        core.state.lock().ledger.enqueue(id, needs);
        Self {
            id,
            adapter_id: order.scope.adapter.as_deref().and_then(|name| core.adapters.id(name)),
            adapter: None,
            script: order.script,
            scope: order.scope,
            reads_cache: order.reads_cache,
            uses_cache: order.uses_cache,
            prompt_tokens: order.tokens.len(),
            tokens: order.tokens,
            chain,
            cached: 0,
            received: order.received,
            produced: 0,
            stage: Stage::Queued,
            place: None,
            lease: None,
            asked_at: now,
            scheduled_at: now,
            first_due: now,
            last_token_at: now,
            core,
        }
    }

    /// Waits for the next token and gives its index; `None` after the last. Not to be called again once a call
    /// was dropped before it was ready.
    pub(crate) async fn next(&mut self) -> Option<usize> {
        match self.stage {
            Stage::Queued | Stage::Prefill { .. } => self.prefill().await,
            Stage::Decode => self.decode(1).await,
            Stage::Done => return None,
        }
        self.produced.checked_sub(1)
    }

    /// Runs to the end without telling of single tokens.
    pub(crate) async fn finish(&mut self) {
        while self.stage != Stage::Done {
            match self.stage {
                Stage::Queued | Stage::Prefill { .. } => self.prefill().await,
                Stage::Decode => {
                    // As far as the step that fills a block, whose event is due then.
                    let size = self.core.config.block_size;
                    self.decode(size - self.tokens.len() % size).await;
                }
                Stage::Done => {}
            }
        }
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Prompt tokens that need no work here, as usage tells them.
    pub(crate) fn cached_tokens(&self) -> usize {
        self.received.unwrap_or(self.cached)
    }

    /// Output tokens so far.
    pub(crate) fn produced(&self) -> usize {
        self.produced
    }

    /// Whether the last token was produced.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// `length` or `stop`.
    pub(crate) fn finish_reason(&self) -> &'static str {
        self.script.finish_reason()
    }

    /// Output piece number `index`.
    pub(crate) fn piece(&self, index: usize) -> Piece<'_> {
        self.script.piece(&self.core.vocabulary, index)
    }

    /// The output so far.
    pub(crate) fn text(&self) -> String {
        self.script.text(&self.core.vocabulary, self.produced).into_owned()
    }

    async fn prefill(&mut self) {
        if let (Some(name), None) = (&self.scope.adapter, &self.adapter) {
            self.adapter = Some(self.core.adapters.take(Arc::clone(name)).await);
        }
        self.place = Arc::clone(&self.core.running).acquire_owned().await.ok();
        let mut slot = self.core.slots.acquire().await;
        self.admit(&mut slot).await;
        let mut computed = self.cached;
        while computed < self.prompt_tokens {
            let chunk = self.core.config.prefill_chunk_tokens.min(self.prompt_tokens - computed);
            if let Some(lease) = &mut self.lease {
                self.core.state.lock().cache.grow(lease, computed + chunk);
            }
            let work = if self.received.is_some() { 0 } else { chunk };
            slot.work(self.core.config.prefill_time(work)).await;
            computed += chunk;
            self.chunk_is_computed(chunk, computed);
        }
        let now = Instant::now();
        self.first_due = slot.work(std::time::Duration::ZERO).await;
        self.last_token_at = now;
        let metrics = &self.core.metrics;
        metrics.time_to_first_token.observe((now - self.asked_at).as_secs_f64());
        metrics.prefill_time.observe((now - self.scheduled_at).as_secs_f64());
        metrics.generation_tokens.add(self.script.len().min(1));
        self.produced = self.script.len().min(1);
        let mut state = self.core.state.lock();
        state.ledger.end_prefill(0);
        state.ledger.begin_decode();
        self.stage = Stage::Decode;
        drop(state);
        if self.produced == self.script.len() {
            self.complete();
        }
    }

    /// Waits for memory, then takes what the cache holds of the prompt.
    async fn admit(&mut self, slot: &mut Slot) {
        let total = self.prompt_tokens + self.script.len().saturating_sub(1);
        loop {
            let core = Arc::clone(&self.core);
            let freed = core.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.try_admit(&mut core.state.lock(), total) {
                break;
            }
            freed.await;
            slot.idle_until_now();
        }
        self.scheduled_at = Instant::now();
        let metrics = &self.core.metrics;
        metrics.queue_time.observe((self.scheduled_at - self.asked_at).as_secs_f64());
        metrics.prompt_tokens.add(self.prompt_tokens);
        metrics.cached_prompt_tokens.add(self.cached);
        if self.uses_cache && self.reads_cache {
            metrics.prefix_cache_queries.add(self.prompt_tokens);
            metrics.prefix_cache_hits.add(self.cached);
        }
    }

    fn try_admit(&mut self, state: &mut State, total: usize) -> bool {
        if self.uses_cache {
            let hits =
                if self.reads_cache { state.cache.reusable(&self.chain, self.prompt_tokens) } else { 0 };
            let Some(lease) = state.cache.admit(&self.chain, hits, total) else {
                return false;
            };
            self.cached = lease.known_blocks() * self.core.config.block_size;
            self.lease = Some(lease);
        }
        let left = self.prompt_tokens - self.cached;
        state.ledger.begin_prefill(self.id, left);
        self.stage = Stage::Prefill { left };
        true
    }

    /// The blocks of a computed chunk become reusable, and what happened since the last step is told.
    fn chunk_is_computed(&mut self, chunk: usize, computed: usize) {
        let mut state = self.core.state.lock();
        state.ledger.computed(chunk);
        self.stage = Stage::Prefill { left: self.prompt_tokens - computed };
        if let Some(lease) = &mut self.lease {
            let content = Content {
                tokens: &self.tokens,
                chain: &self.chain,
                scope: &self.scope,
                adapter_id: self.adapter_id,
            };
            state.cache.store(lease, content, computed);
        }
        self.core.publish(&mut state);
    }

    /// Produces up to `most` more tokens, waiting until the last of them is due.
    async fn decode(&mut self, most: usize) {
        let steps = most.min(self.script.len() - self.produced);
        let due = self.first_due + self.core.config.decode_time(self.produced + steps - 1);
        if due > self.last_token_at {
            sleep_until(due).await;
        }
        // Producing token n computes token n - 1: the last token of an answer is never computed.
        let first = self.produced - 1;
        for index in first..first + steps {
            let id = self.piece(index).id;
            self.tokens.push(id);
        }
        self.produced += steps;
        self.store_output(steps);
        let now = Instant::now();
        let metrics = &self.core.metrics;
        let each = (now - self.last_token_at).as_secs_f64() / steps as f64;
        metrics.inter_token_latency.observe_many(each, steps);
        metrics.generation_tokens.add(steps);
        self.last_token_at = now;
        if self.produced == self.script.len() {
            self.complete();
        }
    }

    fn store_output(&mut self, steps: usize) {
        let Some(lease) = &mut self.lease else { return };
        let size = self.core.config.block_size;
        let before = self.tokens.len() - steps;
        let fills_block = self.tokens.len() / size > before / size;
        let needs_block = self.tokens.len().div_ceil(size) > before.div_ceil(size);
        if !fills_block && !needs_block {
            return;
        }
        self.core.hasher.extend(&mut self.chain, &self.tokens, &self.scope);
        let mut state = self.core.state.lock();
        state.cache.grow(lease, self.tokens.len());
        let content = Content {
            tokens: &self.tokens,
            chain: &self.chain,
            scope: &self.scope,
            adapter_id: self.adapter_id,
        };
        state.cache.store(lease, content, self.tokens.len());
        self.core.publish(&mut state);
    }

    fn complete(&mut self) {
        let took = (Instant::now() - self.asked_at).as_secs_f64();
        let metrics = &self.core.metrics;
        metrics.end_to_end.observe(took);
        metrics.request_prompt_tokens.observe(self.prompt_tokens as f64);
        metrics.request_generation_tokens.observe(self.produced as f64);
        metrics.finished(self.script.finish_reason());
        self.leave();
        self.stage = Stage::Done;
    }

    /// Gives back what this sequence holds.
    fn leave(&mut self) {
        let mut state = self.core.state.lock();
        match self.stage {
            Stage::Queued => state.ledger.leave_queue(self.id),
            Stage::Prefill { left } => state.ledger.end_prefill(left),
            Stage::Decode => state.ledger.end_decode(),
            Stage::Done => return,
        }
        if let Some(lease) = self.lease.take() {
            state.cache.free(lease);
        }
        drop(state);
        self.place = None;
        self.adapter = None;
        self.core.freed.notify_waiters();
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.stage != Stage::Done {
            self.core.metrics.finished("abort");
            self.leave();
        }
    }
}

#[cfg(test)]
mod captures;
#[cfg(test)]
mod tests;
