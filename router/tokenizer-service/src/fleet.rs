//! Which models run: the wanted set against the running one, within the most that may run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::board::{Board, Entry};
use crate::model::{self, House};
use crate::model_set::{ModelSet, ModelSpec};

/// The running models. One task applies sets, one after the other.
#[derive(Debug)]
pub struct Fleet {
    house: Arc<House>,
    board: Arc<Board>,
    most: usize,
    running: BTreeMap<String, Running>,
    /// Models on the board that are not run: one more than may.
    left_out: BTreeMap<String, ModelSpec>,
}

#[derive(Debug)]
struct Running {
    spec: ModelSpec,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Fleet {
    pub(crate) fn new(house: Arc<House>, board: Arc<Board>, most: usize) -> Self {
        Self { house, board, most, running: BTreeMap::new(), left_out: BTreeMap::new() }
    }

    /// Makes the running set the wanted one: what is not wanted any more, or is made of something else now, ends, and
    /// is gone when this returns; what is new starts, by name, while there is room. What runs keeps its place.
    pub async fn apply(&mut self, wanted: &ModelSet) {
        let gone: Vec<String> = self
            .running
            .iter()
            .filter(|(model, running)| wanted.get(*model) != Some(&running.spec))
            .map(|(model, _)| model.clone())
            .collect();
        self.end(gone).await;
        for model in std::mem::take(&mut self.left_out).into_keys() {
            self.board.take(&model);
        }
        for (model, spec) in wanted {
            if self.running.contains_key(model) {
                continue;
            }
            let entry = Arc::new(Entry::new(spec.clone()));
            self.board.put(model, Arc::clone(&entry));
            if self.running.len() < self.most {
                self.start(model, spec, entry);
            } else {
                let reason = format!("MAX_TOKENIZERS reached: {} models are served", self.most);
                tracing::warn!(model, reason, "model not served");
                entry.failed(&reason);
                self.left_out.insert(model.clone(), spec.clone());
            }
        }
    }

    /// Ends everything. Nothing of it is left when this returns.
    pub async fn end_all(&mut self) {
        let all = self.running.keys().cloned().collect();
        self.end(all).await;
    }

    async fn end(&mut self, models: Vec<String>) {
        let mut ending = Vec::with_capacity(models.len());
        for model in models {
            self.board.take(&model);
            if let Some(running) = self.running.remove(&model) {
                running.stop.cancel();
                ending.push(running.task);
            }
        }
        for task in ending {
            // A task that panicked has dropped its group, which ends it.
            drop(task.await);
        }
    }

    fn start(&mut self, model: &str, spec: &ModelSpec, entry: Arc<Entry>) {
        let stop = CancellationToken::new();
        let task = tokio::spawn(model::run(Arc::clone(&self.house), model.to_owned(), entry, stop.clone()));
        self.running.insert(model.to_owned(), Running { spec: spec.clone(), stop, task });
    }
}
