//! Agents, a real Redis and routers: what one publishes, the others have.

mod faults;
mod fleet;
mod following;
mod laws;
mod leases;
mod restores;
mod scale;
mod shapes;
