//! The chain: for each model the sources of its tokens in order, with a memory of who was right.

mod budget;
mod files;
mod link;
mod local_slot;
mod model;
mod proof;
mod second_chance;
mod status;
mod verify;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{
    BoxFuture, Clock, EndpointDirectory, InferenceRequest, ModelName, Prompt, RequestKind, SideClient,
    TokenSource, TokenizeError, Tokenized, Tokenizer,
};
use parking_lot::RwLock;

use crate::pool::Pool;

use local_slot::LocalSlot;
use model::ModelChain;

pub use local_slot::Loader;
pub use proof::Proof;
pub use status::{LoadState, ModelStatus, SourceStatus};
pub use verify::{ProbeDifference, ProbeStatus, VersionStatus};

/// Where one model's tokens may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelTokens {
    /// A directory with `tokenizer.json` and the template.
    pub local_dir: Option<PathBuf>,
    /// A template file that overrides the directory's.
    pub chat_template: Option<PathBuf>,
    /// The order of the sources; empty asks the local tokenizer where there is one, else the engine.
    pub order: Vec<TokenSource>,
    /// Base URL of the tokenizer service.
    pub service_url: Option<String>,
    /// Port of `/tokenize` at vLLM pods, when it is not the inference port.
    pub vllm_port: Option<u16>,
    /// The same at SGLang pods.
    pub sglang_port: Option<u16>,
    /// What all remote calls of one request may take together. Without it 50 ms, or a tenth of the estimated prefill
    /// time, at most 250 ms, where that is more.
    pub deadline: Option<Duration>,
}

/// A model's directory and template: models that share both share the tokenizer.
type SlotKey = (PathBuf, Option<PathBuf>);

/// All models. Implements [`Tokenizer`].
pub struct Chain {
    models: RwLock<HashMap<ModelName, Arc<ModelChain>>>,
    slots: RwLock<HashMap<SlotKey, Arc<LocalSlot>>>,
    client: Arc<dyn SideClient>,
    directory: Arc<dyn EndpointDirectory>,
    clock: Arc<dyn Clock>,
    loader: Loader,
    pool: &'static Pool,
    /// Whether each model's engines are looked after in the background.
    watches: bool,
}

impl Chain {
    /// Builds the chain and starts loading the local tokenizers in the background. Each version of an engine that
    /// appears is compared with them by a few probes, as soon as there is a runtime to do so.
    pub fn new(
        models: Vec<(ModelName, ModelTokens)>,
        client: Arc<dyn SideClient>,
        directory: Arc<dyn EndpointDirectory>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::build(models, client, directory, clock, local_slot::disk_loader(), true)
    }

    /// The same with a loader of its own, and probes only when [`Self::verify`] is called.
    pub fn with_loader(
        models: Vec<(ModelName, ModelTokens)>,
        client: Arc<dyn SideClient>,
        directory: Arc<dyn EndpointDirectory>,
        clock: Arc<dyn Clock>,
        loader: Loader,
    ) -> Self {
        Self::build(models, client, directory, clock, loader, false)
    }

    fn build(
        models: Vec<(ModelName, ModelTokens)>,
        client: Arc<dyn SideClient>,
        directory: Arc<dyn EndpointDirectory>,
        clock: Arc<dyn Clock>,
        loader: Loader,
        watches: bool,
    ) -> Self {
        let chain = Self {
            models: RwLock::default(),
            slots: RwLock::default(),
            client,
            directory,
            clock,
            loader,
            pool: Pool::process(),
            watches,
        };
        chain.set_models(models);
        chain
    }

