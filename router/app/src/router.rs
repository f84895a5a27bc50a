//! `kvasir router`: read settings, open the doors, learn, serve, drain.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kvasir_gateway::Doors;
use kvasir_gateway::listener::{Grace, Served};
use kvasir_settings::Settings;
use kvasir_settings::flags::RouterArgs;
use tokio_util::sync::CancellationToken;

use crate::house::{self, Furniture};
use crate::knowledge;
use crate::sharing::Sharing;
use crate::signals::Signals;

/// Runs work on a runtime of `threads` threads (0: one for each core), stopped by the first signal.
///
/// # Errors
/// What the work returns, or that no runtime could be made.
pub fn on_runtime<T, F>(threads: usize, work: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let runtime = runtime(threads)?;
    runtime.block_on(async {
        let signals = Signals::watch()?;
        work(signals.stop).await
    })
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(threads);
    }
    builder.enable_all().thread_name("kvasir").build().context("no runtime")
}

/// The subcommand.
///
/// # Errors
/// Configuration that cannot be used, or an address that cannot be bound.
pub fn run(args: RouterArgs) -> anyhow::Result<ExitCode> {
    let settings = match kvasir_settings::resolve(args) {
        Ok(settings) => settings,
        Err(problems) => anyhow::bail!("the configuration cannot be used:\n{problems}"),
    };
    kvasir_telemetry::logging::init(&settings.log_level, false).map_err(anyhow::Error::msg)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = runtime(settings.threads)?;
    let served = runtime.block_on(async {
        let signals = Signals::watch()?;
        serve(settings, signals, Furniture::default(), |_| {}).await
    });
    // Streams that outlived the grace period are cut here, without a clean end.
    runtime.shutdown_background();
    match served? {
        Served::Drained => Ok(ExitCode::SUCCESS),
        Served::Cut(inside) => {
            tracing::warn!(inside, "stopped with requests inside");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Where a running router listens.
#[derive(Clone, Debug)]
pub struct Running {
    /// Inference, metrics, admin.
    pub addresses: [std::net::SocketAddr; 3],
    /// The door.
    pub gateway: Arc<kvasir_gateway::Gateway>,
}

/// Opens the doors and serves until the signals say stop. `opened` is told as soon as the router is ready.
///
/// # Errors
/// An address that cannot be bound, or a house that cannot be built.
pub async fn serve(
    settings: Settings,
    signals: Signals,
    furniture: Furniture,
    opened: impl FnOnce(Running),
) -> anyhow::Result<Served> {
    let doors = Doors::bind(settings.listen, settings.metrics_listen, settings.admin_listen)
        .map_err(anyhow::Error::msg)?;
    let addresses = doors.addresses()?;
    let house = house::build(&settings, furniture)?;
    let learning_stop = CancellationToken::new();
    let sharing = Sharing::start(&house, &settings, &learning_stop);
    let learning = knowledge::start(&house, &settings, &sharing, &learning_stop);
    let gateway = Arc::clone(&house.gateway);
    let grace = Grace { settle: settings.drain_settle, drain: settings.drain_timeout };
    let serving =
        tokio::spawn(doors.serve(Arc::clone(&gateway), signals.stop.clone(), signals.hurry.clone(), grace));
    let [inference, metrics, admin] = addresses;
    tracing::info!(%inference, %metrics, %admin, models = settings.models.len(), "listening");
    tokio::select! {
        () = learning.first_knowledge() => gateway.readiness.set_ready(),
        () = signals.stop.cancelled() => {}
    }
    opened(Running { addresses, gateway });
    let served = serving.await.context("the listeners failed")?;
    learning_stop.cancel();
    sharing.finished().await;
    if let Some(log) = &house.gateway.access_log {
        log.flush();
    }
    Ok(served)
}
