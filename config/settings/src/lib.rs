//! The settings document, environment and flags: from what was said to what is meant.
//!
//! [`RouterArgs`] holds what was typed, [`resolve()`] reads the files it names and gives [`Settings`], or
//! [`Problems`]: everything that is wrong, at once. The reference pages come from [`generate`].

pub mod coordination;
pub mod defaults;
pub mod duration;
pub mod facts;
pub mod flags;
pub mod generate;
pub mod kubernetes;
pub mod plugin_names;
pub mod problems;
pub mod redis;
pub mod resolved;
pub mod size;

mod compat;
mod document;
mod event_source;
mod flag_values;
mod models;
mod models_file;
mod raw;
mod resolve;
mod suggest;
mod yaml;

pub use compat::go_flags;
pub use coordination::{CoordinationMode, SharedLoadMode};
pub use event_source::parse_event_source;
pub use facts::{DiskFiles, Files, KthenaEnvironment, SystemFacts};
pub use flags::{RedisArgs, RouterArgs};
pub use kubernetes::KubernetesSettings;
pub use problems::{Problem, Problems};
pub use redis::RedisSettings;
pub use resolve::{resolve, resolve_from};
pub use resolved::{Settings, TokenSettings};
