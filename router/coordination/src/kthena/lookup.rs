//! Who holds how many leading blocks of a prompt, asked of kthena's layout for each request.

mod stats;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{BlockLookup, BlockQuery, BoxFuture, QueryError, QueryOwner};
use redis::{Pipeline, Value};

use crate::breaker::{Breaker, BreakerLimits};
use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::key;

pub use stats::{DURATION_BOUNDS_MICROS, LookupStats};

use stats::Counters;

/// Blocks asked for at first. Most prompts that hit at all differ early or late; a miss then costs one small batch.
const FIRST_WINDOW: usize = 32;
/// Blocks asked for in each further batch.
const NEXT_WINDOW: usize = 128;

/// How a lookup behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupOptions {
    /// How long one whole lookup may take.
    pub budget: Duration,
    /// When the store is left alone.
    pub breaker: BreakerLimits,
}

impl Default for LookupOptions {
    fn default() -> Self {
        Self { budget: Duration::from_millis(5), breaker: BreakerLimits::default() }
    }
}

/// Reads kthena's layout. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct KthenaLookup(Arc<Inner>);

struct Inner {
    redis: Redis,
    budget: Duration,
    breaker: Breaker,
    counters: Counters,
}

impl KthenaLookup {
    /// A lookup over a connection.
    pub fn new(redis: Redis, options: LookupOptions) -> Self {
        Self(Arc::new(Inner {
            redis,
            budget: options.budget,
            breaker: Breaker::new(options.breaker),
            counters: Counters::default(),
        }))
    }

    /// What has been counted since the start.
    pub fn stats(&self) -> LookupStats {
        self.0.counters.read(&self.0.breaker)
    }

    async fn answer(&self, query: BlockQuery<'_>) -> Result<Vec<u32>, QueryError> {
        let inner = &self.0;
        if query.owners.is_empty() || query.hashes.is_empty() || query.models.is_empty() {
            return Ok(vec![0; query.owners.len()]);
        }
        if !inner.breaker.allows() {
            inner.counters.skipped();
            return Err(QueryError::Unreachable);
        }
        let begun = Instant::now();
        let result = inner.search(query, begun + inner.budget).await;
        inner.counters.ended(begun.elapsed(), &result);
        match result {
            Ok(leading) => {
                inner.breaker.succeeded();
                Ok(leading)
            }
            Err(error) => {
                if inner.breaker.failed(Instant::now()) {
                    self.nurse(error);
                }
                Err(match error {
                    StoreError::Unreachable => QueryError::Unreachable,
                    StoreError::TimedOut => QueryError::TimedOut,
                    StoreError::Refused(_) => QueryError::Refused,
                })
            }
        }
    }

    /// Probes the store until it is well, or nobody wants to know any more.
    fn nurse(&self, error: StoreError) {
        tracing::warn!(%error, "block lookups in Redis keep failing; requests are placed without them until it answers");
        let weak = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            loop {
                let Some(wait) = weak.upgrade().map(|inner| inner.breaker.next_wait()) else { return };
                tokio::time::sleep(wait).await;
                let Some(inner) = weak.upgrade() else { return };
                inner.breaker.probing();
                let well = inner.probe().await;
                inner.breaker.probed(well, Instant::now());
                if well {
                    tracing::info!("Redis answers again; blocks are looked up");
                    return;
                }
            }
        });
    }
}

impl BlockLookup for KthenaLookup {
    fn leading_blocks<'a>(&'a self, query: BlockQuery<'a>) -> BoxFuture<'a, Result<Vec<u32>, QueryError>> {
        Box::pin(self.answer(query))
    }
}

impl fmt::Debug for KthenaLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KthenaLookup").field("redis", &self.0.redis).field("stats", &self.stats()).finish()
    }
}

impl Inner {
    /// Whether the store does what lookups need, within their budget: a slow store is not well. A command that lookups
    /// send, because a user who may read the blocks need not be one who may ping.
    async fn probe(&self) -> bool {
        let mut probe = redis::cmd("HMGET");
        probe.arg(key::kthena_block("", 0)).arg("-");
        self.redis.query::<Value>(&probe, self.budget).await.is_ok()
    }

    async fn search(&self, query: BlockQuery<'_>, deadline: Instant) -> Result<Vec<u32>, StoreError> {
        let fields: Vec<String> =
            query.owners.iter().map(|owner| key::kthena_pod_dot(owner.namespace, owner.pod)).collect();
        let mut leading = vec![0; query.owners.len()];
        for model in query.models {
            self.walk(model, query, &fields, deadline, &mut leading).await?;
            if leading.iter().any(|blocks| *blocks > 0) {
                break;
            }
        }
        Ok(leading)
    }

    /// Walks the blocks of one model in batches, as long as anybody holds all of them so far.
    async fn walk(
        &self,
        model: &str,
        query: BlockQuery<'_>,
        fields: &[String],
        deadline: Instant,
        leading: &mut [u32],
    ) -> Result<(), StoreError> {
        let mut matching: Vec<usize> = (0..query.owners.len()).collect();
        let mut rest = query.hashes;
        let mut window = FIRST_WINDOW;
        while !rest.is_empty() && !matching.is_empty() {
            let (batch, later) = rest.split_at(window.min(rest.len()));
            (rest, window) = (later, NEXT_WINDOW);
            let mut pipe = Pipeline::with_capacity(batch.len());
            for hash in batch {
                let command = pipe.cmd("HMGET").arg(key::kthena_block(model, *hash));
                matching.iter().filter_map(|owner| fields.get(*owner)).for_each(|field| {
                    command.arg(field);
                });
            }
            // Which owner each value of this batch's answers is about, also when some of them fall out on the way.
            let asked = matching.clone();
            let left = deadline.saturating_duration_since(Instant::now());
            for answer in self.redis.pipeline(&pipe, left).await? {
                let holders = self.holders(answer, &asked, query.owners)?;
                matching.retain(|owner| holders.contains(owner));
                matching.iter().for_each(|owner| {
                    if let Some(blocks) = leading.get_mut(*owner) {
                        *blocks += 1;
                    }
                });
                if matching.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The owners that hold one block, of those that were asked for.
    fn holders(
        &self,
        answer: Value,
        asked: &[usize],
        owners: &[QueryOwner<'_>],
    ) -> Result<Vec<usize>, StoreError> {
        match (refusal(&answer), answer) {
            (None, Value::Array(values)) => Ok(asked
                .iter()
                .zip(values)
                .filter(|(owner, value)| {
                    let started_at = owners.get(**owner).and_then(|owner| owner.started_at);
                    matches!(value, Value::BulkString(written) if is_fresh(written, started_at))
                })
                .map(|(owner, _)| *owner)
                .collect()),
            // Somebody else's key under the block's name.
            (Some(Refusal::WrongType), _) => {
                self.counters.wrong_type();
                Ok(Vec::new())
            }
            (Some(refusal), _) => Err(StoreError::Refused(refusal)),
            (None, _) => Err(StoreError::Refused(Refusal::Other)),
        }
    }
}

/// kthena's rule: an entry is of an earlier life of the pod when its time is known, the start of the pod is known, and
/// it is not later. Everything that cannot be told is kept.
fn is_fresh(written: &[u8], started_at: Option<u64>) -> bool {
    let started_at = match started_at {
        None | Some(0) => return true,
        Some(started_at) => i128::from(started_at),
    };
    let written = std::str::from_utf8(written).ok().and_then(|text| text.parse::<i64>().ok());
    written.is_none_or(|written| i128::from(written) > started_at)
}
