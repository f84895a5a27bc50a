//! The program's own log: levels, format, and where it goes.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Sets up the log on standard error, for the whole process. A second call does nothing.
///
/// `level` is a level (`info`) or a filter in tracing's syntax (`info,kvasir_kvcache=debug`).
///
/// # Errors
/// A sentence about the filter when it cannot be read.
pub fn init(level: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("--log-level {level:?}: {error}"))?;
    // Libraries report every connection that ends; the access log, the index's counters and the controllers already
    // have those.
    let quiet = ["pingora_core=off", "zeromq=warn", "kube_client=off", "kube_runtime=off"]
        .into_iter()
        .filter(|quiet| {
            let (library, _) = quiet.split_once('=').unwrap_or_default();
            !level.contains(library)
        });
    let filter = quiet.filter_map(|directive| directive.parse().ok()).fold(filter, EnvFilter::add_directive);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
    Ok(())
}
