//! The task that tells what was used here and hears what was used elsewhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_core::{Clock, UsageBoard};
use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::connection::{Redis, Refusal, StoreError, refusal};
use crate::key;

use super::peers::{MOST_REPLICAS, Peers};
use super::record::{self, Head};
use super::segments::{Cut, Segments};
use super::{Progress, UsageOptions};

/// Renews our lease and names the replicas whose use may count, see there.
const RENEW: &str = concat!(include_str!("../script/clock.lua"), include_str!("renew.lua"));

pub(super) struct Exchange {
    redis: Redis,
    board: Arc<dyn UsageBoard>,
    options: UsageOptions,
    clock: Arc<dyn Clock>,
    progress: Arc<Mutex<Progress>>,
    cut: Cut,
    segments: Segments,
    peers: Peers,
    /// Our head as the store has it, as far as we know.
    told: Option<Vec<u8>>,
}

impl Exchange {
    pub(super) fn new(
        redis: Redis,
        board: Arc<dyn UsageBoard>,
        options: UsageOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let cut = Cut::of(board.window());
        let segments = Segments::new(cut, clock.now());
        let peers = Peers::new(cut, options.believed);
        // From the first time on it is kept for us.
        drop(board.take_settled());
        Self { redis, board, options, clock, progress: Arc::default(), cut, segments, peers, told: None }
    }

