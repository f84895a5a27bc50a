//! The chat-completions probe and load tester.
//!
//! *Probe mode* sends a few requests that share one long salted prefix, and says whether they were pinned to the
//! engine that holds it ([`run_probe`]). *Load mode* plays a workload in closed or open loop and measures it
//! ([`run_load`]). [`run`] is the face of both: `kvasir probe` and `kvasir probe load`.

mod answer;
mod args;
mod base_url;
mod body;
mod check;
mod client;
mod config;
mod discovery;
mod engines;
mod error;
mod exchange;
mod face;
mod failure;
mod load;
mod probe_report;
mod progress;
mod report;
mod script;
mod sse;
mod tally;
#[cfg(test)]
mod testing;
mod text;
mod verdict;
mod workload;

pub use args::ProbeArgs;
pub use check::{run_probe, run_probe_watched};
pub use config::{Amount, Api, LoadConfig, LoadMode, ProbeConfig, Target};
pub use discovery::first_model;
pub use error::ProbeError;
pub use face::run;
pub use load::{run_load, run_load_watched};
pub use probe_report::{PhaseReport, ProbeReport, RequestLine};
pub use progress::Progress;
pub use report::{EndpointShare, EndpointSource, LoadReport, Percentiles};
pub use text::DEFAULT_TOKENS_PER_WORD;
pub use verdict::Verdict;
pub use workload::Workload;
