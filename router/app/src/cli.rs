//! Subcommands, and which one a command line means.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvasir_agent::AgentArgs;
use kvasir_mock_engine::MockEngineArgs;
use kvasir_probe::ProbeArgs;
use kvasir_settings::flags::RouterArgs;
use kvasir_simulator::SimulateArgs;
use kvasir_tokenizer_service::TokenizerArgs;

use crate::demo::DemoArgs;
use crate::explain::ExplainArgs;
use crate::migrate::MigrateArgs;
use crate::tokens::TokensArgs;

/// KV-aware smart inference router.
#[derive(Debug, Parser)]
#[command(name = "kvasir", version, about = "KV-aware smart inference router", max_term_width = 110)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Route inference traffic over engines by live KV cache
    Router(Box<RouterArgs>),
    /// Publish what engines hold in their KV caches, so that all routers share one view through Redis
    Agent(Box<AgentArgs>),
    /// Serve token ids of many models over HTTP, from this process or from `vllm launch render` children
    Tokenizer(Box<TokenizerArgs>),
    /// Show what KV-aware routing does: simulated engines, one workload, three routers, one table
    Demo(DemoArgs),
    /// Compare ways of placing requests on a simulated fleet, driven by the real scheduler
    Simulate(Box<SimulateArgs>),
    /// Check or load an OpenAI-compatible endpoint with prompts that share prefixes
    Probe(Box<ProbeArgs>),
    /// Print why a request went where it went
    Explain(ExplainArgs),
    /// Check a tokenizer directory against an engine, or print the ids it gives
    Tokens(TokensArgs),
    /// Turn the values of kthena's Helm chart into those of ours
    Migrate(MigrateArgs),
    /// Fake vLLM or SGLang engines that keep a KV cache and publish events
    MockEngine(Box<MockEngineArgs>),
}

/// Exit code of a command line or configuration that cannot be used.
const USAGE: u8 = 2;

/// `kvasir` with a leading flag, or called `kthena-router`, is `kvasir router`.
pub fn expand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .and_then(OsStr::to_str)
        .unwrap_or_default();
    let first = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let about = matches!(first, "--help" | "-h" | "--version" | "-V");
    let router = called == "kthena-router" || (first.starts_with('-') && !about);
    if router && !arguments.is_empty() {
        arguments.insert(1, OsString::from("router"));
        // Go takes one dash for long flags.
        arguments = kvasir_settings::go_flags(arguments);
    }
    arguments
}

/// Runs a command line.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(expand(arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let ran = match cli.command {
        Command::Router(args) => crate::router::run(*args),
        Command::Agent(args) => {
            crate::router::on_runtime(0, |stop| kvasir_agent::run(*args, stop)).map(|()| ExitCode::SUCCESS)
        }
        Command::Tokenizer(args) => {
            crate::router::on_runtime(0, |stop| kvasir_tokenizer_service::run(*args, stop))
                .map(|()| ExitCode::SUCCESS)
        }
        Command::Demo(args) => crate::demo::run(args),
        Command::Simulate(args) => kvasir_simulator::run(&args),
        Command::Probe(args) => crate::router::on_runtime(0, |stop| kvasir_probe::run(*args, stop)),
        Command::Explain(args) => crate::router::on_runtime(1, |_| crate::explain::run(args)),
        Command::Tokens(args) => crate::tokens::run(args),
        Command::Migrate(args) => crate::migrate::run(args),
        Command::MockEngine(args) => {
            crate::router::on_runtime(0, |stop| kvasir_mock_engine::run(*args, stop))
                .map(|()| ExitCode::SUCCESS)
        }
    };
    ran.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "kvasir: {error:#}");
        ExitCode::from(USAGE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn expanded(line: &str) -> String {
        let arguments = expand(line.split(' ').map(OsString::from).collect());
        arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_leading_flag_or_kthenas_name_means_router() {
        assert_eq!(expanded("kvasir --model m=http://a"), "kvasir router --model m=http://a");
        assert_eq!(
            expanded("/usr/bin/kthena-router --port 8080"),
            "/usr/bin/kthena-router router --port 8080"
        );
        assert_eq!(expanded("kvasir demo --json"), "kvasir demo --json");
        assert_eq!(expanded("kvasir --help"), "kvasir --help");
        assert_eq!(expanded("kvasir"), "kvasir");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
