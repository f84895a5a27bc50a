//! From what was said to what is meant: flags, files and environment become [`Settings`], or a list of problems.

use std::path::Path;
use std::time::Duration;

use crate::defaults;
use crate::facts::{DiskFiles, Files, SystemFacts};
use crate::flag_values::FlagValues;
use crate::flags::RouterArgs;
use crate::models;
use crate::models_file;
use crate::problems::{Findings, Place, Problems};
use crate::raw::models::Model;
use crate::resolved::{AccessLog, HeaderRules, Limits, Settings};

mod admission;
mod kubernetes;
mod reload;
mod scheduler;
mod sharing;

use scheduler::Chosen;

/// Works the settings out, with the files, memory and environment of this machine.
///
/// # Errors
/// Everything that is wrong, of all files and flags at once.
pub fn resolve(args: RouterArgs) -> Result<Settings, Problems> {
    resolve_from(&args, &DiskFiles, &SystemFacts::read())
}

/// The same from given files and facts.
///
/// # Errors
/// Everything that is wrong, of all files and flags at once.
pub fn resolve_from(args: &RouterArgs, files: &dyn Files, facts: &SystemFacts) -> Result<Settings, Problems> {
    let mut findings = Findings::default();
    args.kthena.check(&mut findings);
    let log_level = log_level(args, &mut findings);
    let admission = admission::resolve(&args.admission, &facts.environment.admission, &mut findings);
    let mut values = FlagValues::new(&mut findings);
    let (listen, metrics_listen, admin_listen) = listeners(args, &mut values);
    let limits = limits(args, facts, &mut values);
    let headers = HeaderRules {
        endpoint_header: values.boolean("--endpoint-header", said(&args.endpoint_header), false),
        forward_credentials: values.boolean("--forward-credentials", said(&args.forward_credentials), false),
    };
    let metrics_on_router_port = values.boolean(
        "--expose-metrics-on-router-port",
        said(&args.kthena.expose_metrics_on_router_port),
        false,
    );
    let (scrape_interval, drain_timeout) = kthena_durations(args, facts, &mut values);
    let access_log = access_log(args, facts, &mut values);
    let threads = values.count("--threads", &args.threads, 0..=1024);
    let decision_ring = values.count("--decision-ring", &args.decision_ring, 0..=1_000_000);
    let drain_settle = values.duration("--drain-settle", &args.drain_settle, true);
    let taken =
        [("--listen", listen), ("--metrics-listen", metrics_listen), ("--admin-listen", admin_listen)];
    let kubernetes = kubernetes::resolve(args, taken, files, &facts.environment.kubernetes, &mut findings);
    let Chosen { settings: mut scheduler, document } =
        scheduler::choose(args, kubernetes.as_ref(), files, &mut findings);
    let token_deadline = scheduler::token_deadline(args, &mut findings);
    scheduler::fit(&mut scheduler, limits.max_attempts, token_deadline);
    let place = Place::file(document.as_deref().unwrap_or_default());
    let from_document = document.is_some();
    let sharing = sharing::resolve(args, &scheduler, from_document, &place, files, facts, &mut findings);
    let from_file = models_from_file(args, files, &mut findings);
    let named = models::assemble(&from_file, args, kubernetes.is_some(), files, &mut findings);
    let mut settings = Settings {
        listen,
        metrics_listen,
        admin_listen,
        limits,
        headers,
        admission,
        scheduler,
        models: named.models,
        scrape_interval,
        access_log,
        threads,
        decision_ring,
        drain_timeout,
        drain_settle,
        warnings: Vec::new(),
        log_level,
        from_document,
        redis: sharing.redis,
        coordination: sharing.coordination,
        shared_load: sharing.shared_load,
        mirror_grace: sharing.mirror_grace,
        replica_name: sharing.replica_name,
        kubernetes,
        metrics_on_router_port,
        tokenizers: named.tokenizers,
        token_deadline,
        implied_redis: sharing.implied_redis,
    };
    scheduler::check_tokenization(&settings, &place, files, &mut findings);
    settings.warnings = findings.into_result()?;
    Ok(settings)
}

/// A flag that was given. Manifests set variables that they have no value for to the empty text.
fn said(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.trim().is_empty())
}

/// The flag's level, else what kthena's verbosity asks for.
fn log_level(args: &RouterArgs, findings: &mut Findings) -> String {
    let debug = args.klog.read(findings);
    match said(&args.log_level) {
        Some(level) => level.trim(),
        None if debug => "debug",
        None => defaults::LOG_LEVEL,
    }
    .to_owned()
}

