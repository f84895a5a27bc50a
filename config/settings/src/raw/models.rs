//! The models file as users write it; its reference page is generated from these types.

use schemars::JsonSchema;

use crate::problems::{Located, Place};

/// The models file: which models there are and where they run. The router reads it with `--models FILE`.
#[derive(Debug, Default, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(crate) struct ModelsFile {
    /// The models.
    pub models: Vec<Model>,
}

/// One model.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(crate) struct Model {
    /// The name clients use.
    pub name: Located<String>,
    /// The name the engines list, when it differs from `name`.
    pub served_name: Option<Located<String>>,
    /// Other names clients may use for the same model.
    #[schemars(default)]
    pub aliases: Vec<Located<String>>,
    /// The engine behind every endpoint: `vllm` or `sglang`. Without it, `vllm`.
    #[schemars(extend("enum" = ["vllm", "sglang"]))]
    pub engine: Option<Located<String>>,
    /// A directory with `tokenizer.json` and the chat template. With it, prompts are tokenized in the router;
    /// without it, an engine is asked.
    pub tokenizer: Option<Located<String>>,
    /// A chat template file that takes the place of the directory's.
    pub chat_template: Option<Located<String>>,
    /// LoRA adapters that every endpoint serves; clients use their names as model names.
    #[schemars(default)]
    pub adapters: Vec<Located<String>>,
    /// Where the model runs; at least one.
    pub endpoints: Vec<Endpoint>,
}

/// One engine.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(crate) struct Endpoint {
    /// `http://HOST:PORT` or `https://HOST:PORT`, with a path prefix where the engine has one.
    pub url: Located<String>,
    /// Where the engine publishes its KV-cache events. Without it, the engine is asked.
    pub kv_events: Option<KvEvents>,
    /// Data-parallel ranks behind the URL, 1 to 1024. Without it, 1. Rank N publishes its events at the ports
    /// given in `kvEvents` plus N, as vLLM does.
    #[schemars(with = "Option<u32>", range(min = 1, max = 1024))]
    pub data_parallel: Option<Located<u32>>,
}

/// The event sockets of rank 0.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(crate) struct KvEvents {
    /// `tcp://HOST:PORT` of the publisher. With `*` for HOST the router listens there and the engine connects.
    pub endpoint: Located<String>,
    /// `tcp://HOST:PORT` of the replay socket, from which missed events are read.
    pub replay: Option<Located<String>>,
    /// The topic the engine publishes under. Without it, every topic is taken.
    pub topic: Option<Located<String>>,
    #[schemars(skip)]
    pub place: Place,
}
