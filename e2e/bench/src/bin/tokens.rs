//! What tokens cost: long chats on one thread beside plain Hugging Face `tokenizers`, and short chats beside long ones.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Parser};
use kvasir_bench::{Mix, lanes, tokens};
use serde_json::{Value, json};

/// What the router uses: much of a chat's cost is memory that is asked for and given back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures each tokenizer and prints one JSON object.
#[derive(Debug, Parser)]
#[command(name = "kvasir-bench-tokens")]
enum Command {
    /// Template, ids and block hashes of a chat of 20,000 tokens, on one thread
    Chats(ChatsArgs),
    /// Short chats at once, with long ones in flight and without
    Lanes(LanesArgs),
}

#[derive(Debug, Args)]
struct Common {
    /// NAME=DIR of a tokenizer; may be repeated
    #[arg(long = "tokenizer", required = true)]
    tokenizers: Vec<String>,
    /// Folder with `known-*.txt` and `unseen-*.txt`
    #[arg(long)]
    texts: PathBuf,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(Debug, Args)]
struct ChatsArgs {
    #[command(flatten)]
    common: Common,
    /// Conversations in a round
    #[arg(long, default_value_t = 12)]
    conversations: usize,
    /// Tokens of a conversation
    #[arg(long, default_value_t = 20_000)]
    tokens: usize,
    /// Bytes that its next turn adds: about 200 tokens
    #[arg(long, default_value_t = 700)]
    turn_bytes: usize,
    /// Bytes of other text that come before
    #[arg(long, default_value_t = 16_000_000)]
    warm_up_bytes: usize,
}

#[derive(Debug, Args)]
struct LanesArgs {
    #[command(flatten)]
    common: Common,
    /// Short chats that come at once
    #[arg(long, default_value_t = 64)]
    short: usize,
    /// Long chats in flight
    #[arg(long, default_value_t = 4)]
    long: usize,
    /// Bytes of a short chat's text
    #[arg(long, default_value_t = 900)]
    short_bytes: usize,
    /// Bytes of a long chat's text
    #[arg(long, default_value_t = 300_000)]
    long_bytes: usize,
    /// Bursts in a round
    #[arg(long, default_value_t = 60)]
    bursts: usize,
}

fn main() -> anyhow::Result<()> {
    let report = match Command::parse() {
        Command::Chats(args) => chats(&args)?,
        Command::Lanes(args) => {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(lanes(&args))?
        }
    };
    let line = format!("{report}\n");
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}

impl Common {
    fn tokenizers(&self) -> impl Iterator<Item = anyhow::Result<(&str, &Path)>> {
        self.tokenizers.iter().map(|entry| {
            let (name, directory) = entry.split_once('=').context("--tokenizer takes NAME=DIR")?;
            Ok((name, Path::new(directory)))
        })
    }
}

fn chats(args: &ChatsArgs) -> anyhow::Result<Value> {
    let amounts = tokens::Amounts {
        tokens: args.tokens,
        turn_bytes: args.turn_bytes,
        conversations: args.conversations,
        rounds: args.common.rounds,
        warm_up_bytes: args.warm_up_bytes,
    };
    let mut known = Mix::open(&args.common.texts, "known")?;
    let mut unseen = Mix::open(&args.common.texts, "unseen")?;
    let mut rows = Vec::new();
    for tokenizer in args.common.tokenizers() {
        let (name, directory) = tokenizer?;
        // Seen by the one before is not seen by this one.
        known.rewind();
        unseen.rewind();
        let mut row = tokens::Contest::load(directory)?.measure(amounts, &mut known, &mut unseen)?;
        row["tokenizer"] = name.into();
        rows.push(row);
    }
    Ok(json!({ "rows": rows }))
}

async fn lanes(args: &LanesArgs) -> anyhow::Result<Value> {
    let amounts = lanes::Amounts {
        short: args.short,
        short_bytes: args.short_bytes,
        long: args.long,
        long_bytes: args.long_bytes,
        bursts: args.bursts,
        rounds: args.common.rounds,
    };
    let mut known = Mix::open(&args.common.texts, "known")?;
    let mut rows = Vec::new();
    for tokenizer in args.common.tokenizers() {
        let (name, directory) = tokenizer?;
        known.rewind();
        let mut row = lanes::Lanes::load(directory, amounts, &mut known).await?.measure().await?;
        row["tokenizer"] = name.into();
        rows.push(row);
    }
    Ok(json!({ "short": args.short, "long": args.long, "rows": rows }))
}
