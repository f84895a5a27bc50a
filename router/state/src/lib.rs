//! What we know now: the routing table and the endpoint registry, swapped whole.
//!
//! [`State`] holds a snapshot of routes, targets and endpoints that [`State::replace`] makes of a [`Plan`] and swaps
//! whole. [`State::resolve`] tells where a request goes, [`State::candidates`] who may take it. Beside the snapshot are
//! each endpoint's live numbers, which outlive a swap: requests in flight (ours, and those of other replicas as [`kvasir_core::LoadBoard`]
//! tells), the last scrape, health. [`InFlight`] is one running
//! attempt and counts down on drop. [`RetryBudget`] and [`ResponseMemory`] are the router's two other memories.

mod adapters;
mod available;
mod board;
mod budget;
mod freshness;
mod health;
mod in_flight;
mod live;
pub mod plan;
mod pods;
mod query;
mod registry;
mod responses;
mod routes;
mod sampling;
mod slots;
mod snapshot;
mod status;
mod string_test;
mod target;
mod wanted;

#[cfg(test)]
mod testing;

pub use budget::RetryBudget;
pub use health::Attempt;
pub use in_flight::InFlight;
pub use plan::{Changes, Plan, PlanEndpoint, PlanModel};
pub use query::{Destination, Edits, NoRoute, Redirect, Resolved, RouteName, RouteQuery, Routed};
pub use registry::{State, StateOptions};
pub use responses::ResponseMemory;
pub use routes::{Listener, Listing};
pub use status::{EndpointStatus, FailureCounts};
pub use string_test::StringTest;
pub use target::Target;
