//! What each model is at, for those who answer requests and show states.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::model_set::ModelSpec;
use crate::native::NativeModel;

/// Longest reason that is shown, bytes.
const MOST_REASON_BYTES: usize = 512;

/// A model's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not yet, or not just now.
    Loading,
    /// Answers.
    Ready,
    /// Does not answer; tried again after a pause.
    Failed,
}

impl Status {
    /// As shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// Who answers for a model that is ready.
#[derive(Clone, Debug)]
pub enum Backend {
    /// This process.
    Native(Arc<NativeModel>),
    /// A renderer at this port of 127.0.0.1.
    Render(u16),
}

/// Why nobody answers for a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotReady {
    /// It is not among the models.
    Unmapped,
    /// It is being loaded.
    Loading,
    /// It failed, for this reason.
    Failed(String),
}

/// One model on the board.
#[derive(Debug)]
pub struct Entry {
    spec: ModelSpec,
    shown: Mutex<Shown>,
}

#[derive(Clone, Debug)]
struct Shown {
    status: Status,
    engine: Option<&'static str>,
    backend: Option<Backend>,
    port: u16,
    restarts: u64,
    last_error: String,
}

/// A line of `GET /models`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Served name.
    pub model: String,
    /// Where the tokenizer comes from.
    pub source: String,
    /// State.
    pub status: Status,
    /// `native` or `render`; empty while that is open.
    pub engine: &'static str,
    /// The renderer's port; 0 without one.
    pub port: u16,
    /// Restarts of the renderer since the model was added.
    pub restarts: u64,
    /// What went wrong last; empty when nothing did.
    pub last_error: String,
}

impl Entry {
    /// A model that is about to be loaded.
    pub fn new(spec: ModelSpec) -> Self {
        let shown = Shown {
            status: Status::Loading,
            engine: None,
            backend: None,
            port: 0,
            restarts: 0,
            last_error: String::new(),
        };
        Self { spec, shown: Mutex::new(shown) }
    }

    /// What the model is made of.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// A start begins, by this engine.
    pub fn loading(&self, engine: &'static str, port: u16) {
        let mut shown = self.shown.lock();
        shown.status = Status::Loading;
        shown.engine = Some(engine);
        shown.backend = None;
        shown.port = port;
    }

    /// Requests can be answered.
    pub fn ready(&self, backend: Backend) {
        let mut shown = self.shown.lock();
        shown.status = Status::Ready;
        (shown.engine, shown.port) = match &backend {
            Backend::Native(_) => (Some("native"), 0),
            Backend::Render(port) => (Some("render"), *port),
        };
        shown.backend = Some(backend);
    }

    /// Nobody answers just now, for this reason; a restart follows.
    pub fn interrupted(&self, reason: &str) {
        let mut shown = self.shown.lock();
        shown.status = Status::Loading;
        shown.backend = None;
        shown.last_error = bounded(reason);
    }

    /// The renderer is started again.
    pub fn restarted(&self) {
        self.shown.lock().restarts += 1;
    }

    /// Given up for now.
    pub fn failed(&self, reason: &str) {
        let mut shown = self.shown.lock();
        shown.status = Status::Failed;
        shown.backend = None;
        shown.port = 0;
        shown.last_error = bounded(reason);
    }

    /// The state, for metrics and tests.
    pub fn status(&self) -> Status {
        self.shown.lock().status
    }

    fn backend(&self) -> Result<Backend, NotReady> {
        let shown = self.shown.lock();
        match (&shown.backend, shown.status) {
            (Some(backend), Status::Ready) => Ok(backend.clone()),
            (_, Status::Failed) => Err(NotReady::Failed(shown.last_error.clone())),
            _ => Err(NotReady::Loading),
        }
    }

    fn line(&self, model: &str) -> Line {
        let shown = self.shown.lock();
        Line {
            model: model.to_owned(),
            source: self.spec.source.clone(),
            status: shown.status,
            engine: shown.engine.unwrap_or_default(),
            port: shown.port,
            restarts: shown.restarts,
            last_error: shown.last_error.clone(),
        }
    }
}

/// All models, by name.
#[derive(Debug, Default)]
pub struct Board {
    entries: RwLock<BTreeMap<String, Arc<Entry>>>,
}

impl Board {
    /// Who answers for a model.
    ///
    /// # Errors
    /// Why nobody does.
    pub fn backend(&self, model: &str) -> Result<Backend, NotReady> {
        let entry = self.entries.read().get(model).cloned();
        entry.ok_or(NotReady::Unmapped)?.backend()
    }

    /// Whether the name is one of ours; label values come from this only.
    pub fn knows(&self, model: &str) -> bool {
        self.entries.read().contains_key(model)
    }

    /// All lines, by name.
    pub fn lines(&self) -> Vec<Line> {
        self.entries.read().iter().map(|(model, entry)| entry.line(model)).collect()
    }

    /// Puts a model up.
    pub fn put(&self, model: &str, entry: Arc<Entry>) {
        self.entries.write().insert(model.to_owned(), entry);
    }

    /// Takes a model down.
    pub fn take(&self, model: &str) {
        self.entries.write().remove(model);
    }
}

fn bounded(reason: &str) -> String {
    let end = (0..=MOST_REASON_BYTES.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end));
    reason.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry::new(ModelSpec { source: "/m".to_owned(), engine: None, chat_template: None })
    }

    #[test]
    fn only_a_ready_model_has_a_backend() {
        let board = Board::default();
        assert!(matches!(board.backend("m"), Err(NotReady::Unmapped)));
        let entry = Arc::new(entry());
        board.put("m", Arc::clone(&entry));
        assert!(matches!(board.backend("m"), Err(NotReady::Loading)));
        entry.loading("render", 8200);
        entry.ready(Backend::Render(8200));
        assert!(matches!(board.backend("m"), Ok(Backend::Render(8200))));
        entry.interrupted("died");
        entry.restarted();
        assert!(matches!(board.backend("m"), Err(NotReady::Loading)));
        entry.failed("budget");
        assert!(matches!(board.backend("m"), Err(NotReady::Failed(reason)) if reason == "budget"));
        assert!(board.knows("m") && !board.knows("n"));
        board.take("m");
        assert!(board.lines().is_empty());
    }

    #[test]
    fn lines_have_the_fields_of_the_contract() {
        let board = Board::default();
        let entry = Arc::new(entry());
        board.put("qwen3", Arc::clone(&entry));
        entry.loading("render", 8200);
        entry.ready(Backend::Render(8200));
        let line = serde_json::to_string(&board.lines()).unwrap();
        assert_eq!(
            line,
            r#"[{"model":"qwen3","source":"/m","status":"ready","engine":"render","port":8200,"restarts":0,"lastError":""}]"#
        );
        entry.failed(&"é".repeat(400));
        assert_eq!(board.lines()[0].last_error.len(), 512);
        assert_eq!((board.lines()[0].port, board.lines()[0].status.as_str()), (0, "failed"));
    }
}
