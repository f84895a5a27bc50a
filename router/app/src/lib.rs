//! The binary `kvasir` as a library: it reads settings, introduces the rooms to each other, and runs.

pub mod cli;
pub mod demo;
pub mod explain;
pub mod findings;
pub mod house;
pub mod knowledge;
pub mod router;
pub mod sharing;
pub mod signals;
pub mod tokens;