    /// Replaces the set of models. Tokenizers that are still wanted stay loaded; what was learned about a model
    /// whose sources did not change is kept.
    pub fn set_models(&self, models: Vec<(ModelName, ModelTokens)>) {
        let mut slots = HashMap::new();
        let mut next = HashMap::new();
        for (name, tokens) in models {
            let slot = tokens.local_dir.as_ref().map(|directory| {
                let key: SlotKey = (directory.clone(), tokens.chat_template.clone());
                let known = self.slots.read().get(&key).cloned();
                let slot = slots.entry(key.clone()).or_insert_with(|| {
                    known.unwrap_or_else(|| {
                        LocalSlot::start(key.0, key.1, Arc::clone(&self.clock), Arc::clone(&self.loader))
                    })
                });
                Arc::clone(slot)
            });
            let unchanged = self.models.read().get(&name).filter(|model| *model.tokens() == tokens).cloned();
            let model = unchanged.unwrap_or_else(|| {
                Arc::new(ModelChain::new(
                    name.clone(),
                    tokens,
                    slot,
                    Arc::clone(&self.client),
                    Arc::clone(&self.directory),
                    Arc::clone(&self.clock),
                ))
            });
            self.watch(&model);
            next.insert(name, model);
        }
        *self.models.write() = next;
        *self.slots.write() = slots;
    }

    /// Tells what an engine counted for a prompt whose ids came from `source`. A model's source that is contradicted
    /// several times is not asked any more.
    pub fn observe(&self, model: &ModelName, source: TokenSource, predicted: u32, usage_prompt_tokens: u64) {
        if let Some(model) = self.model(model) {
            model.observe(source, u64::from(predicted) == usage_prompt_tokens);
        }
    }

    /// Compares the local tokenizers with engines whose version was not compared yet. Needs no calling where the chain
    /// looks after them itself.
    pub async fn verify(&self) {
        let models: Vec<_> = self.models.read().values().cloned().collect();
        for model in models {
            model.verify().await;
        }
    }

    /// Looks at the files of all local tokenizers now, and waits until those that changed are loaded. Needs no calling:
    /// a look is begun by the first request after every 30 s.
    pub async fn look_at_files(&self) {
        let slots: Vec<_> = self.slots.read().values().cloned().collect();
        for slot in slots {
            slot.look();
            slot.looked().await;
        }
    }

    fn watch(&self, model: &Arc<ModelChain>) {
        // Without a runtime the first request begins it.
        if self.watches
            && !model.is_watched()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            verify::watch(model, &runtime);
        }
    }

    /// Whether no local tokenizer is still loading for the first time.
    pub fn ready(&self) -> bool {
        self.slots.read().values().all(|slot| !slot.is_loading())
    }

    /// Waits until no local tokenizer is loading.
    pub async fn loaded(&self) {
        let slots: Vec<_> = self.slots.read().values().cloned().collect();
        for slot in slots {
            slot.loaded().await;
        }
    }

    /// Every model with its sources, by name.
    pub fn status(&self) -> Vec<ModelStatus> {
        let mut all: Vec<ModelStatus> = self.models.read().values().map(|model| model.status()).collect();
        all.sort_by(|a, b| a.model.cmp(&b.model));
        all
    }

    fn model(&self, name: &ModelName) -> Option<Arc<ModelChain>> {
        self.models.read().get(name).cloned()
    }

    async fn tokens(&self, request: &InferenceRequest) -> Result<Tokenized, TokenizeError> {
        let started = self.clock.now();
        let took = || self.clock.now().saturating_duration_since(started);
        if let Prompt::TokenIds(ids) = &request.prompt {
            return Ok(Tokenized {
                ids: Arc::clone(ids),
                source: TokenSource::Given,
                took: took(),
                whole: true,
            });
        }
        if matches!(request.kind, RequestKind::Embeddings | RequestKind::Other) {
            return Err(TokenizeError::NotTokenizable);
        }
        let model = self.model(&request.model).ok_or(TokenizeError::NoBackend)?;
        self.watch(&model);
        let (source, prompt) = model.encode(request, self.pool).await?;
        Ok(Tokenized { ids: prompt.ids.into(), source, took: took(), whole: prompt.whole })
    }
}

impl Tokenizer for Chain {
    fn encode<'a>(
        &'a self,
        request: &'a InferenceRequest,
    ) -> BoxFuture<'a, Result<Tokenized, TokenizeError>> {
        Box::pin(self.tokens(request))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("models", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
