//! `kvasir router`: read settings, open the doors, learn, serve, drain.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kvasir_gateway::Doors;
use kvasir_gateway::listener::{Grace, Served};
use kvasir_settings::Settings;
use kvasir_settings::flags::RouterArgs;
use kvasir_state::Plan;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::cluster::Access;
use crate::house::{self, Furniture};
use crate::household::Household;
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

/// How long giving back what is held in a cluster may take.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(3);

/// Where a running router listens.
#[derive(Clone, Debug)]
pub struct Running {
    /// Inference, metrics, admin.
    pub addresses: [std::net::SocketAddr; 3],
    /// The door.
    pub gateway: Arc<kvasir_gateway::Gateway>,
    /// Where plans are applied.
    pub household: Arc<Household>,
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
    let access = Access::find(&settings).await?;
    let settings = match &access {
        Some(access) => access.with_document(settings).await,
        None => settings,
    };
    let house = Arc::new(house::build(&settings, furniture)?);
    // As bound: the webhook and the ports of Gateways go beside it, of IPv4 alone where there is no IPv6.
    let settings = Arc::new(Settings { listen: addresses[0], ..settings });
    let learning_stop = CancellationToken::new();
    let sharing = Sharing::start(&house, &settings, &learning_stop);
    let (household, mut learning) = Household::new(&house, &settings, &sharing, &learning_stop);
    let cluster = access.map(|access| {
        house.gateway.readiness.await_routes();
        access.start(&settings, &house, &household, &learning_stop)
    });
    if cluster.is_none() {
        household.apply(Plan::default());
    }
    knowledge::watch_loads(&house, &settings, &sharing, &learning_stop);
    let gateway = Arc::clone(&house.gateway);
    let grace = Grace { settle: settings.drain_settle, drain: settings.drain_timeout };
    let serving =
        tokio::spawn(doors.serve(Arc::clone(&gateway), signals.stop.clone(), signals.hurry.clone(), grace));
    let [inference, metrics, admin] = addresses;
    if let Some(sentence) = admission::sentence(&settings.admission, house.store.is_some()) {
        tracing::info!("{sentence}");
    }
    tracing::info!(%inference, %metrics, %admin, models = settings.models.len(), "listening");
    tokio::select! {
        () = learning.first_knowledge() => gateway.readiness.set_ready(),
        () = signals.stop.cancelled() => {}
    }
    tokio::spawn(learning.keep_telling(learning_stop.clone()));
    opened(Running { addresses, gateway, household });
    let served = serving.await.context("the listeners failed")?;
    learning_stop.cancel();
    sharing.finished().await;
    if let Some(cluster) = cluster {
        let _ = tokio::time::timeout(FAREWELL, cluster.ended()).await;
    }
    if let Some(log) = &house.gateway.access_log {
        log.flush();
    }
    Ok(served)
}
