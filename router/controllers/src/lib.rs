//! Kubernetes objects to routes and endpoints, and status back. The only room that watches a cluster.
//!
//! Watches keep [`Objects`]; every change, several at once where they come fast, has all of them translated by
//! [`translate()`], purely, into one plan for the state and the status that each object should have. The plan is handed
//! to whoever started the room; statuses are written by the one replica that leads.

pub mod objects;
pub mod status;
pub mod translate;

pub use objects::{Kind, Objects, PodFacts};
pub use status::{Said, Status, StatusKind, Verdict};
pub use translate::{Options, Translation, translate};
