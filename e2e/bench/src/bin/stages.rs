//! What happens inside a router, without a network: the stages of one decision, and operations of the index.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Parser};
use kvasir_bench::decision::{Case, Decider};
use kvasir_bench::fleet;
use kvasir_bench::resident::{Feeder, PROMPT_BLOCKS};
use kvasir_bench::{Conversations, Corpus, Sizes};
use kvasir_core::{BlockIndex as _, ModelName, OwnerSlot, PrefixHit};
use kvasir_kvcache::Index;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

/// Times parts of the router and prints one JSON object.
#[derive(Debug, Parser)]
#[command(name = "kvasir-bench-stages")]
enum Command {
    /// Scan, template, tokens, hashes, index walk, scores of a long chat
    Decision(DecisionArgs),
    /// A decision by the number of pods, for whole requests and for pairs of prefill and decode pods
    Fleet(FleetArgs),
    /// Block events applied and block lookups, with many resident blocks
    Index(IndexArgs),
}

#[derive(Debug, Args)]
struct DecisionArgs {
    /// NAME=DIR of a tokenizer; may be repeated
    #[arg(long = "tokenizer", required = true)]
    tokenizers: Vec<String>,
    /// File that prompts are cut from
    #[arg(long)]
    text: PathBuf,
    /// Conversations timed for each tokenizer
    #[arg(long, default_value_t = 100)]
    conversations: u64,
    /// Bytes of a conversation's text
    #[arg(long, default_value_t = 80_000)]
    bytes: usize,
    /// Bytes that its next turn adds
    #[arg(long, default_value_t = 1000)]
    turn_bytes: usize,
    /// Owners to choose from
    #[arg(long, default_value_t = 4)]
    owners: u32,
}

#[derive(Debug, Args)]
struct FleetArgs {
    /// Pods to choose from; may be repeated
    #[arg(long = "pods", default_values_t = [8, 100, 1000])]
    pods: Vec<u32>,
    /// Decisions timed for each
    #[arg(long, default_value_t = 2000)]
    rounds: usize,
}

#[derive(Debug, Args)]
struct IndexArgs {
    /// Resident blocks, each counted for each of its owners
    #[arg(long, default_value_t = 4_000_000)]
    blocks: usize,
    /// Owners
    #[arg(long, default_value_t = 64)]
    owners: u32,
    /// Seconds for each figure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

fn main() -> anyhow::Result<()> {
    let report = match Command::parse() {
        Command::Decision(args) => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(decision(&args))?
        }
        Command::Fleet(args) => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(fleets(&args))?
        }
        Command::Index(args) => index(&args)?,
    };
    let line = format!("{report}\n");
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

async fn decision(args: &DecisionArgs) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(&args.text).with_context(|| args.text.display().to_string())?;
    let corpus = Corpus::new(&text)?;
    let conversations = Conversations {
        corpus: &corpus,
        model: "bench".to_owned(),
        stream: true,
        max_tokens: 16,
        seed: 11,
        sizes: Sizes { first: args.bytes, message: 4000, turn: args.turn_bytes },
    };
    let mut rows = Vec::new();
    for entry in &args.tokenizers {
        let (name, directory) = entry.split_once('=').context("--tokenizer takes NAME=DIR")?;
        rows.push(one_tokenizer(name, Path::new(directory), args, &conversations).await?);
    }
    Ok(json!({ "owners": args.owners, "rows": rows }))
}

