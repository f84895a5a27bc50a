//! Who may begin now: the fairness queue and the session-boost queue.
//!
//! A request that is admitted holds a [`Permit`]; dropping it, however the request ended, makes room for the next.

mod permit;

pub use permit::{Ask, Denied, Permit};
