//! What one view through Redis costs: lookups in kthena's layout, and the mirror, with a real server of its own.

use std::io::Write as _;
use std::time::Duration;

use clap::{Args, Parser};
use kvasir_bench::shared::{lookup, mirror};

/// What the router uses.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Starts a `redis-server`, measures and prints one JSON object.
#[derive(Debug, Parser)]
#[command(name = "kvasir-bench-redis")]
enum Command {
    /// Lookups for each request in kthena's layout, beside one HGETALL for every block
    Lookup(LookupArgs),
    /// Agents that publish, and routers that follow them
    Mirror(MirrorArgs),
}

#[derive(Debug, Args)]
struct LookupArgs {
    /// Pods that are asked about
    #[arg(long, default_value_t = 8)]
    pods: usize,
    /// Blocks of a prompt; may be repeated
    #[arg(long, default_values_t = [128, 1250])]
    blocks: Vec<usize>,
    /// Seconds for each row
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
}

#[derive(Debug, Args)]
struct MirrorArgs {
    /// Owners
    #[arg(long, default_value_t = 64)]
    owners: u32,
    /// Agents that they are shared out among
    #[arg(long, default_value_t = 64)]
    agents: usize,
    /// Blocks that all owners hold together
    #[arg(long, default_value_t = 1_000_000)]
    blocks: usize,
    /// Block events a second, over all owners
    #[arg(long, default_value_t = 50_000.0)]
    rate: f64,
    /// Seconds for which lag is measured
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Routers that are started one after the other
    #[arg(long, default_value_t = 5)]
    starts: usize,
}

fn main() -> anyhow::Result<()> {
    let report = match Command::parse() {
        Command::Lookup(args) => {
            let time = Duration::from_secs_f64(args.seconds);
            let amounts = lookup::Amounts { pods: args.pods, blocks: args.blocks, time };
            tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async move {
                // On a thread of the pool, as requests are.
                tokio::spawn(async move { lookup::measure(&amounts).await }).await?
            })?
        }
        Command::Mirror(args) => mirror::measure(mirror::Amounts {
            owners: args.owners,
            agents: args.agents.clamp(1, args.owners.max(1) as usize),
            blocks: args.blocks,
            rate: args.rate,
            time: Duration::from_secs_f64(args.seconds),
            starts: args.starts,
        })?,
    };
    let line = format!("{report}\n");
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}
