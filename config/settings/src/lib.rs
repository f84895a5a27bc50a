//! The settings document, environment and flags: from what was said to what is meant.

pub mod resolved;

pub use resolved::Settings;
