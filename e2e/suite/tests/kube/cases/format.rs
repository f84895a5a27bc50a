//! What a case file may say; `e2e/suite/cases/README.md` explains it to those who write one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// Words that stand for something, such as the case's namespace, each with what it stands for.
pub type Names = BTreeMap<String, Value>;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// What the cases have in common.
    pub about: String,
    pub cases: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub title: String,
    /// Where the rule is written.
    pub source: String,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default)]
    pub scope: Scope,
    /// More namespaces, with their labels.
    #[serde(default)]
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// ModelServers with a pod each.
    #[serde(default)]
    pub servers: Vec<String>,
    /// InferencePools with a pod each.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Objects that are older than the others, in the API's measure of whole seconds.
    #[serde(default)]
    pub older: Vec<Value>,
    #[serde(default)]
    pub objects: Vec<Value>,
    #[serde(default)]
    pub pods: Vec<PodSpec>,
    /// Letters of ports that somebody else listens on.
    #[serde(default)]
    pub taken: Vec<String>,
    pub steps: Vec<Step>,
}

/// How the router is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Without Gateways.
    #[default]
    Default,
    /// `--enable-gateway-api`.
    Gateway,
    /// And `--enable-gateway-api-inference-extension`.
    Inference,
}

/// What the router watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The case's namespace.
    #[default]
    Namespace,
    /// Everything. Such a case runs alone.
    Cluster,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodSpec {
    pub name: String,
    pub namespace: Option<String>,
    /// `app: NAME` where nothing is said.
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default = "yes")]
    pub ready: bool,
    #[serde(default = "running")]
    pub phase: String,
    /// Where its engine listens.
    #[serde(default = "usual_ports")]
    pub ports: Vec<u16>,
    /// A pod whose address this one has too.
    pub shares: Option<String>,
    #[serde(default)]
    pub ipv6: bool,
    /// Whether anybody listens at all.
    #[serde(default = "yes")]
    pub engine: bool,
    /// The name in the certificate; the engine speaks TLS then.
    pub tls: Option<String>,
    /// What it lists at `/v1/models`.
    #[serde(default)]
    pub models: Vec<String>,
    #[serde(default)]
    pub answers: Answers,
}

/// How an engine answers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    pub status: Option<u16>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub after_ms: u64,
    pub times: Option<usize>,
}

fn yes() -> bool {
    true
}

fn running() -> String {
    "Running".to_owned()
}

fn usual_ports() -> Vec<u16> {
    vec![8000]
}

/// First what changes, then what objects must say, then requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it is about, for the report.
    #[serde(default)]
    pub note: String,
    #[serde(default)]
    pub apply: Vec<Value>,
    /// `Kind/name`.
    #[serde(default)]
    pub delete: Vec<String>,
    #[serde(default)]
    pub pods: Vec<PodSpec>,
    #[serde(default)]
    pub ready: BTreeMap<String, bool>,
    #[serde(default)]
    pub phase: BTreeMap<String, String>,
    #[serde(default)]
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    pub answers: BTreeMap<String, Answers>,
    /// Ports that nobody else listens on any more.
    #[serde(default)]
    pub free: Vec<String>,
    /// Pods that get a deletion mark and stay.
    #[serde(default)]
    pub terminate: Vec<String>,
    /// Pods that are gone.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Pods whose containers start again.
    #[serde(default)]
    pub restart: Vec<String>,
    #[serde(default)]
    pub statuses: Vec<StatusExpected>,
    pub request: Option<RequestSpec>,
    #[serde(default = "once")]
    pub repeat: u32,
    #[serde(default)]
    pub expect: Expected,
}

fn once() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSpec {
    #[serde(default = "post")]
    pub method: String,
    #[serde(default = "chat")]
    pub path: String,
    #[serde(default = "this_machine")]
    pub host: String,
    /// A letter of `$PORT_A`, ...; the router's own port without one.
    pub port: Option<String>,
    /// A value, or a list of values.
    #[serde(default)]
    pub headers: BTreeMap<String, Value>,
    pub model: Option<String>,
    /// The whole body, in the place of a small one with `model`.
    pub body: Option<String>,
}

