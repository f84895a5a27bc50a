//! Reads the models file: every unknown key, wrong type and missing value is noted with its line.

use crate::problems::{Findings, Located, Place};
use crate::raw::models::{Endpoint, KvEvents, Model, ModelsFile};
use crate::raw::{Fields, UnknownKeys, list_of, text_of};
use crate::yaml::{Booleans, Scalar, Tree, Value};

#[cfg(test)]
mod tests;

/// Ranks behind one URL: more than any engine has, few enough to list.
pub(crate) const MOST_RANKS: u32 = 1024;

/// Reads the models of a text; what cannot be read is left out and noted.
pub(crate) fn read(text: &str, file: &str, findings: &mut Findings) -> ModelsFile {
    let place = Place::file(file);
    let tree = match Tree::parse(text) {
        Ok(tree) => tree,
        Err(error) => {
            findings.error(&place.at(error.line, error.column), format!("is no YAML: {}", error.message), "");
            return ModelsFile::default();
        }
    };
    if tree.more {
        findings.error(&place, "holds more than one YAML document", "put all models into the first");
    }
    let Some(root) = tree.root() else {
        findings.error(&place, "is empty", "write models: and a list");
        return ModelsFile::default();
    };
    let Some(mut top) = Fields::of(root, &place, findings) else { return ModelsFile::default() };
    let listed = top.require("models", "write models: and a list", findings);
    top.finish(UnknownKeys::Refuse, findings);
    let Some((value, place)) = listed else { return ModelsFile::default() };
    let models = list_of(value, &place, findings)
        .into_iter()
        .filter_map(|(value, place)| read_model(value, &place, findings))
        .collect();
    ModelsFile { models }
}

fn read_model(value: Value<'_>, place: &Place, findings: &mut Findings) -> Option<Model> {
    let mut fields = Fields::of(value, place, findings)?;
    let name = fields.require("name", "add name: with the name clients use", findings);
    let name = name.and_then(|(value, place)| word(value, &place, findings));
    let served_name = optional_word(&mut fields, "servedName", findings);
    let aliases = words(&mut fields, "aliases", findings);
    let engine = optional_word(&mut fields, "engine", findings);
    let tokenizer = optional_word(&mut fields, "tokenizer", findings);
    let chat_template = optional_word(&mut fields, "chatTemplate", findings);
    let adapters = words(&mut fields, "adapters", findings);
    let connector = optional_word(&mut fields, "connector", findings);
    let listed = fields.require("endpoints", "add endpoints: and a list of url: entries", findings);
    fields.finish(UnknownKeys::Refuse, findings);
    let mut endpoints = Vec::new();
    if let Some((value, place)) = listed {
        let items = list_of(value, &place, findings);
        if value.items().is_some_and(|items| items.is_empty()) {
            findings.error(&place, "is empty", "list at least one url:");
        }
        for (value, place) in items {
            endpoints.extend(read_endpoint(value, &place, findings));
        }
    }
    Some(Model {
        name: name?,
        served_name,
        aliases,
        engine,
        tokenizer,
        chat_template,
        adapters,
        connector,
        endpoints,
    })
}

fn read_endpoint(value: Value<'_>, place: &Place, findings: &mut Findings) -> Option<Endpoint> {
    let mut fields = Fields::of(value, place, findings)?;
    let url = fields.require("url", "add url: http://HOST:PORT", findings);
    let url = url.and_then(|(value, place)| word(value, &place, findings));
    let kv_events =
        fields.take("kvEvents").and_then(|(value, place)| read_kv_events(value, &place, findings));
    let data_parallel =
        fields.take("dataParallel").and_then(|(value, place)| read_ranks(value, place, findings));
    let pin_ranks = fields.take("pinRanks").and_then(|(value, place)| read_choice(value, place, findings));
    let role = optional_word(&mut fields, "role", findings);
    let group = optional_word(&mut fields, "group", findings);
    let bootstrap_port =
        fields.take("bootstrapPort").and_then(|(value, place)| read_port(value, place, findings));
    fields.finish(UnknownKeys::Refuse, findings);
    Some(Endpoint { url: url?, kv_events, data_parallel, pin_ranks, role, group, bootstrap_port })
}

fn read_kv_events(value: Value<'_>, place: &Place, findings: &mut Findings) -> Option<KvEvents> {
    let mut fields = Fields::of(value, place, findings)?;
    let endpoint = fields.require("endpoint", "add endpoint: tcp://HOST:PORT", findings);
    let endpoint = endpoint.and_then(|(value, place)| word(value, &place, findings));
    let replay = optional_word(&mut fields, "replay", findings);
    let topic = fields.take("topic").and_then(|(value, place)| text_of(value, &place, findings));
    let place = fields.place().clone();
    fields.finish(UnknownKeys::Refuse, findings);
    Some(KvEvents { endpoint: endpoint?, replay, topic, place })
}

fn read_ranks(value: Value<'_>, place: Place, findings: &mut Findings) -> Option<Located<u32>> {
    let ranks = match value.scalar(Booleans::Two) {
        Some(Scalar::Integer(ranks)) => u32::try_from(ranks).ok(),
        _ => None,
    };
    match ranks {
        Some(ranks) if (1..=MOST_RANKS).contains(&ranks) => Some(Located::new(ranks, place)),
        _ => {
            let said = value.text().map_or_else(|| value.kind().to_owned(), |text| format!("{text:?}"));
            let fix = format!("write a whole number from 1 to {MOST_RANKS}");
            findings.error(&place, format!("is {said}"), fix);
            None
        }
    }
}

fn read_choice(value: Value<'_>, place: Place, findings: &mut Findings) -> Option<Located<bool>> {
    if let Some(Scalar::Boolean(choice)) = value.scalar(Booleans::Two) {
        return Some(Located::new(choice, place));
    }
    let said = value.text().map_or_else(|| value.kind().to_owned(), |text| format!("{text:?}"));
    findings.error(&place, format!("is {said}"), "write true or false");
    None
}

fn read_port(value: Value<'_>, place: Place, findings: &mut Findings) -> Option<Located<u16>> {
    if let Some(Scalar::Integer(port)) = value.scalar(Booleans::Two)
        && let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0)
    {
        return Some(Located::new(port, place));
    }
    let said = value.text().map_or_else(|| value.kind().to_owned(), |text| format!("{text:?}"));
    findings.error(&place, format!("is {said}"), "write a port, 1 to 65535");
    None
}

/// A text that says something.
fn word(value: Value<'_>, place: &Place, findings: &mut Findings) -> Option<Located<String>> {
    let text = text_of(value, place, findings)?;
    if text.value.trim().is_empty() {
        findings.error(place, "is empty", "write a text");
        return None;
    }
    Some(text)
}

fn optional_word(
    fields: &mut Fields<'_>,
    name: &'static str,
    findings: &mut Findings,
) -> Option<Located<String>> {
    fields.take(name).and_then(|(value, place)| word(value, &place, findings))
}

fn words(fields: &mut Fields<'_>, name: &'static str, findings: &mut Findings) -> Vec<Located<String>> {
    let Some((value, place)) = fields.take(name) else { return Vec::new() };
    list_of(value, &place, findings)
        .into_iter()
        .filter_map(|(value, place)| word(value, &place, findings))
        .collect()
}
