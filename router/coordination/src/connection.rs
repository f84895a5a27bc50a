//! The way to a Redis: one handle for all rooms, whatever the arrangement of servers, which never waits beyond a limit.

mod answer;
mod cluster;
mod dedicated;
mod keeper;
mod plan;
mod sentinel;
mod server;
mod slots;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kvasir_settings::redis::{RedisNode, RedisSettings, RedisTopology};
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use tokio_util::task::AbortOnDropHandle;

pub use answer::{Refusal, StoreError, refusal};
pub use dedicated::Dedicated;
pub use plan::RedisSetupError;

use cluster::Cluster;
pub(crate) use plan::Plan;
use server::Server;

/// A Redis. Cheap to clone; all clones use one connection (on Cluster: one to each node).
///
/// Connects in the background, as soon as it is made inside a runtime (else at its first use), and again for ever with
/// back-off and jitter of at most two seconds. While there is no connection a call fails at once; only calls that come
/// before the first attempt has ended wait for it, within their limit.
#[derive(Clone)]
pub struct Redis(Arc<Handle>);

/// Ends the keeper's task with the last clone.
struct Handle {
    /// Where the Redis is, without secrets.
    name: String,
    store: Store,
    keeper: OnceLock<AbortOnDropHandle<()>>,
}

enum Store {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

/// How the connection does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionStatus {
    /// Whether commands can be sent.
    pub connected: bool,
    /// Since when that is so.
    pub since: Instant,
    /// Why the last attempt or connection failed, without names and secrets; `None` before the first failure.
    pub last_error: Option<String>,
    /// Connections made after the first one. In a Cluster a master that another server replaced counts too.
    pub reconnects: u64,
}

/// One server that can be asked by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// The only one.
    Only,
    /// A master of a Cluster.
    Master(RedisNode),
}

impl Redis {
    /// Prepares the way; no network yet.
    ///
    /// # Errors
    /// A certificate or key file cannot be read or is none. The error names the file and what to do.
    pub fn new(settings: RedisSettings) -> Result<Self, RedisSetupError> {
        let (plan, name) = (Plan::new(&settings)?, settings.to_string());
        let store = match &settings.topology {
            RedisTopology::Cluster(seeds) => {
                Store::Cluster(Arc::new(Cluster::new(plan, name.clone(), seeds)))
            }
            _ => Store::One(Arc::new(Server::new(plan, name.clone()))),
        };
        let redis = Self(Arc::new(Handle { name, store, keeper: OnceLock::new() }));
        if tokio::runtime::Handle::try_current().is_ok() {
            redis.start();
        }
        Ok(redis)
    }

    /// Whether keys are spread over several masters.
    pub fn is_cluster(&self) -> bool {
        matches!(self.0.store, Store::Cluster(_))
    }

    /// Sends one command and reads its answer.
    ///
    /// # Errors
    /// No connection, no answer within `limit`, or an error as answer (also when the answer is not a `T`).
    pub async fn query<T: FromRedisValue>(&self, cmd: &Cmd, limit: Duration) -> Result<T, StoreError> {
        self.start();
        answer::typed(match &self.0.store {
            Store::One(server) => server.command(cmd, limit).await?,
            Store::Cluster(cluster) => cluster.command(cmd, limit).await?,
        })
    }

    /// Sends many commands at once and reads their answers, in their order, one for each command (`ignore()` has no
    /// meaning here). An error that one command got is a [`Value::ServerError`] in its place, see [`refusal`].
    ///
    /// On Cluster each master gets its part, side by side; a command without a key goes to one that gets a part
    /// anyway. The order of commands holds for each key. An atomic pipeline answers with what its transaction answered
    /// and must keep to one slot.
    ///
    /// # Errors
    /// No connection, no answer within `limit`, or no answers to tell apart (then nothing is known of any command).
    pub async fn pipeline(&self, pipe: &Pipeline, limit: Duration) -> Result<Vec<Value>, StoreError> {
        if pipe.is_empty() {
            return Ok(Vec::new());
        }
        self.start();
        match &self.0.store {
            Store::One(server) => server.commands(pipe, limit).await,
            Store::Cluster(cluster) => cluster.commands(pipe, limit).await,
        }
    }

    /// A connection of its own, for commands that block. It is lost when the main one is made anew, so that it never
    /// stays with a master that was replaced.
    ///
    /// # Errors
    /// No connection can be made now, or this is a Cluster (`Refused`).
    pub async fn dedicated(&self) -> Result<Dedicated, StoreError> {
        self.start();
        match &self.0.store {
            Store::One(server) => Dedicated::open(Arc::clone(server)).await,
            Store::Cluster(_) => Err(StoreError::Refused(Refusal::Other)),
        }
    }

    /// Every server that holds keys, for commands that go through all keys of one server.
    ///
    /// # Errors
    /// A Cluster that was not found within `limit`.
    pub async fn nodes(&self, limit: Duration) -> Result<Vec<Node>, StoreError> {
        self.start();
        match &self.0.store {
            Store::One(_) => Ok(vec![Node::Only]),
            Store::Cluster(cluster) => {
                Ok(cluster.masters(limit).await?.into_iter().map(Node::Master).collect())
            }
        }
    }

    /// Sends one command to one server.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn query_on<T: FromRedisValue>(
        &self,
        node: &Node,
        cmd: &Cmd,
        limit: Duration,
    ) -> Result<T, StoreError> {
        self.start();
        match (&self.0.store, node) {
            (Store::Cluster(cluster), Node::Master(node)) => {
                answer::typed(cluster.server(node).command(cmd, limit).await?)
            }
            _ => self.query(cmd, limit).await,
        }
    }

    /// Waits until commands can be sent; for ever where that never comes.
    pub async fn connected(&self) {
        self.start();
        match &self.0.store {
            Store::One(server) => server.connected().await,
            Store::Cluster(cluster) => cluster.connected().await,
        }
    }

    /// How the connection does. Of a Cluster: connected when its slots are known and at least one master is.
    pub fn status(&self) -> ConnectionStatus {
        match &self.0.store {
            Store::One(server) => server.status(),
            Store::Cluster(cluster) => cluster.status(),
        }
    }

    /// Starts the task that keeps the connection, once.
    fn start(&self) {
        self.0.keeper.get_or_init(|| {
            AbortOnDropHandle::new(match &self.0.store {
                Store::One(server) => tokio::spawn(keeper::keep(Arc::clone(server))),
                Store::Cluster(cluster) => tokio::spawn(cluster::keep(Arc::clone(cluster))),
            })
        });
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("at", &self.0.name).field("status", &self.status()).finish()
    }
}
