//! The Pingora door: the life of one request, from its first byte in to its last byte out.
//!
//! [`lifecycle`] is the path; each step is one file and takes what the step before gave. The only room that names
//! Pingora, and the only one ([`reply`]) that knows statuses and client-facing text.

pub mod admin;
mod admit;
mod answers;
mod buffers;
mod connection;
mod connector;
pub mod coordination;
mod dispatch;
mod dns;
mod edits;
mod exhibits;
pub mod explain;
mod forward;
mod head;
mod leg;
mod lifecycle;
pub mod listener;
mod models;
mod outbound;
pub mod page;
mod place;
mod ports;
mod read;
pub mod readiness;
mod relay;
pub mod reply;
mod resolve;
mod scheduling;
mod service;
mod session;
mod settle;
mod timers;
mod turns;

use std::sync::Arc;

use kvasir_core::Clock;
use kvasir_kvcache::Index;
use kvasir_settings::resolved::{HeaderRules, Limits};
use kvasir_state::{ResponseMemory, RetryBudget, State};
use kvasir_telemetry::{AccessLogger, Metrics};
use kvasir_tokenize::Chain;

pub use admit::Turnstile;
pub use buffers::ByteBudget;
pub use coordination::{Coordination, CoordinationView};
pub use exhibits::{Exhibit, Exhibits};
pub use explain::DecisionRing;
pub use leg::Connections;
pub use listener::Doors;
pub use page::Counted;
pub use ports::Ports;
pub use readiness::{Gate, Readiness};
pub use scheduling::{Scheduled, Scheduling};
pub use session::SessionRule;

/// What the door needs from the other rooms. Built by `app`, shared by every request.
pub struct Gateway {
    /// Routes and endpoints.
    pub state: Arc<State>,
    /// Who may begin now.
    pub turnstile: Turnstile,
    /// Gathers and decides.
    pub scheduling: Scheduling,
    /// The block index, for explain and metrics.
    pub index: Arc<Index>,
    /// The tokenization chain, for proof, explain and metrics.
    pub tokens: Arc<Chain>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Access log, when on.
    pub access_log: Option<AccessLogger>,
    /// Limits and time-outs.
    pub limits: Limits,
    /// What is shown and passed on.
    pub headers: HeaderRules,
    /// Connections to engines.
    pub connections: Connections,
    /// The last decisions.
    pub ring: DecisionRing,
    /// Which endpoint holds a stored response.
    pub responses: ResponseMemory,
    /// How many retries may still be made.
    pub retry_budget: RetryBudget,
    /// Bytes of bodies held at once.
    pub buffers: ByteBudget,
    /// What is shared with other replicas.
    pub coordination: Coordination,
    /// What other rooms show.
    pub exhibits: Exhibits,
    /// The ports of Gateways' listeners.
    pub ports: Ports,
    /// Whether `/metrics` is answered at the main inference port, too.
    pub metrics_on_router_port: bool,
    /// Ready, draining.
    pub readiness: Arc<Readiness>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("limits", &self.limits)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