    pub(super) fn progress(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&self.progress)
    }

    /// Exchanges until told to stop, then tells what is left. What was used here counts for others until it is a window
    /// old.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.options.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.exchange().await,
            }
        }
        self.gather(self.clock.now());
        if let Err(error) = self.tell(false).await {
            tracing::warn!(%error, "could not tell the last use of this replica to the others");
        }
        self.board.set_peers(&[]);
    }

    /// Tells and hears, once. After a failure what was heard counts on until it is too old, and what was to be told is
    /// told the next time.
    pub(super) async fn exchange(&mut self) {
        self.gather(self.clock.now());
        let result = self.try_exchange().await;
        let now = self.clock.now();
        self.peers.expire(now);
        if let Some(totals) = self.peers.take_totals() {
            self.board.set_peers(&totals);
        }
        let mut progress = self.progress.lock();
        progress.status.peers = self.peers.count();
        progress.status.untold = self.segments.untold();
        match result {
            Ok(ignored) => {
                progress.status.ignored += ignored;
                progress.status.exchanges += 1;
                progress.last_exchange = Some(now);
            }
            Err(_) => progress.status.failures += 1,
        }
    }

    /// Takes what was used here into the segments, whether the store is there or not.
    fn gather(&mut self, now: Instant) {
        self.segments.advance(now);
        self.segments.add(&self.board.take_settled());
    }

    async fn try_exchange(&mut self) -> Result<u64, StoreError> {
        // What the answers say was so no earlier than this.
        let begun = self.clock.now();
        let names = self.peers.names();
        let mut answers = self.tell(true).await?.into_iter();
        let mut alive: Vec<String> = parsed(answers.next())?;
        alive.retain(|name| *name != self.options.replica);
        let mut ignored = 0;
        if !names.is_empty() {
            let heads: Vec<Option<Vec<u8>>> = parsed(answers.next())?;
            let running: Vec<Option<Vec<u8>>> = parsed(answers.next())?;
            for ((name, known), (head, running)) in names.iter().zip(heads.into_iter().zip(running)) {
                let silent = if *known { Duration::ZERO } else { self.silence(parsed(answers.next())?) };
                if let Some(bytes) = head {
                    let head = Head::read(&bytes);
                    let of_use = head.is_some_and(|head| self.peers.heard(name, head, silent, begun));
                    ignored += u64::from(!of_use);
                }
                let runs = running.as_deref().map(record::read);
                ignored += u64::from(runs == Some(None));
                // What is gone or means nothing to us says that nothing runs.
                self.peers.runs(name, runs.flatten().unwrap_or_default(), begun);
            }
        }
        self.peers.alive(alive, begun);
        Ok(ignored + self.read(begun).await?)
    }

    /// Tells what changed here. With `on` the answers are: who is alive; then, of the peers that are known, all heads,
    /// all that runs, and of each that was not heard before how long its head is still kept.
    async fn tell(&mut self, on: bool) -> Result<Vec<Value>, StoreError> {
        let replica = self.options.replica.clone();
        let writing = self.segments.to_write();
        let head = self.segments.head(&writing).write();
        let mut pipe = Pipeline::with_capacity(writing.len() + 8);
        pipe.cmd("GET").arg(key::usage_head(&replica));
        for (number, bytes, keep) in &writing {
            pipe.cmd("SET")
                .arg(key::usage_segment(&replica, *number))
                .arg(bytes)
                .arg("PX")
                .arg(millis(*keep));
        }
        pipe.cmd("SET").arg(key::usage_head(&replica)).arg(&head).arg("PX").arg(millis(self.lease()));
        if on {
            let (running, _) = record::write(self.board.running());
            let believed = millis(self.options.believed);
            pipe.cmd("SET").arg(key::usage_running(&replica)).arg(running).arg("PX").arg(believed);
        } else {
            pipe.cmd("DEL").arg(key::usage_running(&replica));
        }
        let told = pipe.len();
        pipe.cmd("EVAL").arg(RENEW).arg(1).arg(key::USAGE_REPLICAS).arg(&replica);
        pipe.arg(millis(self.lease())).arg(MOST_REPLICAS);
        let names = if on { self.peers.names() } else { Vec::new() };
        if !names.is_empty() {
            let heads: Vec<String> = names.iter().map(|(name, _)| key::usage_head(name)).collect();
            let running: Vec<String> = names.iter().map(|(name, _)| key::usage_running(name)).collect();
            pipe.cmd("MGET").arg(heads);
            pipe.cmd("MGET").arg(running);
        }
        for (name, _) in names.iter().filter(|(_, known)| !known) {
            pipe.cmd("PTTL").arg(key::usage_head(name));
        }
        let mut answers = self.redis.pipeline(&pipe, self.options.limit).await?;
        if let Some(refusal) = answers.iter().find_map(refusal) {
            return Err(StoreError::Refused(refusal));
        }
        let rest = answers.split_off(told.min(answers.len()));
        self.segments.written(&writing);
        let before: Option<Vec<u8>> = parsed(answers.into_iter().next())?;
        if before != self.told {
            // The store was emptied, or is one that lacks our last writes; or only an answer was lost.
            self.segments.lost();
            self.segments.written(&writing);
        }
        self.told = Some(head);
        Ok(rest)
    }

    /// Reads the segments that we lack. How many made no sense.
    async fn read(&mut self, now: Instant) -> Result<u64, StoreError> {
        let wanted = self.peers.wanted(now);
        if wanted.is_empty() {
            return Ok(0);
        }
        let mut cmd = redis::cmd("MGET");
        for (name, number) in &wanted {
            cmd.arg(key::usage_segment(name, *number));
        }
        let segments: Vec<Option<Vec<u8>>> = self.redis.query(&cmd, self.options.limit).await?;
        let mut ignored = 0;
        for ((name, number), bytes) in wanted.into_iter().zip(segments) {
            // One that is not there was lost with the store, and will be written again.
            let Some(bytes) = bytes else { continue };
            let shares = record::read(&bytes);
            ignored += u64::from(shares.is_none());
            self.peers.read(&name, number, shares.unwrap_or_default());
        }
        Ok(ignored)
    }

    /// How long our head and our name are kept without us.
    fn lease(&self) -> Duration {
        self.cut.keep(0, 0)
    }

    /// How long a replica has said nothing, from how long its head is still kept.
    fn silence(&self, left_millis: i64) -> Duration {
        let left = Duration::from_millis(u64::try_from(left_millis).unwrap_or_default());
        self.lease().saturating_sub(left)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn parsed<T: redis::FromRedisValue>(answer: Option<Value>) -> Result<T, StoreError> {
    redis::from_redis_value(answer.unwrap_or(Value::Nil)).map_err(|_| StoreError::Refused(Refusal::Other))
}
