//! Removes entries of kthena's layout that nobody has renewed for a day.
//!
//! Block keys have no expiry of their own. One pass goes over all of them in short steps; replicas take turns by a lock
//! and a note of the last pass, so that there is one pass an hour however many routers there are.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::RngExt;
use redis::{Pipeline, Value};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::connection::{Node, Redis, Refusal, StoreError, refusal};
use crate::key;

/// Keys that one step of the server looks at, and whose entries are read at once: few, because requests' lookups wait
/// behind them in the server.
const COUNT: usize = 200;
/// How long the lock outlives a router that stops in the middle of a pass, milliseconds.
const LOCK_MILLIS: u64 = 30_000;
/// Removes fields whose value is still the one that was read: a block may be stored again in between.
const REMOVE: &str = "local n = 0 \
    for i = 1, #ARGV, 2 do \
        if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then n = n + redis.call('HDEL', KEYS[1], ARGV[i]) end \
    end \
    return n";
/// Renews the lock where it is ours.
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
/// Gives the lock back where it is ours, and notes when the pass ended.
const FINISH: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3]) return redis.call('DEL', KEYS[1])";

/// How the collection behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GarbageOptions {
    /// Entries older than this, on the server's clock, are removed.
    pub older_than: Duration,
    /// How often a full pass is made.
    pub every: Duration,
    /// How long one step may keep the server busy; between two steps it rests as long.
    pub step: Duration,
    /// How long one command or pipeline may take.
    pub limit: Duration,
}

impl Default for GarbageOptions {
    fn default() -> Self {
        Self {
            older_than: Duration::from_secs(24 * 3600),
            every: Duration::from_secs(3600),
            step: Duration::from_millis(50),
            limit: Duration::from_secs(2),
        }
    }
}

/// What one step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GarbageProgress {
    /// The last pass was not long ago, or another router is at it.
    NotDue,
    /// In the middle of a pass.
    Working,
    /// A pass was completed.
    Finished,
}

/// Collections since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct GarbageStats {
    /// Passes completed by this router.
    pub passes: u64,
    /// Block keys looked at.
    pub keys: u64,
    /// Entries removed.
    pub removed: u64,
    /// Steps that failed; the next one goes on from there.
    pub failures: u64,
}

/// The collection of one router, running by itself. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Garbage(Arc<Mutex<GarbageStats>>);

impl Garbage {
    /// Begins to make passes, until `stop`; must be called inside a runtime. `redis` is a connection that no request
    /// uses: an answer about many keys would hold up what comes behind it.
    pub fn start(redis: Redis, options: GarbageOptions, stop: CancellationToken) -> Self {
        let collector = Collector::new(redis, options);
        let stats = Arc::clone(&collector.shown);
        tokio::spawn(collector.run(stop));
        Self(stats)
    }

    /// What has been counted since the start.
    pub fn stats(&self) -> GarbageStats {
        *self.0.lock()
    }
}

/// Makes passes, in steps that the caller paces.
pub struct Collector {
    redis: Redis,
    options: GarbageOptions,
    id: String,
    pass: Option<Pass>,
    stats: GarbageStats,
    shown: Arc<Mutex<GarbageStats>>,
}

struct Pass {
    nodes: VecDeque<Node>,
    cursor: u64,
}

impl Collector {
    /// A collection over a connection.
    pub fn new(redis: Redis, options: GarbageOptions) -> Self {
        let id = uuid::Uuid::new_v4().to_string();
        Self { redis, options, id, pass: None, stats: GarbageStats::default(), shown: Arc::default() }
    }

    /// What has been counted since the start.
    pub fn stats(&self) -> GarbageStats {
        self.stats
    }

