//! Kubernetes objects to routes and endpoints, and status back. The only room that watches a cluster.
//!
//! Watches keep [`Objects`]; every change, several at once where they come fast, has all of them translated by
//! [`translate()`], purely, into one plan for the state and the status that each object should have. The plan is handed
//! to whoever started the room; statuses are written by the one replica that leads.

mod bootstrap;
mod client;
pub mod config_map;
mod dump;
mod lease;
pub mod model_names;
pub mod objects;
mod pod_facts;
mod retry;
mod room;
pub mod status;
pub mod translate;
mod watch;
pub mod webhook;
mod writer;

pub use client::{ClientSettings, ConnectError, connect};
pub use dump::dump;
pub use kube::Client;
pub use lease::Leadership;
pub use objects::{ContainerFacts, Kind, Objects, PodFacts};
pub use pod_facts::{PINNED_ANNOTATION, RANKS_ANNOTATION};
pub use room::{PlanSink, Room, RoomOptions, RoomStatus};
pub use status::{Said, Status, StatusKind, Verdict};
pub use translate::{Options, Translation, translate};
pub use watch::{KindStatus, WatchedKind};
