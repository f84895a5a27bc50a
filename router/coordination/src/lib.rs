//! Redis, and the only crate that names it: the block mirror, kthena's layout, the load that replicas share.

pub mod breaker;
pub mod connection;
pub mod delta;
pub mod key;
pub mod kthena;
pub mod load;
pub mod mirror;
pub mod publish;
mod script;
pub mod snapshot;
mod supervision;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod usage;

pub use breaker::{Breaker, BreakerLimits, BreakerState};
pub use connection::{ConnectionStatus, Dedicated, Node, Redis, RedisSetupError, Refusal, StoreError};
pub use kthena::{KthenaLookup, LookupOptions};
pub use load::{LoadExchange, LoadOptions, LoadStatus};
pub use mirror::{Mirror, MirrorOptions, MirrorStatus, MirroredOwner, OwnerState};
pub use publish::{
    PublishedOwner, Publisher, PublisherOptions, PublisherState, PublisherStatus, load_resume_state,
};
pub use usage::{UsageExchange, UsageOptions, UsageStatus};
