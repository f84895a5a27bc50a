//! What we know now: the routing table and the endpoint registry, swapped whole.
//!
//! [`State`] holds a snapshot of names and endpoints that [`State::replace`] swaps, and beside it each endpoint's
//! live numbers, which outlive a swap: requests in flight (ours, and those of other replicas as [`kvasir_core::LoadBoard`]
//! tells), the last scrape, health. [`InFlight`] is one running
//! attempt and counts down on drop. [`RetryBudget`] and [`ResponseMemory`] are the router's two other memories.

mod board;
mod budget;
mod freshness;
mod health;
mod in_flight;
mod live;
mod plan;
mod registry;
mod responses;
mod routes;
mod slots;
mod snapshot;
mod status;

#[cfg(test)]
mod testing;

pub use budget::RetryBudget;
pub use health::Attempt;
pub use in_flight::InFlight;
pub use plan::{Changes, Plan, PlanEndpoint, PlanModel};
pub use registry::{State, StateOptions};
pub use responses::ResponseMemory;
pub use routes::{Listing, Resolved, Route, RoutingTable};
pub use status::{EndpointStatus, FailureCounts};
