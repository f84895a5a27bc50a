//! The scheduling choices a user can switch.
//!
//! One plugin a file, each with its formula, its parameters and an example of its settings. [`registry::build`]
//! turns the scheduler's settings into parts; the binary hands them to the scheduler, which knows no plugin by
//! name.

pub mod filters;
pub mod hit_source;
pub mod pickers;
pub mod producers;
pub mod registry;
pub mod scorers;

#[cfg(test)]
mod testing;

pub use hit_source::{HitPolicy, HitSource};
pub use registry::{BuildError, Built, Parts, StoreLookup, build, build_with_store};
