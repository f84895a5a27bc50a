//! Several routers, agents and engines over real Redis servers: one view, and what becomes of it on bad days.
//!
//! Outages last as long as `KVASIR_OUTAGE_MS` says, two seconds by default; `make faults-long` makes them long.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail loudly")]

mod engines;
mod fleet;
mod interop;
mod load;
mod mirror;
mod outages;
mod topologies;
