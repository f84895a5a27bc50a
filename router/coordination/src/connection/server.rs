//! One server, or the master that sentinels name: what its callers and the keeper of its connection share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::{Notify, watch};

use kvasir_settings::redis::RedisNode;

use super::ConnectionStatus;
use super::answer::{Refusal, StoreError, describe, refusal};
use super::plan::Plan;

/// The connection in use.
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    /// Which data server it leads to.
    pub(super) node: RedisNode,
    /// Rises with each connection.
    pub(super) generation: u64,
}

pub(super) struct Server {
    pub(super) plan: Plan,
    /// Where the Redis is, without secrets.
    pub(super) name: String,
    pub(super) live: ArcSwapOption<Live>,
    /// Connection attempts that have ended. Callers before the first end wait for it.
    attempts: watch::Sender<u64>,
    generations: AtomicU64,
    status: Mutex<Status>,
    /// Wakes the keeper.
    pub(super) attention: Notify,
    /// The server said that it is not the master.
    pub(super) misplaced: AtomicBool,
}

struct Status {
    since: Instant,
    last_error: Option<String>,
    /// What a call gets while there is no connection.
    answer: StoreError,
}

impl Server {
    pub(super) fn new(plan: Plan, name: String) -> Self {
        Self {
            plan,
            name,
            live: ArcSwapOption::empty(),
            attempts: watch::Sender::new(0),
            generations: AtomicU64::new(0),
            status: Mutex::new(Status {
                since: Instant::now(),
                last_error: None,
                answer: StoreError::Unreachable,
            }),
            attention: Notify::new(),
            misplaced: AtomicBool::new(false),
        }
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        let status = self.status.lock();
        ConnectionStatus {
            connected: self.live.load().is_some(),
            since: status.since,
            last_error: status.last_error.clone(),
            reconnects: self.generations.load(Ordering::Relaxed).saturating_sub(1),
        }
    }

    /// One command and its answer.
    pub(super) async fn command(&self, cmd: &Cmd, limit: Duration) -> Result<Value, StoreError> {
        let value = self.within(limit, async |mut link| link.req_packed_command(cmd).await).await?;
        self.heed(std::slice::from_ref(&value));
        Ok(value)
    }

    /// Many commands and their answers; of a transaction, what it answered.
    pub(super) async fn commands(&self, pipe: &Pipeline, limit: Duration) -> Result<Vec<Value>, StoreError> {
        // A transaction answers OK, QUEUED for each command, and then one list.
        let (offset, count) = if pipe.is_transaction() { (pipe.len() + 1, 1) } else { (0, pipe.len()) };
        let send =
            async |mut link: MultiplexedConnection| link.req_packed_commands(pipe, offset, count).await;
        let values = self.within(limit, send).await?;
        self.heed(&values);
        match <[Value; 1]>::try_from(values) {
            Ok([Value::Array(values)]) if pipe.is_transaction() => Ok(values),
            Ok([value]) => Ok(vec![value]),
            Err(values) => Ok(values),
        }
    }

    /// Does something with the connection, within a limit.
    async fn within<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<T, StoreError> {
        let mut reached = false;
        let attempt = async {
            let live = self.live().await?;
            reached = true;
            work(live.connection.clone()).await.map_err(|error| {
                let meaning = StoreError::of(&error);
                self.failed(&live, meaning, &error);
                meaning
            })
        };
        match tokio::time::timeout(limit, attempt).await {
            Ok(result) => result,
            Err(_) if reached => {
                self.attention.notify_one();
                Err(StoreError::TimedOut)
            }
            Err(_) => Err(StoreError::Unreachable),
        }
    }

    /// Notices the errors that are about the server and not about a command.
    fn heed(&self, values: &[Value]) {
        if values.iter().any(|value| refusal(value) == Some(Refusal::ReadOnly)) {
            self.misplaced();
        }
    }

    pub(super) async fn live(&self) -> Result<Arc<Live>, StoreError> {
        if let Some(live) = self.live.load_full() {
            return Ok(live);
        }
        if *self.attempts.borrow() == 0 {
            // The sender lives as long as we do, so this ends with an attempt.
            let _ = self.attempts.subscribe().wait_for(|attempts| *attempts > 0).await;
        }
        self.live.load_full().ok_or_else(|| self.status.lock().answer)
    }

    pub(super) async fn connected(&self) {
        let mut attempts = self.attempts.subscribe();
        while self.live.load().is_none() {
            attempts.mark_unchanged();
            if self.live.load().is_none() {
                let _ = attempts.changed().await;
            }
        }
    }

    /// The keeper has a connection.
    pub(super) fn up(&self, connection: MultiplexedConnection, node: RedisNode) {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let was = self.live.swap(Some(Arc::new(Live { connection, node, generation })));
        self.misplaced.store(false, Ordering::Relaxed);
        if was.is_none() {
            self.status.lock().since = Instant::now();
            tracing::info!(redis = %self.name, "connected to Redis");
        }
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// The keeper could not connect, or gives a connection up. Says so in the log where that is news.
    pub(super) fn down(&self, answer: StoreError, why: &str) {
        let was = self.live.swap(None);
        let mut status = self.status.lock();
        let news = was.is_some() || status.last_error.as_deref() != Some(why);
        if was.is_some() {
            status.since = Instant::now();
        }
        status.answer = answer;
        status.last_error = Some(why.to_owned());
        drop(status);
        if news {
            tracing::warn!(redis = %self.name, error = why, "no connection to Redis; trying again");
        }
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// A command failed.
    fn failed(&self, live: &Live, meaning: StoreError, error: &RedisError) {
        match meaning {
            StoreError::Refused(_) => {}
            StoreError::Unreachable => {
                let current = self.live.load();
                if current.as_ref().is_some_and(|current| current.generation == live.generation) {
                    self.down(StoreError::Unreachable, &describe(error));
                }
                self.attention.notify_one();
            }
            StoreError::TimedOut => self.attention.notify_one(),
        }
    }

    /// The server is the wrong one: the keeper looks for the right one.
    pub(super) fn misplaced(&self) {
        self.misplaced.store(true, Ordering::Relaxed);
        self.attention.notify_one();
    }
}
