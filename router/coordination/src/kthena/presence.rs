//! Whether anybody writes kthena's layout here.

use std::time::Duration;

use crate::connection::{Node, Redis, StoreError};
use crate::key;

/// Keys that one step of the server looks at.
const COUNT: usize = 1000;

/// Steps of one look: a database full of others' keys is looked through over several looks.
const STEPS: usize = 20;

/// Looks for one block key, and goes on where the last look ended.
#[derive(Debug, Default)]
pub struct Presence {
    found: bool,
    nodes: Vec<Node>,
    cursor: u64,
}

impl Presence {
    /// Whether a block key was found, now or before. `limit` bounds each command.
    ///
    /// # Errors
    /// Redis did not answer, or refused.
    pub async fn look(&mut self, redis: &Redis, limit: Duration) -> Result<bool, StoreError> {
        for _ in 0..STEPS {
            if self.found {
                break;
            }
            if self.nodes.is_empty() {
                self.nodes = redis.nodes(limit).await?;
                self.cursor = 0;
            }
            let Some(node) = self.nodes.last() else { break };
            let mut scan = redis::cmd("SCAN");
            scan.arg(self.cursor).arg("MATCH").arg(key::kthena_block_pattern(None)).arg("COUNT").arg(COUNT);
            let (cursor, keys): (u64, Vec<Vec<u8>>) = redis.query_on(node, &scan, limit).await?;
            self.found = !keys.is_empty();
            self.cursor = cursor;
            if cursor == 0 {
                self.nodes.pop();
                if self.nodes.is_empty() {
                    break;
                }
            }
        }
        Ok(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(flavor = "multi_thread")]
    async fn one_block_key_among_many_others_is_found_in_the_end() {
        let server = TestServer::start_with(&["--enable-debug-command", "yes"]).await;
        let redis = server.redis().await;
        let mut presence = Presence::default();
        assert_eq!(presence.look(&redis, LIMIT).await, Ok(false));
        server.ask(&["DEBUG", "POPULATE", "60000", "other"]).await;
        assert_eq!(presence.look(&redis, LIMIT).await, Ok(false));
        server.ask(&["HSET", "matrix:kv:block:m@1", "pod.ns", "1"]).await;
        let mut found = false;
        // One full pass and the rest of the one before; each look is 20 steps.
        for _ in 0..8 {
            found = presence.look(&redis, LIMIT).await.unwrap();
            if found {
                break;
            }
        }
        assert!(found);
        server.ask(&["FLUSHALL"]).await;
        assert_eq!(presence.look(&redis, LIMIT).await, Ok(true), "what was found once stays found");
    }
}
