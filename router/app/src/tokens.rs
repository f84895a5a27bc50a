//! `kvasir tokens`: is a tokenizer directory the one that an engine serves, and what ids does it give.

mod check;
mod encode;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use kvasir_core::RequestKind;
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};

/// Compare a tokenizer directory with an engine, or print the ids it gives.
#[derive(Debug, Args)]
pub struct TokensArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokensCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Compare a tokenizer directory with what an engine serves, by a few requests that generate nothing
    Check(CheckArgs),
    /// Print the ids of requests, one JSON object a line
    Encode(EncodeArgs),
}

/// A model's directory.
#[derive(Debug, Args)]
pub struct DirectoryArgs {
    /// Directory with tokenizer.json, tokenizer_config.json and the chat template
    #[arg(long = "tokenizer", value_name = "DIR")]
    pub directory: PathBuf,
    /// A chat template that overrides the directory's
    #[arg(long, value_name = "FILE")]
    pub chat_template: Option<PathBuf>,
}

/// Compare a tokenizer directory with what an engine serves.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 all ids are equal, 1 some differ or nothing could be compared, 2 the directory or the engine \
                        cannot be used."
)]
pub struct CheckArgs {
    /// The tokenizer.
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// Base URL of the engine
    #[arg(long, value_name = "URL")]
    pub engine: String,
    /// Name the engine serves the model under; by default the first one it lists
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Which engine it is: vllm or sglang
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Engine::Vllm)]
    pub kind: Engine,
    /// Print the outcomes as JSON
    #[arg(long)]
    pub json: bool,
}

/// Which engine is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Engine {
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
}

/// Print the ids of requests, one JSON object a line.
#[derive(Debug, Args)]
pub struct EncodeArgs {
    /// The tokenizer.
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// File with a JSON object a line: `path` (`/v1/chat/completions`, ...) and `body`; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub requests: String,
    /// Which encoder
    #[arg(long, value_enum, default_value_t = Encoders::Fast)]
    pub encoder: Encoders,
}

/// Which encoders are asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Encoders {
    /// The fast one where it agrees with the reference, as the router does
    Fast,
    /// Hugging Face `tokenizers`
    Reference,
    /// Both
    Both,
}

/// The subcommand.
///
/// # Errors
/// A directory that does not load, files that cannot be read, an engine that does not answer.
pub fn run(args: TokensArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TokensCommand::Check(args) => crate::router::on_runtime(1, |_| check::run(args)),
        TokensCommand::Encode(args) => encode::run(&args),
    }
}

fn load(directory: &DirectoryArgs, encoder: EncoderChoice) -> anyhow::Result<LocalTokenizer> {
    let options = LoadOptions { encoder, ..LoadOptions::default() };
    Ok(LocalTokenizer::load_with(&directory.directory, directory.chat_template.as_deref(), options)?)
}

/// The API that a path names.
fn kind_of(path: &str) -> Option<RequestKind> {
    [RequestKind::Chat, RequestKind::Completions, RequestKind::Responses, RequestKind::Messages]
        .into_iter()
        .find(|kind| kind.path_label() == path)
}
