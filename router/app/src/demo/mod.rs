//! `kvasir demo`: one workload, three routers, one table.

mod engines;
mod oracle;
mod report;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kvasir_core::DataProducer;
use kvasir_mock_engine::Engine;
use kvasir_probe::{Amount, LoadConfig, LoadMode, LoadReport, Workload, run_load};
use kvasir_settings::Settings;
use kvasir_settings::resolved::{AccessLog, EndpointSettings, ModelSettings};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::house::Furniture;
use crate::router::{self, Running};
use crate::signals::Signals;

use engines::MODEL;
use report::Rows;

/// The workload, which the demo prints.
const USERS: u32 = 32;
const TURNS: u32 = 8;
const SYSTEM_PROMPTS: u32 = 4;
const SYSTEM_TOKENS: u32 = 800;
const TURN_TOKENS: u32 = 320;
const ANSWER_TOKENS: u32 = 48;

/// Show what KV-aware routing does: simulated engines, one workload, three routers, one table.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Seed of the workload's texts
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

/// How requests are placed in one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    Random,
    KvAware,
    PerfectKnowledge,
}

impl Policy {
    const ALL: [Self; 3] = [Self::Random, Self::KvAware, Self::PerfectKnowledge];

    fn title(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::KvAware => "KV-aware",
            Self::PerfectKnowledge => "perfect knowledge",
        }
    }
}

/// The subcommand.
///
/// # Errors
/// When engines or routers cannot start.
pub fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    router::on_runtime(0, |stop| async move {
        let done = tokio::select! {
            () = stop.cancelled() => None,
            rows = play(&args) => Some(rows?),
        };
        let Some(rows) = done else { return Ok(ExitCode::from(130)) };
        let text = if args.json { rows.json() } else { rows.table() };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(if rows.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Plays the workload under each policy.
async fn play(args: &DemoArgs) -> anyhow::Result<Rows> {
    kvasir_telemetry::logging::init("warn", false).map_err(anyhow::Error::msg)?;
    let folder = engines::tokenizer_folder()?;
    if !args.json {
        announce()?;
    }
    let engines = engines::start(folder.path()).await?;
    let mut rows = Vec::new();
    for policy in Policy::ALL {
        progress(args, &format!("{} routing ...", policy.title()));
        engines::restart(&engines).await?;
        let report = one_run(args, policy, &engines, folder.path()).await?;
        rows.push((policy, report));
    }
    progress(args, "");
    engines::stop(engines).await;
    Rows::new(rows)
}

fn announce() -> std::io::Result<()> {
    let text = format!(
        "4 simulated engines (4,096 KV blocks of 16 tokens, 20 us per uncached prompt token, one prompt at a time)\n\
         {USERS} users, {TURNS} growing turns each, {SYSTEM_PROMPTS} system prompts of about {SYSTEM_TOKENS} tokens, \
         real tokenizer and chat template\n\
         the same {} requests, three routers:\n\n",
        USERS * TURNS
    );
    std::io::stdout().write_all(text.as_bytes())
}

/// A line that the next one overwrites, on a terminal only.
fn progress(args: &DemoArgs, text: &str) {
    let mut terminal = std::io::stderr();
    if !args.json && terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{text}");
        let _ = terminal.flush();
    }
}

/// One router over the engines, one pass of the workload.
async fn one_run(
    args: &DemoArgs,
    policy: Policy,
    engines: &[Arc<Engine>],
    tokenizer: &std::path::Path,
) -> anyhow::Result<LoadReport> {
    let settings = settings(policy, engines, tokenizer)?;
    let furniture = match policy {
        Policy::PerfectKnowledge => oracle::furniture(engines),
        _ => Furniture { producers: Vec::<Arc<dyn DataProducer>>::new(), scorers: None },
    };
    let signals = Signals { stop: CancellationToken::new(), hurry: CancellationToken::new() };
    let (opened, is_open) = oneshot::channel::<Running>();
    let served = tokio::spawn(router::serve(settings, signals.clone(), furniture, move |running| {
        let _ = opened.send(running);
    }));
    let running = match is_open.await {
        Ok(running) => running,
        Err(_) => {
            return Err(served
                .await
                .context("the router failed")?
                .err()
                .unwrap_or_else(|| anyhow::anyhow!("the router ended")));
        }
    };
    running.gateway.tokens.loaded().await;
    let [inference, ..] = running.addresses;
    let report = run_load(load(args, inference), CancellationToken::new()).await?;
    signals.stop.cancel();
    signals.hurry.cancel();
    served.await.context("the router failed")??;
    Ok(report)
}

fn load(args: &DemoArgs, router: SocketAddr) -> LoadConfig {
    let workload = Workload::MultiTurn {
        users: USERS,
        turns: TURNS,
        system_prompts: SYSTEM_PROMPTS,
        system_tokens: SYSTEM_TOKENS,
        turn_tokens: TURN_TOKENS,
        think_time: Duration::from_millis(100),
    };
    let mut config = LoadConfig::new(format!("http://{router}"), MODEL, workload);
    config.mode = LoadMode::Closed { concurrency: USERS as usize };
    config.amount = Amount::Requests(u64::from(USERS * TURNS));
    config.seed = args.seed;
    config.target.max_tokens = ANSWER_TOKENS;
    config.target.timeout = Duration::from_secs(30);
    config
}

/// The settings that the flags `--model`, `--tokenizer`, `--endpoint-header` and `--routing` would give.
fn settings(
    policy: Policy,
    engines: &[Arc<Engine>],
    tokenizer: &std::path::Path,
) -> anyhow::Result<Settings> {
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let mut settings =
        Settings { listen: any, metrics_listen: any, admin_listen: any, ..Settings::default() };
    settings.headers.endpoint_header = true;
    settings.access_log = AccessLog { enabled: false, ..settings.access_log };
    settings.drain_settle = Duration::ZERO;
    settings.scrape_interval = Duration::from_millis(200);
    if policy == Policy::Random {
        settings.scheduler.scorers = vec![("random".to_owned(), 1.0)];
    }
    let endpoints = engines
        .iter()
        .map(|engine| {
            let address = kvasir_core::Address::parse(&engine.url()).map_err(anyhow::Error::msg)?;
            Ok(EndpointSettings::new(address))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    settings.models = vec![ModelSettings {
        name: MODEL.into(),
        served_name: None,
        aliases: Vec::new(),
        engine: kvasir_core::EngineKind::Vllm,
        tokenizer: Some(tokenizer.to_owned()),
        chat_template: None,
        adapters: Vec::new(),
        connector: None,
        endpoints,
    }];
    Ok(settings)
}
