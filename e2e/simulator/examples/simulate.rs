//! `kvasir simulate` without the rest of the router, which builds faster.

use std::process::ExitCode;

use clap::Parser;
use kvasir_simulator::cli::{SimulateArgs, run};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SimulateArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    run(&Line::parse().args)
}