    /// Makes passes until told to stop.
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let wait = match self.step().await {
                Ok(GarbageProgress::Working) => self.options.step,
                Ok(GarbageProgress::Finished) => {
                    let GarbageStats { keys, removed, .. } = self.stats;
                    tracing::info!(
                        keys,
                        removed,
                        "old entries of kthena's layout are removed (totals since the start)"
                    );
                    self.pause()
                }
                Ok(GarbageProgress::NotDue) => self.pause(),
                Err(error) => {
                    tracing::debug!(%error, "a step of the removal of old entries failed");
                    self.pause().min(Duration::from_secs(10))
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Does a bit of what is due.
    ///
    /// # Errors
    /// The store failed; the next step goes on from there.
    pub async fn step(&mut self) -> Result<GarbageProgress, StoreError> {
        let result = self.try_step().await;
        if result.is_err() {
            self.stats.failures += 1;
        }
        *self.shown.lock() = self.stats;
        result
    }

    /// A twelfth of the time between passes, give or take: how often it is worth looking.
    fn pause(&self) -> Duration {
        self.options.every.div_f64(12.0).mul_f64(rand::rng().random_range(0.75..1.25))
    }

    async fn try_step(&mut self) -> Result<GarbageProgress, StoreError> {
        let limit = self.options.limit;
        let now = super::server_time(&self.redis, limit).await?.0;
        if !self.holds_lock(now).await? {
            self.pass = None;
            return Ok(GarbageProgress::NotDue);
        }
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => Pass { nodes: self.redis.nodes(limit).await?.into(), cursor: 0 },
        };
        let worked = self.work(&mut pass, now).await;
        let finished = pass.nodes.is_empty();
        self.pass = (!finished).then_some(pass);
        worked?;
        if !finished {
            return Ok(GarbageProgress::Working);
        }
        let mut finish = redis::cmd("EVAL");
        finish.arg(FINISH).arg(2).arg(key::GARBAGE_LOCK).arg(key::GARBAGE_DONE);
        finish.arg(&self.id).arg(now).arg(2 * self.options.every.as_secs().max(1));
        self.redis.query::<u64>(&finish, limit).await?;
        self.stats.passes += 1;
        Ok(GarbageProgress::Finished)
    }

    /// Whether the pass is ours: its lock is renewed, or taken where a pass is due.
    async fn holds_lock(&self, now: u64) -> Result<bool, StoreError> {
        let limit = self.options.limit;
        if self.pass.is_some() {
            let mut renew = redis::cmd("EVAL");
            renew.arg(RENEW).arg(1).arg(key::GARBAGE_LOCK).arg(&self.id).arg(LOCK_MILLIS);
            return Ok(self.redis.query::<u64>(&renew, limit).await? == 1);
        }
        let done: Option<u64> = self.redis.query(redis::cmd("GET").arg(key::GARBAGE_DONE), limit).await?;
        if done.is_some_and(|done| now.saturating_sub(done) < self.options.every.as_secs()) {
            return Ok(false);
        }
        let mut take = redis::cmd("SET");
        take.arg(key::GARBAGE_LOCK).arg(&self.id).arg("NX").arg("PX").arg(LOCK_MILLIS);
        Ok(self.redis.query::<Option<String>>(&take, limit).await?.is_some())
    }

    async fn work(&mut self, pass: &mut Pass, now: u64) -> Result<(), StoreError> {
        let begun = Instant::now();
        while let Some(node) = pass.nodes.front() {
            let mut scan = redis::cmd("SCAN");
            scan.arg(pass.cursor).arg("MATCH").arg(key::kthena_block_pattern(None)).arg("COUNT").arg(COUNT);
            let (cursor, keys): (u64, Vec<Vec<u8>>) =
                self.redis.query_on(node, &scan, self.options.limit).await?;
            self.clean(&keys, now).await?;
            pass.cursor = cursor;
            if cursor == 0 {
                pass.nodes.pop_front();
            }
            if begun.elapsed() >= self.options.step {
                break;
            }
        }
        Ok(())
    }

    /// Removes the old entries of these keys.
    async fn clean(&mut self, keys: &[Vec<u8>], now: u64) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut read = Pipeline::with_capacity(keys.len());
        keys.iter().for_each(|name| {
            read.cmd("HGETALL").arg(name);
        });
        let mut remove = Pipeline::new();
        for (name, entries) in keys.iter().zip(self.redis.pipeline(&read, self.options.limit).await?) {
            // Another type under a block's name is not ours to touch.
            if refusal(&entries) == Some(Refusal::WrongType) {
                continue;
            }
            let entries: Vec<(Vec<u8>, Vec<u8>)> =
                redis::from_redis_value(entries).map_err(|_| StoreError::Refused(Refusal::Other))?;
            let old: Vec<&(Vec<u8>, Vec<u8>)> =
                entries.iter().filter(|(_, written)| self.is_old(written, now)).collect();
            if !old.is_empty() {
                let command = remove.cmd("EVAL").arg(REMOVE).arg(1).arg(name);
                old.iter().for_each(|(field, written)| {
                    command.arg(field).arg(written);
                });
            }
        }
        let answers = self.redis.pipeline(&remove, self.options.limit).await?;
        self.stats.keys += keys.len() as u64;
        for answer in answers {
            match (refusal(&answer), answer) {
                (Some(refusal), _) => return Err(StoreError::Refused(refusal)),
                (None, Value::Int(removed)) => self.stats.removed += removed.unsigned_abs(),
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn is_old(&self, written: &[u8], now: u64) -> bool {
        let written = std::str::from_utf8(written).ok().and_then(|text| text.parse::<i64>().ok());
        let oldest = i128::from(now) - i128::from(self.options.older_than.as_secs());
        written.is_some_and(|written| i128::from(written) < oldest)
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("options", &self.options)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
