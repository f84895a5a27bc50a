//! Who takes a request: gather, filter, score, pick.
//!
//! [`Scheduler::gather`] does what may wait (tokens, hashes, prefix hits) once for each request and under one
//! deadline. [`Scheduler::decide`] is a pure function over what was gathered: the same data, the same
//! candidates and the same chance give the same picks; [`Scheduler::decide_pairs`] is the same for engines that prefill
//! apart from those that decode. Invariant: nothing below `decide` waits, and no plugin is
//! known here by name.

pub mod aggregated;
mod disaggregated;
pub mod prepare;
pub mod profile;

#[cfg(test)]
mod testing;

pub use aggregated::Scheduler;
pub use prepare::Plan;
pub use profile::Profile;
