//! A fake vLLM or SGLang that keeps a KV cache and publishes KV events.
//!
//! One process holds many engines. Each speaks the engine's HTTP surface, tokenizes, keeps a paged KV cache with
//! prefix reuse, takes the time a real engine would take, publishes what its cache does over ZMQ, counts under the
//! engine's metric names, and breaks in the ways that are ordered. What it does to its cache is known exactly, so
//! it answers as an oracle too.
//!
//! The way in is [`Engine`] (one) or [`Fleet`] (many); [`cli`] is the face of `kvasir mock-engine`.

mod adapters;
mod answer;
mod backlog;
mod blocks;
mod cache;
pub mod cli;
mod config;
mod core;
mod engine;
mod event;
mod fabric;
mod fault;
mod fleet;
mod generation;
mod hash;
mod http;
mod metrics;
mod part;
mod port;
mod publisher;
mod recorder;
mod server;
mod slots;
mod sockets;
mod tokenize;

pub use backlog::Backlog;
pub use cli::{MockEngineArgs, run};
pub use config::{
    Answer, ConfigError, Encoding, EngineConfig, EventsConfig, EventsEndpoint, HashForm, HashRoot,
};
pub use engine::{Engine, KvEndpoints, Stats};
pub use fabric::{End, Exchange, Fabric};
pub use fault::{Fault, FaultOrder};
pub use fleet::Fleet;
pub use kvasir_core::{ConnectorKind, EngineKind, Role};
pub use part::Part;
pub use recorder::RecordedRequest;
pub use tokenize::{EncodeError, HuggingFace, Tokenize, WordTokenizer};
