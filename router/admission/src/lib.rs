//! Who may begin now: the fairness queue and the session-boost queue.
//!
//! A request that is admitted holds a [`Permit`]; dropping it, however the request ended, makes room for the next.
//!
//! [`Admission`] has a queue for each model. A queue is a *line* (who goes next: `fair`, `boost`), a *gate* (when: a
//! pace, so many at once, or as the pods have room) and its waiters, under one lock that is never held while anything
//! waits. A request is taken out of line at the moment when it may begin and not before, so it can be overtaken until
//! then.

mod admission;
mod boost;
mod claim;
mod fair;
mod gate;
mod kept;
mod ledger;
mod line;
mod options;
mod order;
mod pace;
mod permit;
mod place;
mod queue;
mod sessions;
mod slab;
mod spend;
#[cfg(test)]
mod testing;
mod waiters;
mod window;

pub use admission::Admission;
pub use options::{AdmissionMode, FairnessOptions, SessionBoostOptions};
pub use permit::{Ask, Denied, Permit};
