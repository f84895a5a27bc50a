//! The file of `--engines`: many engines behind one agent, every mistake with its line.

use std::collections::BTreeMap;
use std::path::Path;

use kvasir_core::{Address, EngineKind, ModelName};
use kvasir_settings::resolved::KvEventsSettings;
use kvasir_settings::{Problem, parse_event_source};
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::{EngineConfig, engine_kind, split_pod, twice};

/// Largest file, bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Keys of one engine.
const KEYS: [&str; 6] = ["pod", "baseUrl", "engine", "model", "kvEvents", "metricsPath"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    engines: Vec<Spanned<Fields>>,
}

type Fields = BTreeMap<String, Spanned<Value>>;

/// Reads the engines of a file.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn read(path: &str, metrics_path: &str) -> Result<Vec<EngineConfig>, Vec<Problem>> {
    let fault = |line, column, message: String, fix: &str| {
        vec![Problem {
            file: path.to_owned(),
            line,
            column,
            path: String::new(),
            message,
            fix: fix.to_owned(),
        }]
    };
    let text = read_text(Path::new(path)).map_err(|message| fault(None, None, message, ""))?;
    let file: File = serde_saphyr::from_str(&text).map_err(|error| {
        let at = error.location();
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default().to_owned();
        let place =
            |number: fn(&Location) -> u64| at.as_ref().and_then(|at| usize::try_from(number(at)).ok());
        fault(place(Location::line), place(Location::column), first, "write engines: and a list")
    })?;
    let mut notes = Notes { file: path, problems: Vec::new() };
    if file.engines.is_empty() {
        return Err(fault(None, None, "names no engine".to_owned(), "list at least one under engines:"));
    }
    let engines = file
        .engines
        .into_iter()
        .enumerate()
        .filter_map(|(number, fields)| Entry::new(&mut notes, number, fields).read(metrics_path))
        .collect();
    if notes.problems.is_empty() { Ok(engines) } else { Err(notes.problems) }
}

fn read_text(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?.len();
    if size > MOST_BYTES {
        return Err(format!("has {size} bytes; {MOST_BYTES} are the most"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

struct Notes<'a> {
    file: &'a str,
    problems: Vec<Problem>,
}

/// One item of the list.
struct Entry<'n, 'a> {
    notes: &'n mut Notes<'a>,
    path: String,
    place: Location,
    fields: Fields,
}

impl<'n, 'a> Entry<'n, 'a> {
    fn new(notes: &'n mut Notes<'a>, number: usize, fields: Spanned<Fields>) -> Self {
        Self { notes, path: format!("engines[{number}]"), place: fields.referenced, fields: fields.value }
    }

    fn error(&mut self, key: &str, at: Location, message: impl Into<String>, fix: impl Into<String>) {
        let path = if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) };
        self.notes.problems.push(Problem {
            file: self.notes.file.to_owned(),
            line: usize::try_from(at.line()).ok(),
            column: usize::try_from(at.column()).ok(),
            path,
            message: message.into(),
            fix: fix.into(),
        });
    }

    fn read(mut self, metrics_path: &str) -> Option<EngineConfig> {
        let unknown: Vec<(String, Location)> = self
            .fields
            .iter()
            .filter(|(key, _)| !KEYS.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.referenced))
            .collect();
        for (key, at) in unknown {
            self.error(&key, at, "the key is unknown", format!("known keys: {}", KEYS.join(", ")));
        }
        let pod = self.required("pod", "add pod: NAME.NAMESPACE").and_then(|(text, at)| {
            let split = split_pod(&text).map(|(pod, namespace)| (pod.into(), namespace.into()));
            split.map_err(|message| self.error("pod", at, message, "write NAME.NAMESPACE")).ok()
        });
        let address = self.required("baseUrl", "add baseUrl: http://HOST:PORT").and_then(|(text, at)| {
            Address::parse(&text).map_err(|message| self.error("baseUrl", at, message, "")).ok()
        });
        let kind = match self.text("engine") {
            None => Some(EngineKind::Vllm),
            Some((text, at)) => {
                let kind = engine_kind(&text);
                if kind.is_none() {
                    self.error("engine", at, format!("{text:?} is not supported"), "write vllm or sglang");
                }
                kind
            }
        };
        let model = self.text("model").map(|(text, _)| ModelName::from(text));
        let metrics_path = self.text("metricsPath").map_or(metrics_path.to_owned(), |(text, at)| {
            if !text.starts_with('/') {
                self.error("metricsPath", at, format!("{text:?} is no path"), "write it as in /metrics");
            }
            text
        });
        let kv_events = self.kv_events();
        let (pod, namespace) = pod?;
        Some(EngineConfig { kind: kind?, address: address?, metrics_path, pod, namespace, model, kv_events })
    }

    fn text(&mut self, key: &'static str) -> Option<(String, Location)> {
        let value = self.fields.get(key)?;
        let at = value.referenced;
        match &value.value {
            Value::Null => None,
            Value::String(text) if !text.trim().is_empty() => Some((text.trim().to_owned(), at)),
            _ => {
                self.error(key, at, "is no text", "write a text");
                None
            }
        }
    }

    fn required(&mut self, key: &'static str, fix: &str) -> Option<(String, Location)> {
        if self.fields.get(key).is_none_or(|value| value.value.is_null()) {
            let at = self.place;
            self.error("", at, format!("lacks the key {key:?}"), fix);
            return None;
        }
        self.text(key)
    }

    /// A list of texts in the form of the flag; one text is a list of one.
    fn kv_events(&mut self) -> Vec<KvEventsSettings> {
        const FIX: &str = "write a list of tcp://HOST:PORT[,replay=PORT][,topic=PREFIX][,rank=N]";
        let Some(value) = self.fields.get("kvEvents") else { return Vec::new() };
        let at = value.referenced;
        let items = match value.value.clone() {
            Value::Null => Vec::new(),
            Value::Array(items) => items,
            one => vec![one],
        };
        let mut sources = Vec::new();
        for item in items {
            match item.as_str().map(parse_event_source) {
                Some(Ok(source)) => sources.push(source),
                Some(Err(message)) => self.error("kvEvents", at, message, FIX),
                None => self.error("kvEvents", at, "is no text", FIX),
            }
        }
        if let Some(message) = twice(&sources) {
            self.error("kvEvents", at, message, "give each rank once, with rank=N");
        }
        sources
    }
}
