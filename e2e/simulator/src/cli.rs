//! `kvasir simulate`: policies compared on a simulated fleet.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::experiment::{Experiment, Nature};
use crate::policy::Policy;
use crate::presets::{PRESETS, Preset};
use crate::report::Findings;
use crate::scale::{self, FleetCost};
use crate::workload::Workload;
use crate::{calibrate, report, table};

/// Compare ways of placing requests on a simulated fleet, driven by the real scheduler
#[derive(Clone, Debug, Args)]
pub struct SimulateArgs {
    /// Pods of the fleet
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pods: u32,
    /// Router replicas, each with its own view
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub replicas: u32,
    /// Engine of a pod: h100x2-32b, h100-8b, a100-8b or cpu-calibrated
    #[arg(long, default_value = PRESETS[0].name)]
    pub preset: String,
    /// KV blocks of a pod instead of the preset's
    #[arg(long)]
    pub kv_blocks: Option<u32>,
    /// Give every second pod half the speed and half the memory
    #[arg(long)]
    pub uneven: bool,
    /// Workloads, by commas, or `all`
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub workload: Vec<String>,
    /// Policies, by commas, or `all`
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub policy: Vec<String>,
    /// `affinity` of kvasir-cost, instead of the default
    #[arg(long)]
    pub affinity: Option<f64>,
    /// Seeds, by commas: one run for each
    #[arg(long, visible_alias = "seeds", value_delimiter = ',', default_value = "1,2,3")]
    pub seed: Vec<u64>,
    /// Tokens worth keeping over the KV memory of the fleet
    #[arg(long, default_value_t = 0.73)]
    pub kv_demand: f64,
    /// Work that comes over what the fleet can do when everything seen before is reused
    #[arg(long, default_value_t = 0.75)]
    pub utilisation: f64,
    /// Requests of a run
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    pub requests: u32,
    /// Share of the requests that warms the caches and is not counted
    #[arg(long, default_value_t = 0.3)]
    pub warm_up: f64,
    /// Factor of all prompt and answer lengths
    #[arg(long, default_value_t = 1.0)]
    pub length_scale: f64,
    /// Seconds until the first token that are well
    #[arg(long, default_value_t = 1.0)]
    pub slo: f64,
    /// Runs at once; 0 is one for each core
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
    /// What is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write report and drawings into this directory too
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// Measure the cost of a decision on fleets of these sizes, by commas
    #[arg(long, value_delimiter = ',')]
    pub fleets: Vec<u32>,
    /// Fit the engine model to measured requests (a file of e2e/vllm/calibration.py), print it and do nothing else
    #[arg(long)]
    pub calibrate: Option<PathBuf>,
}

/// What is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Tables for people.
    Table,
    /// One JSON object.
    Json,
}

/// The subcommand.
///
/// # Errors
/// Arguments that cannot be used, or a report that cannot be written.
pub fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.calibrate {
        let fit = calibrate::Capture::read(path)?.fit();
        print(&format!("{}\n", serde_json::to_string_pretty(&fit)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (experiment, preset) = experiment(args)?;
    let natures: Vec<Nature> =
        experiment.workloads.iter().map(|workload| experiment.nature(*workload)).collect();
    let rows = experiment.play(&|done, all| progress(args, &format!("run {done} of {all}")))?;
    progress(args, "");
    let fleets = fleets(args, &experiment)?;
    match args.format {
        Format::Table => {
            print(&table::table(&rows, &natures, args.slo))?;
            print(&scale::table(&fleets))?;
        }
        Format::Json => {
            let all = json!({"workloads": natures, "rows": rows, "fleets": fleets});
            print(&format!("{}\n", serde_json::to_string(&all)?))?;
        }
    }
    if let Some(folder) = &args.report {
        let findings = Findings {
            experiment: &experiment,
            preset: &preset,
            natures: &natures,
            rows: &rows,
            fleets: &fleets,
            command: &command(),
        };
        report::write(folder, &findings).with_context(|| format!("the report in {}", folder.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn fleets(args: &SimulateArgs, experiment: &Experiment) -> anyhow::Result<Vec<FleetCost>> {
    let mut costs = Vec::new();
    for pods in &args.fleets {
        progress(args, &format!("a fleet of {pods} pods"));
        costs.push(scale::measure(experiment, *pods as usize)?);
    }
    progress(args, "");
    Ok(costs)
}

fn experiment(args: &SimulateArgs) -> anyhow::Result<(Experiment, Preset)> {
    let preset = Preset::named(&args.preset).with_context(|| {
        format!(
            "unknown preset {:?}; there are {}",
            args.preset,
            PRESETS.map(|preset| preset.name).join(", ")
        )
    })?;
    let mut shape = preset.shape();
    shape.kv_blocks = args.kv_blocks.unwrap_or(shape.kv_blocks);
    let share = |name: &str, value: f64, most: f64| {
        anyhow::ensure!(value > 0.0 && value <= most, "--{name} must be above 0 and at most {most}");
        Ok(())
    };
    share("kv-demand", args.kv_demand, 100.0)?;
    share("utilisation", args.utilisation, 10.0)?;
    share("length-scale", args.length_scale, 100.0)?;
    share("slo", args.slo, 86_400.0)?;
    anyhow::ensure!((0.0..0.95).contains(&args.warm_up), "--warm-up must be at least 0 and below 0.95");
    anyhow::ensure!(!args.seed.is_empty(), "--seed needs a number");
    let jobs = if args.jobs > 0 { args.jobs } else { std::thread::available_parallelism()?.get() };
    let experiment = Experiment {
        shape,
        pods: args.pods as usize,
        uneven: args.uneven,
        replicas: args.replicas as usize,
        workloads: named(&args.workload, &Workload::ALL, Workload::named, Workload::name)?,
        policies: named(&args.policy, &Policy::ALL, Policy::named, Policy::name)?,
        affinity: args.affinity,
        seeds: args.seed.clone(),
        kv_demand: args.kv_demand,
        utilisation: args.utilisation,
        requests: args.requests as usize,
        warm_up: args.warm_up,
        length_scale: args.length_scale,
        slo: args.slo,
        jobs,
    };
    Ok((experiment, preset))
}

/// Those that were asked for.
fn named<T: Copy>(
    wanted: &[String],
    all: &[T],
    find: impl Fn(&str) -> Option<T>,
    name: impl Fn(T) -> &'static str,
) -> anyhow::Result<Vec<T>> {
    if wanted.iter().any(|word| word == "all") {
        return Ok(all.to_vec());
    }
    let known = || all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
    wanted
        .iter()
        .map(|word| find(word).with_context(|| format!("unknown {word:?}; there are {}", known())))
        .collect()
}

/// The command line, without the folder of the program.
fn command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words.join(" ")
}

fn print(text: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(text.as_bytes())
}

/// A line that the next one overwrites, on a terminal only.
fn progress(args: &SimulateArgs, text: &str) {
    let mut terminal = std::io::stderr();
    if args.format == Format::Table && terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{text}");
        let _ = terminal.flush();
    }
}
