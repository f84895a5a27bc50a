//! The arguments of `kvcache-aware`: kthena's, and our own beside them.

use std::path::PathBuf;
use std::time::Duration;

use kvasir_core::{Address, TokenSource};

use super::plugin_args::{ReadMap, with_fields};
use crate::compat::ArgFields;
use crate::coordination::CoordinationMode;
use crate::defaults;
use crate::duration::{format_duration, parse_duration};
use crate::problems::{Findings, Place};
use crate::resolved::{KvCacheAwareArgs, TokenizerServiceArgs};
use crate::suggest;

/// Sources that `tokenization.order` may name.
const SOURCES: [(&str, TokenSource); 3] =
    [("local", TokenSource::Local), ("service", TokenSource::Service), ("engine", TokenSource::Engine)];

/// kthena's fields that do not fit fall to their defaults, one by one; our own are refused.
pub(super) fn read(map: ReadMap, place: &Place, findings: &mut Findings) -> KvCacheAwareArgs {
    let mut notes = Vec::new();
    let mut refusals = Vec::new();
    let (read, errors) = with_fields(map, place, findings, |fields| {
        let mut args = kthena_fields(fields, &mut notes);
        let theirs = fields.take_errors();
        own_fields(fields, &mut args, &mut refusals);
        let ours = fields.take_errors().into_iter();
        refusals.extend(ours.map(|(place, error)| (place, error, String::new())));
        (args, theirs)
    });
    let (args, theirs) = read;
    for (place, error) in errors.into_iter().chain(theirs) {
        findings
            .warn(&place, format!("{error}; kvcache-aware uses the default for what it does not understand"));
    }
    for (place, note) in notes {
        findings.warn(&place, note);
    }
    for (place, message, fix) in refusals {
        findings.error(&place, message, fix);
    }
    check_service(&args.tokenizer_service, place, findings);
    args
}

fn kthena_fields(fields: &mut ArgFields<'_>, notes: &mut Vec<(Place, String)>) -> KvCacheAwareArgs {
    let mut args = KvCacheAwareArgs::default();
    let place = fields.place().clone();
    let mut count = |name: &'static str, otherwise: &str| {
        let value = fields.integer(name).filter(|value| *value != 0)?;
        let count = u32::try_from(value).ok();
        if count.is_none() {
            notes.push((place.key(name), format!("{value} is out of range; {otherwise} instead")));
        }
        count
    };
    let known = args.block_size_to_hash;
    args.block_size_to_hash = count("blockSizeToHash", &format!("{known} is used")).unwrap_or(known);
    args.max_blocks_to_match = count("maxBlocksToMatch", "its default counts");
    let mut port = |name: &'static str| {
        let value = fields.integer(name).filter(|value| *value != 0)?;
        let port = u16::try_from(value).ok();
        if port.is_none() {
            let note = format!("{value} is no port (1 to 65535); the endpoint's own port is used");
            notes.push((place.key(name), note));
        }
        port
    };
    args.vllm_tokenizer_port = port("vllmTokenizerPort");
    args.sglang_tokenizer_port = port("sglangTokenizerPort");
    if let Some(mut below) = fields.map("tokenizerService") {
        args.tokenizer_service = service_fields(&mut below, notes);
        fields.adopt(below);
    }
    args
}

fn service_fields(below: &mut ArgFields<'_>, notes: &mut Vec<(Place, String)>) -> TokenizerServiceArgs {
    let default = TokenizerServiceArgs::default();
    let mut service = TokenizerServiceArgs {
        enabled: below.boolean("enabled").unwrap_or(default.enabled),
        endpoint: below.text("endpoint").unwrap_or(default.endpoint),
        fallback_to_engine: below.boolean("fallbackToEngine").unwrap_or(default.fallback_to_engine),
    };
    if service.enabled && service.endpoint.is_empty() {
        let note =
            "the service is enabled but has no endpoint, so it is not asked; add endpoint: http://HOST:PORT";
        notes.push((below.place().clone(), note.to_owned()));
        service.enabled = false;
    }
    service
}

fn own_fields(
    fields: &mut ArgFields<'_>,
    args: &mut KvCacheAwareArgs,
    refusals: &mut Vec<(Place, String, String)>,
) {
    if let Some(mut below) = fields.map("tokenization") {
        for (place, name) in below.texts("order").unwrap_or_default() {
            match SOURCES.iter().find(|(known, _)| *known == name) {
                Some((_, source)) if !args.order.contains(source) => args.order.push(*source),
                Some(_) => refusals.push((place, format!("{name:?} is named twice"), "name it once".into())),
                None => {
                    let fix = match suggest::closest(&name, SOURCES.map(|(known, _)| known)) {
                        Some(meant) => format!("did you mean {meant:?}?"),
                        None => "known sources: local, service, engine".to_owned(),
                    };
                    refusals.push((place, format!("there is no token source {name:?}"), fix));
                }
            }
        }
        if let Some(text) = below.text("deadline") {
            match token_deadline(&text) {
                Ok(deadline) => args.deadline = Some(deadline),
                Err((message, fix)) => refusals.push((below.place().key("deadline"), message, fix)),
            }
        }
        if let Some(mut local) = below.map("local") {
            let texts = local.all_texts();
            args.local =
                texts.into_iter().map(|(model, directory)| (model, PathBuf::from(directory))).collect();
            let errors = local.take_errors().into_iter();
            refusals.extend(errors.map(|(place, error)| (place, error, "write MODEL: DIRECTORY".into())));
        }
        fields.adopt(below);
    }
    if let Some(name) = fields.text("coordination") {
        args.coordination = CoordinationMode::ALL.into_iter().find(|mode| mode.as_str() == name);
        if args.coordination.is_none() {
            let place = fields.place().key("coordination");
            let message = format!("there is no coordination {name:?}");
            refusals.push((place, message, "write mirror or query".into()));
        }
    }
    if let Some(text) = fields.text("queryBudget") {
        match duration_within(&text, defaults::QUERY_BUDGETS, "5ms") {
            Ok(budget) => args.query_budget = budget,
            Err((message, fix)) => refusals.push((fields.place().key("queryBudget"), message, fix)),
        }
    }
}

/// The time of all remote calls together.
///
/// # Errors
/// What is wrong, and the fix.
pub(crate) fn token_deadline(text: &str) -> Result<Duration, (String, String)> {
    duration_within(text, defaults::TOKEN_DEADLINES, "50ms")
}

fn duration_within(
    text: &str,
    (least, most): (Duration, Duration),
    example: &str,
) -> Result<Duration, (String, String)> {
    let fix = || {
        let (least, most) = (format_duration(least), format_duration(most));
        format!("write a duration from {least} to {most}, such as {example}")
    };
    let duration = parse_duration(text).map_err(|error| (error, fix()))?;
    if (least..=most).contains(&duration) {
        Ok(duration)
    } else {
        Err((format!("{text} is out of range"), fix()))
    }
}

fn check_service(service: &TokenizerServiceArgs, place: &Place, findings: &mut Findings) {
    if service.enabled
        && let Err(error) = Address::parse(&service.endpoint)
    {
        findings.error(&place.key("tokenizerService").key("endpoint"), error, "");
    }
}
