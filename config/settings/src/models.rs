//! The models from the file and from the flags, put together and checked against each other.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use kvasir_core::{AdapterName, Address, EngineKind, ModelName};

use crate::event_source;
use crate::facts::Files;
use crate::flags::{KvEventsFlag, ModelFlag, RouterArgs, TokenizerFlag};
use crate::problems::{Findings, Located, Place};
use crate::raw::models::Model;
use crate::resolved::{EndpointSettings, KvEventsSettings, ModelSettings};
use crate::suggest;

mod parts;

#[cfg(test)]
mod tests;

/// The models that were named, and the tokenizer directories that flags name.
#[derive(Debug, Default)]
pub(crate) struct NamedModels {
    pub models: Vec<ModelSettings>,
    pub tokenizers: BTreeMap<ModelName, PathBuf>,
}

/// Puts the models together. What is wrong with one is noted and does not hide what is wrong with the next. With a
/// cluster there may be none, and a tokenizer may be for a model that is not there yet.
pub(crate) fn assemble(
    from_file: &[Model],
    args: &RouterArgs,
    cluster: bool,
    files: &dyn Files,
    findings: &mut Findings,
) -> NamedModels {
    let mut names = ClientNames::default();
    let mut models: Vec<ModelSettings> =
        from_file.iter().map(|said| model_from_file(said, files, &mut names, findings)).collect();
    for text in entries(&args.model) {
        models.extend(model_from_flag(text, &mut names, findings));
    }
    let mut tokenizers = BTreeMap::new();
    for text in entries(&args.tokenizer) {
        let Some(TokenizerFlag { name, directory }) = read_tokenizer(text, files, findings) else { continue };
        match models.iter_mut().find(|model| model.name.as_str() == name) {
            Some(model) => model.tokenizer = Some(PathBuf::from(&directory)),
            None if cluster => {}
            None => refuse_tokenizer(&name, &models, findings),
        }
        tokenizers.insert(ModelName::from(name), PathBuf::from(directory));
    }
    for text in entries(&args.kv_events) {
        add_event_source(text, &mut models, findings);
    }
    if models.is_empty() && !cluster && findings.problem_count() == 0 {
        findings.error(
            &Place::flag("--model"),
            "there is no model to route to, and no cluster to learn of models from",
            "give --model NAME=http://HOST:PORT, or --models FILE with a list of models; or run in a pod, or write \
             --kubernetes on, to route by Kubernetes objects",
        );
    }
    NamedModels { models, tokenizers }
}

/// Entries of a repeated flag; a variable may end in a separator, or be empty.
fn entries(texts: &[String]) -> impl Iterator<Item = &str> {
    texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// The names that clients may use, each with where it was said first.
#[derive(Default)]
struct ClientNames(HashMap<String, Place>);

impl ClientNames {
    fn claim(&mut self, name: &str, place: &Place, findings: &mut Findings) {
        if let Some(first) = self.0.get(name) {
            let message = format!("the name {name:?} is already taken by {first}");
            findings.error(place, message, "a name that clients use must belong to one model");
        } else {
            self.0.insert(name.to_owned(), place.clone());
        }
    }
}

fn model_from_file(
    said: &Model,
    files: &dyn Files,
    names: &mut ClientNames,
    findings: &mut Findings,
) -> ModelSettings {
    for name in std::iter::once(&said.name).chain(&said.aliases).chain(&said.adapters) {
        names.claim(&name.value, &name.place, findings);
    }
    let mut endpoints: Vec<EndpointSettings> = Vec::new();
    let engine =
        said.engine.as_ref().map_or_else(EngineKind::default, |engine| engine_kind(engine, findings));
    for endpoint in &said.endpoints {
        let role = parts::role(endpoint, findings);
        let group = endpoint.group.as_ref().map(|group| group.value.clone());
        let ranks = endpoint.data_parallel.as_ref().map_or(1, |ranks| ranks.value);
        let pin_ranks = endpoint.pin_ranks.as_ref().map(|choice| choice.value);
        let kv_events = endpoint.kv_events.as_ref().map(|said| event_source::of_ranks(said, ranks, findings));
        if let Some(address) = add_url(&endpoint.url.value, &endpoint.url.place, &endpoints, findings) {
            let kv_events = kv_events.unwrap_or_default();
            let bootstrap_port = endpoint.bootstrap_port.as_ref().map(|port| port.value);
            endpoints.push(EndpointSettings {
                address,
                kv_events,
                ranks,
                pin_ranks,
                role,
                group,
                bootstrap_port,
            });
        }
    }
    let connector = parts::connector(said, engine, findings);
    let tokenizer = said.tokenizer.as_ref().map(|directory| {
        check_directory(&directory.value, &directory.place, files, findings);
        PathBuf::from(&directory.value)
    });
    let chat_template = said.chat_template.as_ref().map(|template| {
        if !files.is_file(Path::new(&template.value)) {
            let message = format!("there is no file {:?}", template.value);
            findings.error(&template.place, message, "name the chat template's file");
        }
        PathBuf::from(&template.value)
    });
    ModelSettings {
        name: ModelName::from(said.name.value.as_str()),
        served_name: said.served_name.as_ref().map(|name| ModelName::from(name.value.as_str())),
        aliases: said.aliases.iter().map(|name| ModelName::from(name.value.as_str())).collect(),
        engine,
        tokenizer,
        chat_template,
        adapters: said.adapters.iter().map(|name| AdapterName::from(name.value.as_str())).collect(),
        connector,
        endpoints,
    }
}

fn engine_kind(said: &Located<String>, findings: &mut Findings) -> EngineKind {
    match said.value.as_str() {
        "vllm" => EngineKind::Vllm,
        "sglang" => EngineKind::Sglang,
        other => {
            let fix = match suggest::closest(other, ["vllm", "sglang"]) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "write vllm or sglang".to_owned(),
            };
            findings.error(&said.place, format!("there is no engine {other:?}"), fix);
            EngineKind::default()
        }
    }
}

