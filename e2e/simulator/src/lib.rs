//! A simulated fleet, driven by the real scheduler: policies compared on the same arrivals.
//!
//! Time is virtual and one run is one thread, so a seed gives the same run on every machine. [`workload`] writes the
//! requests of a [`trace`]; [`run`](mod@run) plays them over simulated [`engine`]s, with placements by the router's own code
//! ([`policy`] says which) or by an oracle; [`outcome`] turns what happened into figures. [`calibrate`] fits the engine
//! model to measured requests.

pub mod calibrate;
pub mod cli;
pub mod clock;
pub mod engine;
pub mod experiment;
pub mod gate;
pub mod outcome;
pub mod policy;
pub mod presets;
mod replica;
pub mod report;
pub mod run;
pub mod scale;
mod svg;
pub mod table;
pub mod trace;
pub mod workload;

pub use cli::{SimulateArgs, run};
