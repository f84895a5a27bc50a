//! A connection that blocks nobody else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, FromRedisValue};

use super::answer::{StoreError, typed};
use super::plan::{CONNECT_LIMIT, Plan};
use super::server::Server;

/// A connection of its own to the server that the main connection leads to. After an error it is of no more use: drop
/// it and ask for another.
pub struct Dedicated {
    connection: MultiplexedConnection,
    server: Arc<Server>,
    generation: u64,
}

impl Dedicated {
    pub(super) async fn open(server: Arc<Server>) -> Result<Self, StoreError> {
        let attempt = async {
            let live = server.live().await?;
            let client = server.plan.client(&live.node).map_err(|error| StoreError::of(&error))?;
            let config = Plan::config();
            let connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| StoreError::of(&error))?;
            Ok((connection, live.generation))
        };
        let (connection, generation) =
            tokio::time::timeout(CONNECT_LIMIT, attempt).await.map_err(|_| StoreError::TimedOut)??;
        Ok(Self { connection, server, generation })
    }

    /// Sends one command and reads its answer. For a command that blocks, `limit` must be longer than it blocks.
    ///
    /// # Errors
    /// As [`Redis::query`](super::Redis::query); `Unreachable` also when the main connection was made anew since.
    pub async fn query<T: FromRedisValue>(&mut self, cmd: &Cmd, limit: Duration) -> Result<T, StoreError> {
        if self.server.live.load().as_ref().is_none_or(|live| live.generation != self.generation) {
            return Err(StoreError::Unreachable);
        }
        match tokio::time::timeout(limit, self.connection.req_packed_command(cmd)).await {
            Ok(Ok(value)) => typed(value),
            Ok(Err(error)) => {
                self.server.attention.notify_one();
                Err(StoreError::of(&error))
            }
            Err(_) => {
                self.server.attention.notify_one();
                Err(StoreError::TimedOut)
            }
        }
    }
}

impl fmt::Debug for Dedicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dedicated").field("generation", &self.generation).finish_non_exhaustive()
    }
}
