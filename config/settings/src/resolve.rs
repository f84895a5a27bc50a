//! From what was said to what is meant: flags, files and environment become [`Settings`], or a list of problems.

use std::path::Path;
use std::time::Duration;

use kvasir_core::TokenSource;

use crate::defaults;
use crate::document;
use crate::facts::{DiskFiles, Files, SystemFacts};
use crate::flag_values::FlagValues;
use crate::flags::RouterArgs;
use crate::models;
use crate::models_file;
use crate::plugin_names;
use crate::problems::{Findings, Place, Problems};
use crate::raw::models::Model;
use crate::resolved::{AccessLog, HeaderRules, Limits, SchedulerSettings, Settings};
use crate::suggest;

mod sharing;

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
    check_environment(facts, &mut findings);
    let mut values = FlagValues::new(&mut findings);
    let (listen, metrics_listen, admin_listen) = listeners(args, &mut values);
    let limits = limits(args, facts, &mut values);
    let headers = HeaderRules {
        endpoint_header: values.boolean("--endpoint-header", said(&args.endpoint_header), false),
        forward_credentials: values.boolean("--forward-credentials", said(&args.forward_credentials), false),
    };
    let (scrape_interval, drain_timeout) = kthena_durations(args, facts, &mut values);
    let access_log = access_log(args, facts, &mut values);
    let threads = values.count("--threads", &args.threads, 0..=1024);
    let decision_ring = values.count("--decision-ring", &args.decision_ring, 0..=1_000_000);
    let drain_settle = values.duration("--drain-settle", &args.drain_settle, true);
    let (mut scheduler, from_document) = scheduler(args, files, &mut findings);
    scheduler.top_n = scheduler.top_n.max(limits.max_attempts);
    token_deadline(args, &mut scheduler, &mut findings);
    // What gathering has beyond the tokens' deadline is enough for the usual budget.
    let budget = scheduler.args.kvcache_aware.query_budget;
    scheduler.gather_deadline += budget.saturating_sub(defaults::GATHER_AFTER_TOKENS);
    let sharing = sharing::resolve(args, &scheduler, from_document, files, facts, &mut findings);
    let from_file = models_from_file(args, files, &mut findings);
    let models = models::assemble(&from_file, args, files, &mut findings);
    let mut settings = Settings {
        listen,
        metrics_listen,
        admin_listen,
        limits,
        headers,
        scheduler,
        models,
        scrape_interval,
        access_log,
        threads,
        decision_ring,
        drain_timeout,
        drain_settle,
        warnings: Vec::new(),
        log_level: log_level(args),
        from_document,
        redis: sharing.redis,
        coordination: sharing.coordination,
        shared_load: sharing.shared_load,
        mirror_grace: sharing.mirror_grace,
        replica_name: sharing.replica_name,
    };
    check_tokenization(&settings, args, files, &mut findings);
    settings.warnings = findings.into_result()?;
    settings.warnings.extend(
        facts
            .environment
            .without_effect
            .iter()
            .map(|(name, why)| format!("{name} is set and has no effect: {why}")),
    );
    Ok(settings)
}

/// A flag that was given. Manifests set variables that they have no value for to the empty text.
fn said(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.trim().is_empty())
}

fn log_level(args: &RouterArgs) -> String {
    let level = args.log_level.trim();
    if level.is_empty() { defaults::LOG_LEVEL } else { level }.to_owned()
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

/// Policies of kthena that are switched on by variables and not enforced yet.
fn check_environment(facts: &SystemFacts, findings: &mut Findings) {
    let environment = &facts.environment;
    for (name, value, what) in [
        ("ENABLE_FAIRNESS_SCHEDULING", &environment.enable_fairness_scheduling, "the fairness queue"),
        ("ENABLE_SESSION_BOOST", &environment.enable_session_boost, "the session-boost queue"),
    ] {
        if value.as_deref().and_then(crate::compat::parse_bool) == Some(true) {
            let message = format!("{what} is not available yet, and must not look as if it were on");
            findings.error(&Place::flag(name), message, "unset the variable, or set it to false");
        }
    }
}

/// The scheduler's part, and whether it came from a document.
fn scheduler(args: &RouterArgs, files: &dyn Files, findings: &mut Findings) -> (SchedulerSettings, bool) {
    let Some(path) = said(&args.config) else {
        return (profile(said(&args.routing), findings), false);
    };
    if said(&args.routing).is_some() {
        let message = "cannot be combined with --config, whose plugins decide how endpoints are chosen";
        findings.error(&Place::flag("--routing"), message, "remove one of the two");
    }
    let settings = match files.read(Path::new(path)) {
        Ok(text) => document::read(&text, path, findings),
        Err(error) => {
            findings.error(&Place::flag("--config"), format!("cannot read {path:?}: {error}"), "");
            SchedulerSettings::default()
        }
    };
    (settings, true)
}

/// The names that `--routing` takes, each with its scorer.
pub(crate) const PROFILES: [(&str, &str); 3] =
    [("kv-aware", plugin_names::PREFILL_COST), ("random", "random"), ("least-request", "least-request")];

fn profile(name: Option<&str>, findings: &mut Findings) -> SchedulerSettings {
    let mut settings = SchedulerSettings::default();
    let Some(name) = name else { return settings };
    match PROFILES.iter().find(|(known, _)| *known == name) {
        Some((_, scorer)) => settings.scorers = vec![((*scorer).to_owned(), 1.0)],
        None => {
            let fix = match suggest::closest(name, PROFILES.map(|(known, _)| known)) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("known: {}", PROFILES.map(|(known, _)| known).join(", ")),
            };
            findings.error(&Place::flag("--routing"), format!("there is no profile {name:?}"), fix);
        }
    }
    settings
}

/// The flag's deadline of the remote token sources, else the document's. Gathering ends no earlier than they do.
fn token_deadline(args: &RouterArgs, scheduler: &mut SchedulerSettings, findings: &mut Findings) {
    let deadline = &mut scheduler.args.kvcache_aware.deadline;
    if let Some(text) = said(&args.tokenize_deadline) {
        match document::token_deadline(text.trim()) {
            Ok(said) => *deadline = Some(said),
            Err((message, fix)) => findings.error(&Place::flag("--tokenize-deadline"), message, fix),
        }
    }
    if let Some(deadline) = *deadline {
        let needed = deadline + defaults::GATHER_AFTER_TOKENS;
        scheduler.gather_deadline = scheduler.gather_deadline.max(needed);
    }
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

/// Checks what the document says about tokens against the models there are.
fn check_tokenization(settings: &Settings, args: &RouterArgs, files: &dyn Files, findings: &mut Findings) {
    let kvcache = &settings.scheduler.args.kvcache_aware;
    let place = Place::file(said(&args.config).unwrap_or_default()).key("kvcache-aware.tokenization");
    let named = kvcache.local.iter();
    models::check_named_directories(named, &place.key("local"), &settings.models, files, findings);
    for source in &kvcache.order {
        let is_of_use = match source {
            TokenSource::Local => {
                settings.models.iter().any(|model| settings.tokenizer_directory(model).is_some())
            }
            TokenSource::Service => kvcache.tokenizer_service.enabled,
            TokenSource::Engine | TokenSource::Given => true,
        };
        if !is_of_use {
            let source = source.as_str();
            let message =
                format!("names {source:?}, but no {source} tokenizer is configured; it is left out");
            findings.warn(&place.key("order"), message);
        }
    }
}

#[cfg(test)]
mod tests;
