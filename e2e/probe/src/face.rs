//! `kvasir probe`: flags in, a table or JSON out, an exit code.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::args::{Exit, LoadArgs, ModeArgs, ProbeArgs, TargetArgs, TextArgs, WorkloadKind};
use crate::check::run_probe_watched;
use crate::config::{Amount, LoadConfig, LoadMode, ProbeConfig, Target};
use crate::discovery::first_model;
use crate::error::ProbeError;
use crate::load::run_load_watched;
use crate::progress::Progress;
use crate::report::LoadReport;
use crate::workload::Workload;

/// How often the progress line is rewritten.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Largest prompt file, bytes.
const MAX_PROMPT_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Where the face writes.
struct Screen<'w> {
    out: &'w mut (dyn Write + Send),
    err: &'w mut (dyn Write + Send),
    /// `err` is a terminal, so progress can be shown there.
    show_progress: bool,
}

/// Does what the flags say and returns the exit code: 0, 1 or 2, as `--help` tells. `Err` only when the result
/// cannot be written; everything else that goes wrong is written to standard error and is exit code 2.
pub async fn run(args: ProbeArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let show_progress = err.is_terminal();
    let screen = Screen { out: &mut out, err: &mut err, show_progress };
    Ok(present(args, stop, screen).await?.into())
}

async fn present(args: ProbeArgs, stop: CancellationToken, mut screen: Screen<'_>) -> anyhow::Result<Exit> {
    let outcome = match args.mode.clone() {
        Some(ModeArgs::Load(load)) => load_face(*load, stop, &mut screen).await,
        None => probe_face(args, stop, &mut screen).await,
    };
    // What is no ProbeError is a screen that cannot be written to.
    let error = match outcome {
        Ok(exit) => return Ok(exit),
        Err(error) => error.downcast::<ProbeError>()?,
    };
    writeln!(screen.err, "error: {error}")?;
    Ok(Exit::Failed)
}

async fn probe_face(
    args: ProbeArgs,
    stop: CancellationToken,
    screen: &mut Screen<'_>,
) -> anyhow::Result<Exit> {
    let (json, expect) = (args.target.json, args.expect);
    let config = probe_config(args).await?;
    let progress = Arc::new(Progress::default());
    let work = run_probe_watched(config, stop, Arc::clone(&progress));
    let report = screen.watch(work, &progress).await??;
    screen.show(&report, json)?;
    Ok(expect.exit(report.verdict, report.failed > 0))
}

async fn load_face(args: LoadArgs, stop: CancellationToken, screen: &mut Screen<'_>) -> anyhow::Result<Exit> {
    let json = args.target.json;
    let config = load_config(args).await?;
    let progress = Arc::new(Progress::default());
    let work = run_load_watched(config, stop, Arc::clone(&progress));
    let report = screen.watch(work, &progress).await??;
    screen.show(&report, json)?;
    Ok(load_exit(&report))
}

impl Screen<'_> {
    /// Waits for the work, and shows how far it is.
    async fn watch<T>(&mut self, work: impl Future<Output = T>, progress: &Progress) -> std::io::Result<T> {
        let mut work = pin!(work);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    if self.show_progress {
                        // Back to the start of the line, and clear it.
                        write!(self.err, "\r\x1b[K")?;
                        self.err.flush()?;
                    }
                    return Ok(done);
                }
                _ = ticks.tick(), if self.show_progress => {
                    write!(self.err, "\r{progress}\x1b[K")?;
                    self.err.flush()?;
                }
            }
        }
    }

    fn show(&mut self, report: &(impl Serialize + Display), json: bool) -> std::io::Result<()> {
        if json {
            serde_json::to_writer(&mut *self.out, report)?;
            writeln!(self.out)?;
        } else {
            write!(self.out, "{report}")?;
        }
        self.out.flush()
    }
}

fn load_exit(report: &LoadReport) -> Exit {
    match (report.succeeded, report.failed) {
        (0, _) => Exit::Failed,
        (_, 0) => Exit::Good,
        _ => Exit::Bad,
    }
}