fn listeners(
    args: &RouterArgs,
    values: &mut FlagValues<'_>,
) -> (std::net::SocketAddr, std::net::SocketAddr, std::net::SocketAddr) {
    let kthena = &args.kthena;
    let listen = values.address("--listen", &args.listen, "--port", said(&kthena.port));
    let metrics = values.address(
        "--metrics-listen",
        &args.metrics_listen,
        "--metrics-port",
        said(&kthena.metrics_port),
    );
    let admin =
        values.address("--admin-listen", &args.admin_listen, "--debug-port", said(&kthena.debug_port));
    values.apart(("--listen", listen), ("--metrics-listen", metrics));
    values.apart(("--listen", listen), ("--admin-listen", admin));
    values.apart(("--metrics-listen", metrics), ("--admin-listen", admin));
    (listen, metrics, admin)
}

fn limits(args: &RouterArgs, facts: &SystemFacts, values: &mut FlagValues<'_>) -> Limits {
    let max_body_bytes = values.size("--max-body-bytes", &args.max_body_bytes);
    Limits {
        max_body_bytes,
        max_buffered_bytes: values.buffered(
            said(&args.max_buffered_bytes),
            max_body_bytes,
            facts.memory_limit,
        ),
        connect_timeout: values.duration("--connect-timeout", &args.connect_timeout, false),
        first_byte_timeout: values.duration("--first-byte-timeout", &args.first_byte_timeout, false),
        stream_idle_timeout: values.duration("--stream-idle-timeout", &args.stream_idle_timeout, false),
        header_timeout: values.duration("--header-timeout", &args.header_timeout, false),
        body_timeout: values.duration("--body-timeout", &args.body_timeout, false),
        keepalive_timeout: values.duration("--keepalive-timeout", &args.keepalive_timeout, false),
        max_attempts: values.count("--max-attempts", &args.max_attempts, 1..=100),
        retry_budget: values.share("--retry-budget", &args.retry_budget),
        pool_size: values.count("--pool-size", &args.pool_size, 0..=65_536),
        pd_fallback: values.pd_fallback("--pd-fallback", &args.pd_fallback),
    }
}

/// The scrape interval and the drain time-out: the flag, else kthena's variable, else the default.
fn kthena_durations(
    args: &RouterArgs,
    facts: &SystemFacts,
    values: &mut FlagValues<'_>,
) -> (Duration, Duration) {
    let environment = &facts.environment;
    let known = Settings::default();
    let scrape_interval = match said(&args.scrape_interval) {
        Some(text) => values.duration("--scrape-interval", text, false),
        None => values.kthena_duration(
            "METRICS_SCRAPE_INTERVAL",
            environment.metrics_scrape_interval.as_deref(),
            known.scrape_interval,
        ),
    };
    let drain_timeout = match said(&args.drain_timeout) {
        Some(text) => values.duration("--drain-timeout", text, true),
        None => {
            values.kthena_duration("DRAIN_TIMEOUT", environment.drain_timeout.as_deref(), known.drain_timeout)
        }
    };
    (scrape_interval, drain_timeout)
}

fn access_log(args: &RouterArgs, facts: &SystemFacts, values: &mut FlagValues<'_>) -> AccessLog {
    let known = AccessLog::default();
    let environment = &facts.environment;
    let enabled = match said(&args.access_log) {
        Some(text) => values.boolean("--access-log", Some(text), known.enabled),
        None => values.kthena_boolean(
            "ACCESS_LOG_ENABLED",
            environment.access_log_enabled.as_deref(),
            known.enabled,
        ),
    };
    let json = match said(&args.access_log_format) {
        Some(text) => values.log_format("--access-log-format", text),
        None => values.kthena_log_format("ACCESS_LOG_FORMAT", environment.access_log_format.as_deref()),
    };
    let output = said(&args.access_log_output).or(environment.access_log_output.as_deref());
    AccessLog { enabled, json, output: output.map_or(known.output, str::to_owned) }
}

fn models_from_file(args: &RouterArgs, files: &dyn Files, findings: &mut Findings) -> Vec<Model> {
    let Some(path) = said(&args.models) else { return Vec::new() };
    match files.read(Path::new(path)) {
        Ok(text) => models_file::read(&text, path, findings).models,
        Err(error) => {
            findings.error(&Place::flag("--models"), format!("cannot read {path:?}: {error}"), "");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests;
