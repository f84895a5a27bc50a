//! Where a model's tokens come from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kvasir_core::{ModelName, TokenSource};

use super::{ModelSettings, Settings};

/// Everything about the tokens of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSettings {
    /// The directory with `tokenizer.json` and the template.
    pub directory: Option<PathBuf>,
    /// A chat template file that overrides the directory's.
    pub chat_template: Option<PathBuf>,
    /// The chain of sources, first to be asked first; only such as can answer.
    pub order: Vec<TokenSource>,
    /// Base URL of the tokenizer service, where it is enabled.
    pub service_url: Option<String>,
    /// Port of vLLM's `/tokenize`; `None` uses the endpoint's own port.
    pub vllm_port: Option<u16>,
    /// Port of SGLang's `/tokenize`; `None` uses the endpoint's own port.
    pub sglang_port: Option<u16>,
    /// What all remote calls for one request's tokens may take together; `None` is the default of the chain.
    pub deadline: Option<Duration>,
}

impl Settings {
    /// The chain of token sources for a model, first to be asked first; only such as can answer.
    ///
    /// `tokenization.order` decides where it is given. Otherwise a router document means the engine, or the service
    /// first where it is enabled, as in kthena; without a document a tokenizer directory means the local tokenizer.
    /// The sources that follow the first one are asked when it is demoted or has no answer.
    pub fn token_order(&self, model: &ModelSettings) -> Vec<TokenSource> {
        self.order(self.tokenizer_directory(model).is_some())
    }

    fn order(&self, local: bool) -> Vec<TokenSource> {
        let args = &self.scheduler.args.kvcache_aware;
        let service = &args.tokenizer_service;
        let mut order = if !args.order.is_empty() {
            args.order.clone()
        } else if !self.from_document {
            vec![TokenSource::Local, TokenSource::Engine]
        } else if service.enabled && !service.fallback_to_engine {
            vec![TokenSource::Service, TokenSource::Local]
        } else {
            vec![TokenSource::Service, TokenSource::Engine, TokenSource::Local]
        };
        order.retain(|source| match source {
            TokenSource::Local => local,
            TokenSource::Service => service.enabled,
            TokenSource::Engine | TokenSource::Given => true,
        });
        order
    }

    /// The model's tokenizer directory: its own, or the one that `tokenization.local` names for it.
    pub fn tokenizer_directory<'a>(&'a self, model: &'a ModelSettings) -> Option<&'a Path> {
        model
            .tokenizer
            .as_deref()
            .or_else(|| model.served_name.as_ref().and_then(|name| self.local_directory(name)))
            .or_else(|| self.local_directory(&model.name))
    }

    /// The directory that `tokenization.local` names.
    fn local_directory(&self, name: &ModelName) -> Option<&Path> {
        self.scheduler.args.kvcache_aware.local.get(name.as_str()).map(PathBuf::as_path)
    }

    /// The tokens of a model that the settings name.
    pub fn tokens_of(&self, model: &ModelSettings) -> TokenSettings {
        self.tokens(self.tokenizer_directory(model), model.chat_template.as_deref())
    }

    /// The tokens of a model that is known by its served name alone: as the settings have it where they name such a
    /// model, else with the directory that `--tokenizer` or `tokenization.local` gives the name.
    pub fn tokens_for(&self, served: &ModelName) -> TokenSettings {
        let names = |model: &&ModelSettings| model.served_name.as_ref().unwrap_or(&model.name) == served;
        if let Some(model) = self.models.iter().find(names) {
            return self.tokens_of(model);
        }
        let by_flag = self.tokenizers.get(served).map(PathBuf::as_path);
        self.tokens(by_flag.or_else(|| self.local_directory(served)), None)
    }

    fn tokens(&self, directory: Option<&Path>, chat_template: Option<&Path>) -> TokenSettings {
        let args = &self.scheduler.args.kvcache_aware;
        TokenSettings {
            directory: directory.map(Path::to_owned),
            chat_template: chat_template.map(Path::to_owned),
            order: self.order(directory.is_some()),
            service_url: args.tokenizer_service.enabled.then(|| args.tokenizer_service.endpoint.clone()),
            vllm_port: args.vllm_tokenizer_port,
            sglang_port: args.sglang_tokenizer_port,
            deadline: args.deadline,
        }
    }
}
