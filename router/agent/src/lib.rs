//! `kvasir agent`: follows engines' KV events and publishes what they hold, so that all routers share one view.
//!
//! [`AgentArgs`] is what was typed, [`config`] what it means. [`engine`] asks and follows one engine; its events end in the
//! same block index that a router has. From there [`publishing`] writes Kvasir's own layout, and [`kthena_pod`] writes
//! kthena's, which [`kthena_ledger`] counts. [`resume`] keeps what a restarted agent goes on from. The [`board`] shows what
//! all of them are at, and [`http`] and [`metrics`] answer by it.

pub mod board;
pub mod cli;
pub mod config;
pub mod engine;
pub mod http;
pub mod kthena_ledger;
pub mod kthena_pod;
pub mod metrics;
pub mod publishing;
pub mod resume;

mod service;

#[cfg(test)]
mod testing;

pub use cli::{AgentArgs, run};
pub use config::{AgentConfig, EngineConfig, Layout};
pub use service::{Service, ServiceError};
