//! How endpoints are chosen: by a router document or by a profile.

use std::path::Path;
use std::time::Duration;

use kvasir_core::TokenSource;

use super::said;
use crate::defaults;
use crate::document;
use crate::facts::Files;
use crate::flags::RouterArgs;
use crate::kubernetes::KubernetesSettings;
use crate::models;
use crate::plugin_names;
use crate::problems::{Findings, Place};
use crate::resolved::{SchedulerSettings, Settings};
use crate::suggest;

/// The scheduler's part, and the document that it came from.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) settings: SchedulerSettings,
    pub(super) document: Option<String>,
}

/// Reads the document, or takes the profile.
pub(super) fn choose(
    args: &RouterArgs,
    kubernetes: Option<&KubernetesSettings>,
    files: &dyn Files,
    findings: &mut Findings,
) -> Chosen {
    let routing = said(&args.routing);
    let Some(path) = document_path(args, kubernetes, files, findings) else {
        return Chosen { settings: profile(routing, findings), document: None };
    };
    if routing.is_some() {
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
    Chosen { settings, document: Some(path.to_owned()) }
}

/// The document's file: the flag's, else, with a cluster, kthena's where it exists.
fn document_path<'a>(
    args: &'a RouterArgs,
    kubernetes: Option<&KubernetesSettings>,
    files: &dyn Files,
    findings: &mut Findings,
) -> Option<&'a str> {
    const KTHENAS: &str = defaults::KTHENA_DOCUMENT;
    let named = said(&args.config);
    let (None, Some(kubernetes)) = (named, kubernetes) else { return named };
    let exists = files.is_file(Path::new(KTHENAS));
    match (said(&args.routing), exists) {
        (None, true) => Some(KTHENAS),
        (Some(_), true) => {
            let message = format!("counts, and {KTHENAS} is not read; leave the flag out to use that file");
            findings.warn(&Place::flag("--routing"), message);
            None
        }
        (None, false) if kubernetes.config_map.is_none() => {
            let profile = PROFILES[0].0;
            let message = format!(
                "is not given, and there is no {KTHENAS}: endpoints are chosen by --routing {profile}"
            );
            findings.warn(&Place::flag("--config"), message);
            None
        }
        (_, false) => None,
    }
}

/// The names that `--routing` takes, each with its scorer; the first is the default.
const PROFILES: [(&str, &str); 3] =
    [("kv-aware", plugin_names::KVASIR_COST), ("random", "random"), ("least-request", "least-request")];

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

/// The flag's deadline of the remote token sources.
pub(super) fn token_deadline(args: &RouterArgs, findings: &mut Findings) -> Option<Duration> {
    let text = said(&args.tokenize_deadline)?;
    document::token_deadline(text.trim())
        .map_err(|(message, fix)| findings.error(&Place::flag("--tokenize-deadline"), message, fix))
        .ok()
}

/// Fits what was chosen to the flags: as many ranked endpoints as may be tried, the flag's deadline of the remote token
/// sources before the document's, and a gathering that ends no earlier than tokens and lookups do.
pub(super) fn fit(scheduler: &mut SchedulerSettings, max_attempts: usize, token_deadline: Option<Duration>) {
    scheduler.top_n = scheduler.top_n.max(max_attempts);
    let args = &mut scheduler.args.kvcache_aware;
    args.deadline = token_deadline.or(args.deadline);
    if let Some(deadline) = args.deadline {
        let needed = deadline + defaults::GATHER_AFTER_TOKENS;
        scheduler.gather_deadline = scheduler.gather_deadline.max(needed);
    }
    // What gathering has beyond the tokens' deadline is enough for the usual budget.
    scheduler.gather_deadline += args.query_budget.saturating_sub(defaults::GATHER_AFTER_TOKENS);
}

/// Checks what a document says about tokens against the models there are. Those of a cluster are not known yet.
pub(super) fn check_tokenization(
    settings: &Settings,
    document: &Place,
    files: &dyn Files,
    findings: &mut Findings,
) {
    let kvcache = &settings.scheduler.args.kvcache_aware;
    let place = document.key("kvcache-aware.tokenization");
    let models = settings.kubernetes.is_none().then_some(&settings.models[..]);
    models::check_named_directories(kvcache.local.iter(), &place.key("local"), models, files, findings);
    let later =
        settings.kubernetes.is_some() && !(settings.tokenizers.is_empty() && kvcache.local.is_empty());
    for source in &kvcache.order {
        let is_of_use = match source {
            TokenSource::Local => {
                later || settings.models.iter().any(|model| settings.tokenizer_directory(model).is_some())
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
