//! `kvasir tokens`: is a tokenizer directory the one that an engine serves, and what ids does it give.

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