fn post() -> String {
    "POST".to_owned()
}

fn chat() -> String {
    "/v1/chat/completions".to_owned()
}

fn this_machine() -> String {
    "127.0.0.1".to_owned()
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// 200 where nothing is said.
    pub status: Option<u16>,
    /// Who answers each request.
    pub pod: Option<String>,
    /// Who answers one request or more; nobody else does.
    #[serde(default)]
    pub pods: Vec<String>,
    /// Who answers which part of them, in percent; a status stands for the answers that are no pod's.
    #[serde(default)]
    pub share: BTreeMap<String, f64>,
    /// How far, in percent, a share may be off.
    #[serde(default = "ten_percent")]
    pub within: f64,
    /// What reached the engine.
    #[serde(default)]
    pub upstream: Upstream,
    /// Headers of the answer: a value, `"*"` for any, null for none.
    #[serde(default)]
    pub headers: BTreeMap<String, Value>,
    /// The code in the router's error.
    pub code: Option<String>,
    /// A part of the router's error.
    pub message: Option<String>,
    /// The ids that are listed, all of them.
    pub models: Option<Vec<String>>,
}

fn ten_percent() -> f64 {
    10.0
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    pub method: Option<String>,
    pub path: Option<String>,
    pub host: Option<String>,
    pub model: Option<String>,
    pub body: Option<String>,
    /// As in [`Expected::headers`]; a list for several values.
    #[serde(default)]
    pub headers: BTreeMap<String, Value>,
    /// By JSON pointer into the body: a value, `"*"` for any, null for none.
    #[serde(default)]
    pub fields: BTreeMap<String, Value>,
}

/// What an object must come to say. Every condition must be about the object's last generation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusExpected {
    /// `Kind/name`.
    pub of: String,
    /// Where it is, if not in the case's own.
    pub namespace: Option<String>,
    /// The Gateway at which it says so.
    pub parent: Option<String>,
    /// The listener of a Gateway, or of the parent.
    pub listener: Option<String>,
    /// `STATUS`, or `STATUS REASON`; null for a condition that must not be there.
    #[serde(default)]
    pub conditions: BTreeMap<String, Option<String>>,
    /// A part of some condition's message.
    pub message: Option<String>,
    /// Routes at the listener.
    pub attached: Option<u64>,
    /// Kinds of routes that the listener takes.
    pub kinds: Option<Vec<String>>,
    /// How many parents say something.
    pub parents: Option<usize>,
    /// Whether there is no status at all.
    #[serde(default)]
    pub silent: bool,
}

/// Every case of every file, by file.
pub fn read_all() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are no cases in {}", folder.display());
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let read: Result<CaseFile, String> =
            serde_saphyr::from_str(&text).map_err(|error| format!("{name}: {error}"));
        let read = read.unwrap();
        assert!(!read.about.is_empty(), "{name} does not say what it is about");
        all.extend(read.cases.into_iter().map(|case| (name.clone(), case)));
    }
    all
}

/// The case with every name in the place of its word.
pub fn named(case: &Value, names: &Names) -> Result<Case, serde_json::Error> {
    serde_json::from_value(replaced(case, names))
}

fn replaced(value: &Value, names: &Names) -> Value {
    match value {
        Value::String(text) => match names.get(text) {
            Some(whole) => whole.clone(),
            None => Value::String(spelled(text, names)),
        },
        Value::Array(items) => items.iter().map(|item| replaced(item, names)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (spelled(name, names), replaced(value, names))).collect()
        }
        other => other.clone(),
    }
}

/// The longest words first: one may begin with another.
fn spelled(text: &str, names: &Names) -> String {
    let mut text = text.to_owned();
    if text.contains('$') {
        let mut words: Vec<(&String, &Value)> = names.iter().collect();
        words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        for (word, value) in words {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text = text.replace(word.as_str(), &value);
        }
    }
    text
}