async fn probe_config(args: ProbeArgs) -> Result<ProbeConfig, ProbeError> {
    let mut config = ProbeConfig::new("", "", salt(&args.text));
    config.target = target(args.target, config.target.max_tokens).await?;
    config.requests = args.requests;
    config.concurrent = args.concurrent;
    config.prefix_tokens = args.prefix_tokens;
    config.tail_tokens = args.tail_tokens;
    config.seed = args.text.seed;
    config.tokens_per_word = args.text.tokens_per_word;
    config.prompt_text = prompt_text(args.text.prompt_file.as_deref()).await?;
    Ok(config)
}

async fn load_config(args: LoadArgs) -> Result<LoadConfig, ProbeError> {
    let workload = workload(&args);
    let users_at_once =
        if args.workload == WorkloadKind::MultiTurn { Some(args.users as usize) } else { None };
    let mut config = LoadConfig::new("", "", workload);
    config.target = target(args.target, config.target.max_tokens).await?;
    config.mode = match args.rate {
        Some(rate_per_s) => LoadMode::Open { rate_per_s, seed: args.text.seed },
        None => LoadMode::Closed { concurrency: args.concurrency.or(users_at_once).unwrap_or(8) },
    };
    config.amount = match (args.duration, args.requests, users_at_once) {
        (Some(duration), _, _) => Amount::Duration(duration),
        (None, Some(requests), _) => Amount::Requests(requests),
        (None, None, Some(_)) => Amount::Requests(u64::from(args.users) * u64::from(args.turns)),
        (None, None, None) => config.amount,
    };
    config.max_in_flight = args.max_in_flight;
    config.seed = args.text.seed;
    config.salt = salt(&args.text);
    config.tokens_per_word = args.text.tokens_per_word;
    config.prompt_text = prompt_text(args.text.prompt_file.as_deref()).await?;
    Ok(config)
}

fn workload(args: &LoadArgs) -> Workload {
    match args.workload {
        WorkloadKind::SharedPrefix => Workload::SharedPrefix {
            groups: args.groups,
            prefix_tokens: args.prefix_tokens,
            tail_tokens: args.tail_tokens,
        },
        WorkloadKind::MultiTurn => Workload::MultiTurn {
            users: args.users,
            turns: args.turns,
            system_prompts: args.system_prompts,
            system_tokens: args.system_tokens,
            turn_tokens: args.turn_tokens,
            think_time: args.think_time,
        },
        WorkloadKind::Unique => Workload::Unique { prompt_tokens: args.prompt_tokens },
        WorkloadKind::Short => Workload::Short,
    }
}

async fn target(args: TargetArgs, default_max_tokens: u32) -> Result<Target, ProbeError> {
    let mut target = Target {
        base_url: args.url,
        model: String::new(),
        api: args.api,
        stream: !args.no_stream,
        max_tokens: args.max_tokens.unwrap_or(default_max_tokens),
        timeout: args.timeout,
        headers: args.headers,
        extra_body: args.extra_body.0,
        engines: args.engines,
    };
    target.model = match args.model {
        Some(model) => model,
        None => first_model(&target).await?,
    };
    Ok(target)
}

fn salt(args: &TextArgs) -> String {
    args.salt.clone().unwrap_or_else(|| format!("{:016x}", rand::rng().next_u64()))
}

async fn prompt_text(path: Option<&Path>) -> Result<Option<String>, ProbeError> {
    let Some(path) = path else { return Ok(None) };
    let bad = |reason: String| ProbeError::BadFile { path: path.display().to_string(), reason };
    let size = tokio::fs::metadata(path).await.map_err(|error| bad(error.to_string()))?.len();
    if size > MAX_PROMPT_FILE_BYTES {
        return Err(bad(format!("it is larger than {MAX_PROMPT_FILE_BYTES} bytes")));
    }
    tokio::fs::read_to_string(path).await.map(Some).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests;
