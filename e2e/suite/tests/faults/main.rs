//! The field's known faults, each against the whole router. `docs/fault-cases.md` says which test covers which case.

mod answers;
mod cancellation;
mod counting;
mod events;
mod fleet;
mod framing;
mod odd_requests;
mod placement;
mod protocols;
mod retries;
mod shutdown;
mod sources;
mod table;
mod tokens;
