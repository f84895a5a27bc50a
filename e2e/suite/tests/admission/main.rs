//! The two queues before placement, through whole routers: shares, order, limits, shutdown, and what replicas share.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod fairness;
mod guide;
mod limits;
mod many;
mod replicas;
mod scene;
mod session_boost;
