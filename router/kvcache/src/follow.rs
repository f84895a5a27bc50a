//! Following one engine's events: subscribe, replay, and notice gaps and restarts (decision D4).
//!
//! [`machine`] decides and does no I/O; [`subscribe`](fn@follow) does the I/O around it, one task for each owner.

pub mod machine;
mod replay;
mod source;
mod status;
mod subscribe;
mod tap;

pub use source::KvEventsSource;
pub use status::{FollowerStatus, Link, SavedState};
pub use subscribe::{FollowSetup, follow, follow_with};
pub use tap::EventTap;

#[cfg(test)]
mod tests;
