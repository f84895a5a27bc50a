//! The load generator of `make bench`: a closed loop of chat requests, its figures as one JSON object.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use kvasir_bench::exchange::Site;
use kvasir_bench::{Connections, Conversations, Corpus, Plan, Sizes, Work, play};

/// Sends chat requests in a closed loop and prints what it saw.
#[derive(Debug, Parser)]
#[command(name = "kvasir-bench-load")]
struct Args {
    /// Where to
    #[arg(long)]
    to: SocketAddr,
    /// Model name in the bodies
    #[arg(long)]
    model: String,
    /// File that prompts are cut from
    #[arg(long)]
    text: PathBuf,
    /// Clients
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Seconds after which nothing new is sent
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Conversations at most (with --shared: requests)
    #[arg(long, default_value_t = u64::MAX)]
    most: u64,
    /// Bytes of text up to the first turn
    #[arg(long, default_value_t = 700)]
    bytes: usize,
    /// Bytes of one message of it
    #[arg(long, default_value_t = 4000)]
    message_bytes: usize,
    /// Bytes that each later turn adds
    #[arg(long, default_value_t = 1000)]
    turn_bytes: usize,
    /// First turn that is sent
    #[arg(long, default_value_t = 0)]
    from_turn: u32,
    /// Turns that are sent of each conversation
    #[arg(long, default_value_t = 1)]
    turns: u32,
    /// Instead of turns: requests that share the first part of so many conversations
    #[arg(long)]
    shared: Option<u64>,
    /// Ask for streams
    #[arg(long)]
    stream: bool,
    /// `max_tokens` of each request
    #[arg(long, default_value_t = 4)]
    max_tokens: u32,
    /// A connection for each request
    #[arg(long)]
    new_connections: bool,
    /// Bodies of two seeds share no message
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads of the generator
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads.max(1))
        .enable_all()
        .build()?;
    let text = std::fs::read_to_string(&args.text).with_context(|| args.text.display().to_string())?;
    // Lives as long as the process: the clients' tasks need it to.
    let corpus: &'static Corpus = Box::leak(Box::new(Corpus::new(&text)?));
    let conversations = Arc::new(Conversations {
        corpus,
        model: args.model.clone(),
        stream: args.stream,
        max_tokens: args.max_tokens,
        seed: args.seed,
        sizes: Sizes { first: args.bytes, message: args.message_bytes, turn: args.turn_bytes },
    });
    let work = Work {
        site: Site { address: args.to, path: "/v1/chat/completions".to_owned() },
        clients: args.clients,
        connections: if args.new_connections { Connections::New } else { Connections::Kept },
        plan: match args.shared {
            Some(groups) => Plan::Shared { groups },
            None => Plan::Turns { from: args.from_turn, turns: args.turns },
        },
        most: args.most,
        time: Duration::from_secs_f64(args.seconds),
    };
    let (figures, took) = runtime.block_on(play(work, conversations))?;
    let line = format!("{}\n", figures.json(took));
    std::io::stdout().write_all(line.as_bytes())?;
    Ok(())
}
