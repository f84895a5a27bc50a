//! Asks the sentinels which server is the master.

use std::time::Duration;

use kvasir_settings::redis::{RedisNode, Secret};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult};

use super::plan::Plan;

/// How long one sentinel may take, connecting included, before the next is asked.
const SENTINEL_LIMIT: Duration = Duration::from_millis(700);

/// Whom to ask.
#[derive(Clone, Copy)]
pub(super) struct Sentinels<'a> {
    pub(super) nodes: &'a [RedisNode],
    pub(super) master: &'a str,
    pub(super) username: Option<&'a str>,
    pub(super) password: Option<&'a Secret>,
}

/// The master's address, from the first sentinel that knows it. Its role is for the caller to check: during a
/// failover sentinels may still name the old one.
pub(super) async fn ask(plan: &Plan, sentinels: Sentinels<'_>) -> RedisResult<RedisNode> {
    let mut last =
        RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "no sentinel knows the master"));
    for node in sentinels.nodes {
        match tokio::time::timeout(SENTINEL_LIMIT, ask_one(plan, node, sentinels)).await {
            Ok(Ok(Some(master))) => return Ok(master),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => last = error,
            Err(_) => last = std::io::Error::from(std::io::ErrorKind::TimedOut).into(),
        }
    }
    Err(last)
}

async fn ask_one(plan: &Plan, node: &RedisNode, sentinels: Sentinels<'_>) -> RedisResult<Option<RedisNode>> {
    let client = plan.sentinel_client(node, sentinels.username, sentinels.password)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&Plan::config()).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(sentinels.master);
    let found: Option<(String, u16)> = question.query_async(&mut connection).await?;
    Ok(found.map(|(host, port)| RedisNode { host, port }))
}

/// Whether the server at the other end is a master. A user who may not ask gets the benefit of the doubt.
pub(super) async fn is_master(connection: &mut MultiplexedConnection) -> RedisResult<bool> {
    let answer: RedisResult<redis::Value> = redis::cmd("ROLE").query_async(connection).await;
    match answer {
        Ok(redis::Value::Array(parts)) => {
            let role: Option<String> =
                parts.into_iter().next().and_then(|part| redis::from_redis_value(part).ok());
            Ok(role.is_none_or(|role| role == "master"))
        }
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some("NOPERM") => Ok(true),
        Err(error) => Err(error),
    }
}
