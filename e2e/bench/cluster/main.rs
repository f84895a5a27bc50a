//! What a large cluster costs: a release router as a process, a real API server, thousands of pods and routes.
//!
//! Writes its figures as JSON; `e2e/bench/cluster.py` makes a page's part of them.

mod phases;
mod process;
mod spread;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use kvasir_suite::cluster::{Cluster, Crds, install_crds};
use kvasir_suite::scale::{Fleet, Hosts, Size};
use serde_json::{Value, json};
use tempfile::TempDir;

use phases::Stage;
use process::{Router, Usage};

/// What is made and how long it is looked at.
#[derive(Debug, Parser)]
#[command(name = "kvasir-bench-cluster")]
struct Args {
    /// The program
    #[arg(long)]
    router: PathBuf,
    /// ModelServers
    #[arg(long, default_value_t = 250)]
    servers: usize,
    /// Pods of each ModelServer
    #[arg(long, default_value_t = 8)]
    pods_each: usize,
    /// ModelRoutes
    #[arg(long, default_value_t = 1000)]
    routes: usize,
    /// Routes that are asked
    #[arg(long, default_value_t = 16)]
    hot: usize,
    /// Length of a phase, seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Single changes of each kind
    #[arg(long, default_value_t = 100)]
    single: usize,
    /// Requests a second through the router, and as many to pods directly
    #[arg(long, default_value_t = 100)]
    requests: u32,
    /// Changes a second
    #[arg(long, default_value_t = 50)]
    changes: u32,
    /// Cold starts
    #[arg(long, default_value_t = 3)]
    starts: usize,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let figures = run(Args::parse()).await?;
    writeln!(std::io::stdout(), "{figures}")?;
    Ok(())
}

async fn run(args: Args) -> Result<Value> {
    let size = Size { servers: args.servers, pods_each: args.pods_each, routes: args.routes, hot: args.hot };
    let cluster = Cluster::start().await?;
    let client = cluster.client().await?;
    install_crds(&client, Crds::Ours).await?;
    let namespace = cluster.namespace("models").await?;
    let hosts = Hosts::start().await?;
    let began = Instant::now();
    let fleet = Fleet::make(&client, &namespace, size, hosts.port).await?;
    say(format_args!("made {} pods and {} routes in {:.1?}", size.pods(), size.routes, began.elapsed()))?;

    let folder = TempDir::new()?;
    let mut starts = Vec::new();
    let mut router = None;
    for number in 0..args.starts.max(1) {
        // The one before gives its lease back first.
        if let Some(before) = router.take() {
            Router::end(before).await?;
        }
        let mut started = Router::start(&args.router, cluster.kubeconfig(), folder.path()).await?;
        let first = started.first_figures()?;
        let statuses = if number == 0 { Some(started.until_statuses_are_written(size).await?) } else { None };
        say(format_args!(
            "ready after {:.2?}, {} MiB; statuses {statuses:.1?}",
            started.ready_after, first.resident_mib
        ))?;
        starts.push(json!({
            "ready_seconds": started.ready_after.as_secs_f64(), "resident_mib": first.resident_mib,
            "peak_mib": first.peak_mib, "cpu_seconds": first.cpu.as_secs_f64(),
            "statuses_seconds": statuses.map(|took| took.as_secs_f64()),
        }));
        router = Some(started);
    }
    let router = router.context("no router")?;
    let mut stage = Stage {
        cluster: &cluster,
        fleet,
        hosts: &hosts,
        router,
        length: Duration::from_secs(args.seconds),
        requests: args.requests,
    };
    let idle = stage.idle().await?;
    say(format_args!("idle: {idle}"))?;
    let single = stage.single(args.single).await?;
    say(format_args!("single changes: {single}"))?;
    let alone = stage.alone().await?;
    say(format_args!("changes one by one: {alone}"))?;
    let before = stage.quiet().await?;
    say(format_args!("quiet: {before}"))?;
    let during = stage.changing(args.changes).await?;
    say(format_args!("{} changes a second: {during}", args.changes))?;
    let after = stage.quiet().await?;
    say(format_args!("quiet: {after}"))?;
    let last = Usage::of(stage.router.pid())?;
    let objects = json!({
        "servers": size.servers, "pods": size.pods(), "routes": size.routes, "hot": size.hot,
        "page_bytes": hosts.page_bytes(),
    });
    let figures = json!({
        "objects": objects, "starts": starts, "idle": idle, "single": single, "alone": alone,
        "quiet": [before, after], "changing": during,
        "end": {"resident_mib": last.resident_mib, "peak_mib": last.peak_mib},
    });
    stage.router.end().await?;
    Ok(figures)
}

/// A line about how far it is, beside the figures.
fn say(text: std::fmt::Arguments<'_>) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "{text}")?)
}
