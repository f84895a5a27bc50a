//! `kvasir tokenizer`: token ids for many models behind one HTTP face, so that no engine has to be asked.
//!
//! [`TokenizerArgs`] is what was typed, [`config`] what it means. [`fleet`] keeps one [`model`] task for each model;
//! each runs the `native` engine (our own tokenizer, in this process) or supervises a `render` child
//! (`vllm launch render`). The [`board`] shows what they are at, and [`http`] answers by it. [`hub`] fetches tokenizers
//! that are named by repository, [`cluster`] follows the names that ModelServers give to models, and [`selection`]
//! decides by them which models are served.

pub mod board;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod fleet;
pub mod http;
pub mod hub;
pub mod metrics;
pub mod model_set;
pub mod native;
pub mod render;
pub mod restarts;
pub mod selection;
pub mod timings;

mod model;
mod service;
mod watch;

#[cfg(test)]
mod testing;

pub use cli::{TokenizerArgs, open, run};
pub use config::{Problems, ServiceConfig};
pub use service::{Service, ServiceError};
