//! The program's own log: levels, format, and where it goes.

use tracing_subscriber::EnvFilter;

/// Sets up the log on standard error, for the whole process. A second call does nothing.
///
/// `level` is a level (`info`) or a filter in tracing's syntax (`info,kvasir_kvcache=debug`).
///
/// # Errors
/// A sentence about the filter when it cannot be read.
pub fn init(level: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("--log-level {level:?}: {error}"))?;
    // Pingora reports every downstream disconnect at error level; the access log already has those.
    let filter = match "pingora_core=off".parse() {
        Ok(directive) if !level.contains("pingora") => filter.add_directive(directive),
        _ => filter,
    };
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
    Ok(())
}
