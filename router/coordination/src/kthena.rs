//! kthena's layout: who holds which block, read for each request, written by an agent, and kept clean.

pub mod garbage;
pub mod lookup;
pub mod presence;
pub mod writer;

pub use garbage::{Collector, Garbage, GarbageOptions, GarbageProgress, GarbageStats};
pub use lookup::{KthenaLookup, LookupOptions, LookupStats};
pub use presence::Presence;
pub use writer::{KthenaChange, KthenaEngine, KthenaWriter, WriterNames, WriterOptions, WriterStats};

use std::time::Duration;

use crate::connection::{Redis, StoreError};

/// The server's clock, seconds and microseconds since 1970.
async fn server_time(redis: &Redis, limit: Duration) -> Result<(u64, u64), StoreError> {
    redis.query(&redis::cmd("TIME"), limit).await
}
