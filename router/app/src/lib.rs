//! The binary `kvasir` as a library: it reads settings, introduces the rooms to each other, and runs.

mod admission;
pub mod cli;
pub mod cluster;
pub mod demo;
pub mod explain;
pub mod findings;
pub mod house;
pub mod household;
pub mod knowledge;
pub mod migrate;
pub mod router;
pub mod sharing;
pub mod signals;
pub mod tokens;