async fn one_tokenizer(
    name: &str,
    directory: &Path,
    args: &DecisionArgs,
    conversations: &Conversations<'_>,
) -> anyhow::Result<Value> {
    /// Conversations that warm the encoder's caches of words, as an hour of service would.
    const WARM_UP: u64 = 10;
    let mut decider = Decider::new(directory, args.owners)?;
    let names = ["first sight", "next turn", "same again"];
    let mut cases = names.iter().map(|name| Case::new(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut discarded = names.iter().map(|name| Case::new(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut tokens, mut bytes) = (0, 0);
    for number in 0..args.conversations + WARM_UP {
        let cases = if number < WARM_UP { &mut discarded } else { &mut cases };
        // The stages of one conversation and the whole of another, so that neither finds the other's memory.
        let (apart, whole) = (2 * number, 2 * number + 1);
        for (case, turn) in cases.iter_mut().zip([0, 1, 1]) {
            let body = conversations.body(apart, turn);
            let ids = case.stages(&mut decider, &body)?;
            decider.computed(apart, &ids);
            if turn == 0 {
                (tokens, bytes) = (ids.len(), body.len());
            }
            let ids = case.whole(&mut decider, &conversations.body(whole, turn)).await?;
            decider.computed(whole, &ids);
        }
    }
    let cases: Vec<Value> = cases.iter().map(Case::json).collect();
    Ok(json!({
        "tokenizer": name, "encoder": decider.encoder(), "tokens": tokens, "bytes": bytes,
        "conversations": args.conversations, "cases": cases,
    }))
}

async fn fleets(args: &FleetArgs) -> anyhow::Result<Value> {
    let mut rows = Vec::new();
    for pods in &args.pods {
        rows.extend(fleet::measure(*pods, args.rounds).await?);
    }
    Ok(json!({ "rows": rows }))
}

fn index(args: &IndexArgs) -> anyhow::Result<Value> {
    let prompts = args.blocks / PROMPT_BLOCKS / args.owners.max(1) as usize;
    let before = resident_bytes()?;
    let (index, model) = (Index::default(), ModelName::from("bench"));
    let mut feeders = Vec::new();
    let mut filling = Duration::ZERO;
    for slot in 0..args.owners {
        feeders.push(Feeder::register(&index, slot, &model, prompts)?);
    }
    for _ in 0..prompts {
        for feeder in &mut feeders {
            filling += feeder.store(&index);
        }
    }
    let held: usize = index.stats().iter().map(|owner| owner.blocks).sum();
    let size = index.size();
    let resident = resident_bytes()?.saturating_sub(before);
    let budget = Duration::from_secs_f64(args.seconds);
    let churned = churn(&index, &mut feeders, budget, Feeder::store);
    let decoded = churn(&index, &mut feeders, budget, Feeder::decode);
    let few = lookups(&index, &model, &feeders, 4, budget);
    let all = lookups(&index, &model, &feeders, args.owners, budget);
    let dropped: u64 = index.stats().iter().map(|owner| owner.over_limit).sum();
    anyhow::ensure!(dropped == 0, "{dropped} blocks were dropped at an owner's bound");
    Ok(json!({
        "owners": args.owners,
        "held": held,
        "distinct": size.blocks,
        "bytes_per_held": size.bytes as f64 / held as f64,
        "resident_bytes_per_held": resident as f64 / held as f64,
        "fill_per_second": held as f64 / filling.as_secs_f64(),
        "change_per_second": churned,
        "decode_change_per_second": decoded,
        "lookups_per_second_4_owners": few,
        "lookups_per_second_all_owners": all,
    }))
}

/// Every owner gives a prompt up and computes another, round after round. Block events a second.
fn churn(
    index: &Index,
    feeders: &mut [Feeder],
    budget: Duration,
    add: impl Fn(&mut Feeder, &Index) -> Duration,
) -> f64 {
    let (mut took, mut blocks) = (Duration::ZERO, 0);
    while took < budget {
        for feeder in feeders.iter_mut() {
            took += feeder.evict(index);
            took += add(feeder, index);
            blocks += 2 * PROMPT_BLOCKS;
        }
    }
    blocks as f64 / took.as_secs_f64()
}

/// Walks of whole prompts that are held, in random order. Blocks a second.
fn lookups(index: &Index, model: &ModelName, feeders: &[Feeder], candidates: u32, budget: Duration) -> f64 {
    /// Walks between two looks at the clock.
    const STRIDE: usize = 64;
    /// Owners whose prompts are asked for: 16 of 64 is more than any cache of the processor holds.
    const ASKED: usize = 16;
    let owners: Vec<OwnerSlot> = (0..candidates).map(OwnerSlot).collect();
    let asked = feeders.iter().take(candidates as usize).take(ASKED);
    let chains: Vec<_> = asked.flat_map(Feeder::chains).collect();
    let mut hits = vec![PrefixHit::default(); owners.len()];
    let mut rng = StdRng::seed_from_u64(3);
    let mut walked = 0;
    let started = Instant::now();
    while started.elapsed() < budget {
        for _ in 0..STRIDE {
            if let Some(chain) = chains.get(rng.random_range(0..chains.len().max(1))) {
                index.walk(model, std::slice::from_ref(chain), &owners, &mut hits);
                walked += hits.iter().map(|hit| hit.tokens as usize).max().unwrap_or_default() / 16;
            }
        }
    }
    walked as f64 / started.elapsed().as_secs_f64()
}

/// Resident memory of this process.
fn resident_bytes() -> anyhow::Result<usize> {
    let page = std::fs::read_to_string("/proc/self/status")?;
    let line = page.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
