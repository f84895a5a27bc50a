//! From the router document to the scheduler's settings: what kthena does with each value, or why not.

use indexmap::IndexMap;

use crate::compat;
use crate::defaults;
use crate::plugin_names::{FILTERS, SCORERS};
use crate::problems::{Findings, Located, Place};
use crate::raw::router_document::{Authentication, PluginConfig, RouterDocument};
use crate::resolved::SchedulerSettings;
use crate::suggest;
use crate::yaml::Tree;

mod kvcache_args;
mod plugin_args;
mod scoring_args;

pub(crate) use kvcache_args::token_deadline;

#[cfg(test)]
mod tests;

/// Works out the scheduler's settings from the text of a router document.
pub(crate) fn read(text: &str, file: &str, findings: &mut Findings) -> SchedulerSettings {
    let place = Place::file(file);
    let mut settings = SchedulerSettings { scorers: Vec::new(), ..SchedulerSettings::default() };
    let tree = match Tree::parse(text) {
        Ok(tree) => tree,
        Err(error) => {
            let place = place.at(error.line, error.column);
            findings.error(&place, format!("failed to parse router config: {}", error.message), "");
            return settings;
        }
    };
    let document = compat::read_document(&tree, &place, findings);
    settings.filters = filters(&document, findings);
    settings.scorers = scorers(&document, &place, findings);
    settings.args = plugin_args::read(&last_of_each(&document.plugin_config, findings), findings);
    settings.top_n = defaults::TOP_N;
    warn_of_unused(&document, &settings, findings);
    check_authentication(&document.auth, findings);
    settings
}

/// The names that exist, in the order of the text; a filter listed twice runs twice.
fn filters(document: &RouterDocument<'_>, findings: &mut Findings) -> Vec<String> {
    let known = |name: &&Located<String>| FILTERS.contains(&name.value.as_str());
    let (kept, unknown): (Vec<_>, Vec<_>) = document.filters.enabled.iter().partition(known);
    for name in unknown {
        warn_of_unknown(name, "filter", &FILTERS, findings);
    }
    kept.into_iter().map(|name| name.value.clone()).collect()
}

/// Names with weights; of two entries with one name the last weight wins.
fn scorers(document: &RouterDocument<'_>, place: &Place, findings: &mut Findings) -> Vec<(String, f64)> {
    let mut scorers: IndexMap<&str, (&Located<String>, f64)> = IndexMap::new();
    for entry in &document.scorers.enabled {
        let weight = match &entry.weight {
            None => {
                let message = format!(
                    "the scorer {:?} has no weight, so it counts 0 and does not influence the choice; add weight: 1",
                    entry.name.value
                );
                findings.warn(&entry.place, message);
                0
            }
            Some(weight) if weight.value < 0 => {
                findings.warn(&weight.place, format!("the weight {} is negative; 0 is used", weight.value));
                0
            }
            Some(weight) => weight.value,
        };
        let entry_value = (&entry.name, weight as f64);
        if scorers.insert(&entry.name.value, entry_value).is_some() {
            let message =
                format!("the scorer {:?} is listed twice; the last weight counts", entry.name.value);
            findings.warn(&entry.place, message);
        }
    }
    // kthena counts names before it looks whether they exist: random beside a mistyped name goes as well.
    if scorers.len() > 1
        && let Some((name, _)) = scorers.shift_remove("random")
    {
        findings.warn(&name.place, "random works only as the sole scorer and is dropped beside others");
    }
    scorers.retain(|name, (located, _)| {
        let known = SCORERS.contains(name);
        if !known {
            warn_of_unknown(located, "scorer", &SCORERS, findings);
        }
        known
    });
    if scorers.is_empty() {
        findings.warn(
            place,
            "no scorer is configured: every endpoint that the filters keep is equally good, and chance decides; \
             list scorers under scheduler.plugins.Score.enabled",
        );
    }
    if !scorers.is_empty() && scorers.values().all(|(_, weight)| *weight == 0.0) {
        findings.warn(place, "every scorer has the weight 0: endpoints are equally good, and chance decides");
    }
    scorers.into_iter().map(|(name, (_, weight))| (name.to_owned(), weight)).collect()
}

fn warn_of_unknown(name: &Located<String>, kind: &str, known: &[&str], findings: &mut Findings) {
    let hint = match suggest::closest(&name.value, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => format!("known: {}", known.join(", ")),
    };
    findings.warn(&name.place, format!("there is no {kind} {:?}; it is skipped; {hint}", name.value));
}

/// The arguments of each plugin, by name: the last entry wins.
fn last_of_each<'d, 't>(
    entries: &'d [PluginConfig<'t>],
    findings: &mut Findings,
) -> IndexMap<&'d str, &'d PluginConfig<'t>> {
    let mut by_name = IndexMap::new();
    for entry in entries {
        let name = entry.name.value.as_str();
        if !FILTERS.contains(&name) && !SCORERS.contains(&name) {
            let known: Vec<&str> = SCORERS.iter().chain(&FILTERS).copied().collect();
            let hint = match suggest::closest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("known: {}", known.join(", ")),
            };
            findings
                .warn(&entry.place, format!("there is no plugin {name:?}; its args have no effect; {hint}"));
        }
        if by_name.insert(name, entry).is_some() {
            findings.warn(&entry.place, format!("args for {name:?} are given twice; these, the last, count"));
        }
    }
    by_name
}

/// Says what is listed without an effect, so that nothing is ignored in silence.
fn warn_of_unused(document: &RouterDocument<'_>, settings: &SchedulerSettings, findings: &mut Findings) {
    let message =
        |name: &str| format!("{name:?} is also enabled and stays enabled; a disabled list has no effect");
    for name in &document.filters.disabled {
        if settings.filters.contains(&name.value) {
            findings.warn(&name.place, message(&name.value));
        }
    }
    let scores = |name: &str| settings.scorers.iter().any(|(scorer, _)| scorer == name);
    for entry in &document.scorers.disabled {
        if scores(&entry.name.value) {
            findings.warn(&entry.place, message(&entry.name.value));
        }
    }
    for entry in &document.plugin_config {
        let name = entry.name.value.as_str();
        let exists = FILTERS.contains(&name) || SCORERS.contains(&name);
        if exists && !scores(name) && !settings.filters.iter().any(|filter| filter == name) {
            findings.warn(&entry.place, format!("{name:?} is not enabled, so its args have no effect"));
        }
    }
}

/// A policy that is not enforced must not look as if it were.
fn check_authentication(auth: &Authentication, findings: &mut Findings) {
    match &auth.jwks_uri {
        Some(uri) if !uri.value.is_empty() => findings.error(
            &uri.place,
            "JWT authentication is not available yet, and requests must not pass unchecked where it is asked for",
            "remove auth.jwksUri and authenticate in front of the router",
        ),
        _ => {
            let said = auth.issuer.iter().chain(&auth.audiences).next();
            if let Some(said) = said {
                let message = "authentication is off: without auth.jwksUri the issuer and audiences have no effect";
                findings.warn(&said.place, message);
            }
        }
    }
}
