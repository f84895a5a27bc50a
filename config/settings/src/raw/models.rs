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
    /// How the KV cache moves from prefill to decode endpoints, where they have roles: `http`, `lmcache`, `nixl`,
    /// `mooncake` or `sglang`. Without it, `sglang` for SGLang and `http` for vLLM, which asks for no transfer.
    #[schemars(extend("enum" = ["http", "lmcache", "nixl", "mooncake", "sglang"]))]
    pub connector: Option<Located<String>>,
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
    /// Whether the engine lets the header `X-data-parallel-rank` choose the rank. Without it, true for vLLM, and false
    /// for SGLang, whose releases before March 2026 do not read it.
    #[schemars(with = "Option<bool>")]
    pub pin_ranks: Option<Located<bool>>,
    /// `prefill` or `decode`, where some engines compute prompts for others. All endpoints of a model have one, or
    /// none has.
    #[schemars(extend("enum" = ["prefill", "decode"]))]
    pub role: Option<Located<String>>,
    /// The name of the group whose prefill and decode endpoints can reach each other. All endpoints of a model have
    /// one, or none has and all are one group.
    pub group: Option<Located<String>>,
    /// The port of an SGLang prefill engine's bootstrap server (`--disaggregation-bootstrap-port`). Without it, the port
    /// that the decode engine was started with is taken, which is 8998 unless it says otherwise.
    #[schemars(with = "Option<u16>", range(min = 1, max = 65535))]
    pub bootstrap_port: Option<Located<u16>>,
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