fn model_from_flag(text: &str, names: &mut ClientNames, findings: &mut Findings) -> Option<ModelSettings> {
    let place = Place::flag("--model");
    let said = match ModelFlag::parse(text) {
        Ok(said) => said,
        Err(error) => {
            findings.error(&place, error, "");
            return None;
        }
    };
    names.claim(&said.name, &Place::flag(&format!("--model {}", said.name)), findings);
    let mut endpoints: Vec<EndpointSettings> = Vec::new();
    for url in &said.urls {
        if let Some(address) = add_url(url, &place, &endpoints, findings) {
            endpoints.push(EndpointSettings::new(address));
        }
    }
    Some(ModelSettings {
        name: ModelName::from(said.name),
        served_name: None,
        aliases: Vec::new(),
        engine: EngineKind::default(),
        tokenizer: None,
        chat_template: None,
        adapters: Vec::new(),
        connector: None,
        endpoints,
    })
}

/// The URL's address, unless it is bad or the model already has it.
fn add_url(
    url: &str,
    place: &Place,
    endpoints: &[EndpointSettings],
    findings: &mut Findings,
) -> Option<Address> {
    let address = match Address::parse(url) {
        Ok(address) => address,
        Err(error) => {
            findings.error(place, error, "");
            return None;
        }
    };
    if endpoints.iter().any(|endpoint| endpoint.address == address) {
        findings.error(place, format!("{url} is listed twice for the model"), "list each URL once");
        return None;
    }
    Some(address)
}

fn check_directory(directory: &str, place: &Place, files: &dyn Files, findings: &mut Findings) {
    if !files.is_directory(Path::new(directory)) {
        let message = format!("there is no directory {directory:?}");
        findings.error(place, message, "name the directory that holds tokenizer.json");
    }
}

/// Checks the directories of `tokenization.local`, and that the models they are for exist, where all of them are known.
pub(crate) fn check_named_directories<'a>(
    named: impl Iterator<Item = (&'a String, &'a PathBuf)>,
    place: &Place,
    models: Option<&[ModelSettings]>,
    files: &dyn Files,
    findings: &mut Findings,
) {
    for (model, directory) in named {
        let place = place.key(model);
        check_directory(&directory.to_string_lossy(), &place, files, findings);
        let is_it = |known: &ModelSettings| {
            known.name.as_str() == model
                || known.served_name.as_ref().is_some_and(|name| name.as_str() == model)
        };
        if models.is_some_and(|models| !models.iter().any(is_it)) {
            findings.warn(&place, format!("there is no model {model:?}, so its tokenizer has no effect"));
        }
    }
}

fn read_tokenizer(text: &str, files: &dyn Files, findings: &mut Findings) -> Option<TokenizerFlag> {
    let place = Place::flag("--tokenizer");
    match TokenizerFlag::parse(text) {
        Ok(said) => {
            check_directory(&said.directory, &place, files, findings);
            Some(said)
        }
        Err(error) => {
            findings.error(&place, error, "");
            None
        }
    }
}

fn refuse_tokenizer(name: &str, models: &[ModelSettings], findings: &mut Findings) {
    let names: Vec<String> = models.iter().map(|model| model.name.to_string()).collect();
    let fix = known_names(name, &names);
    findings.error(&Place::flag("--tokenizer"), format!("there is no model {name:?}"), fix);
}

fn add_event_source(text: &str, models: &mut [ModelSettings], findings: &mut Findings) {
    let place = Place::flag("--kv-events");
    let parsed = KvEventsFlag::parse(text)
        .and_then(|said| Ok((Address::parse(&said.url)?, event_source::of_flag(&said)?)));
    let (address, source) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return findings.error(&place, error, ""),
    };
    let urls: Vec<String> =
        models.iter().flat_map(|model| &model.endpoints).map(|endpoint| endpoint.address.url()).collect();
    let mut found = false;
    let endpoints = models.iter_mut().flat_map(|model| &mut model.endpoints);
    for endpoint in endpoints.filter(|endpoint| endpoint.address == address) {
        found = true;
        add_rank(endpoint, source.clone(), &place, findings);
    }
    if !found {
        let message = format!("no model has the endpoint {}", address.url());
        findings.error(&place, message, known_names(&address.url(), &urls));
    }
}

fn add_rank(
    endpoint: &mut EndpointSettings,
    source: KvEventsSettings,
    place: &Place,
    findings: &mut Findings,
) {
    if endpoint.kv_events.iter().any(|known| known.rank == source.rank) {
        let message =
            format!("{} already has an event source for rank {}", endpoint.address.url(), source.rank);
        findings.error(place, message, "give each rank one source, in the file or as a flag");
        return;
    }
    endpoint.ranks = endpoint.ranks.max(source.rank + 1);
    endpoint.kv_events.push(source);
    endpoint.kv_events.sort_by_key(|source| source.rank);
}

fn known_names(said: &str, known: &[String]) -> String {
    match suggest::closest(said, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None if known.is_empty() => "add it with --model, or in the models file".to_owned(),
        None => {
            let shown: Vec<&str> = known.iter().take(8).map(String::as_str).collect();
            format!("known: {}", shown.join(", "))
        }
    }
}
