//! Stand-ins for tests: a clock that is moved by hand, a client that answers from a list, small tokenizers.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kvasir_core::{
    Address, BoxFuture, Clock, Endpoint, EndpointDirectory, EndpointId, EngineKind, InferenceRequest,
    ModelName, OwnerSlot, Prompt, RequestId, RequestKind, Role, SideClient, SideError, SideRequest,
    SideResponse,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// A clock that stands still until it is moved.
pub struct ManualClock(Mutex<Instant>);

impl ManualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Instant::now())))
    }

    pub fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.0.lock()
    }
}

/// Answers calls in order and keeps them. Without an answer left it refuses the connection.
#[derive(Default)]
pub struct FakeClient {
    answers: Mutex<VecDeque<Result<SideResponse, SideError>>>,
    calls: Mutex<Vec<SideRequest>>,
}

impl FakeClient {
    pub fn new(answers: impl IntoIterator<Item = Result<SideResponse, SideError>>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), calls: Mutex::default() })
    }

    pub fn answer(&self, answer: Result<SideResponse, SideError>) {
        self.answers.lock().push_back(answer);
    }

    pub fn calls(&self) -> Vec<SideRequest> {
        self.calls.lock().clone()
    }

    /// The bodies sent so far.
    pub fn bodies(&self) -> Vec<Value> {
        self.calls.lock().iter().map(|call| serde_json::from_slice(&call.body).unwrap()).collect()
    }
}

impl SideClient for FakeClient {
    fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
        self.calls.lock().push(request);
        let answer = self.answers.lock().pop_front();
        Box::pin(async move { answer.unwrap_or(Err(SideError::Connect("refused".to_owned()))) })
    }
}

/// Answers each call by a function, and counts them.
pub struct ServingClient<F> {
    serve: F,
    calls: Mutex<Vec<String>>,
}

impl<F: Fn(&SideRequest) -> Result<SideResponse, SideError> + Send + Sync> ServingClient<F> {
    pub fn new(serve: F) -> Arc<Self> {
        Arc::new(Self { serve, calls: Mutex::default() })
    }

    /// The URLs asked so far.
    pub fn urls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }
}

impl<F: Fn(&SideRequest) -> Result<SideResponse, SideError> + Send + Sync> SideClient for ServingClient<F> {
    fn call(&self, request: SideRequest) -> BoxFuture<'_, Result<SideResponse, SideError>> {
        self.calls.lock().push(request.url.clone());
        let answer = (self.serve)(&request);
        Box::pin(async move { answer })
    }
}

/// An engine that renders, or only tokenizes, with a tokenizer of its own.
pub fn engine_answer(
    tokenizer: &crate::LocalTokenizer,
    renders: bool,
    version: &str,
    request: &SideRequest,
) -> Result<SideResponse, SideError> {
    let path = request.url.trim_start_matches("http://a:8000");
    let ids = |kind| tokenizer.encode_body(kind, &request.body);
    let kind = match path {
        "/version" => return answer(200, json!({"version": version}).to_string()),
        "/v1/chat/completions/render" | "/v1/completions/render" if !renders => return answer(404, "{}"),
        "/v1/chat/completions/render" => RequestKind::Chat,
        "/v1/completions/render" => RequestKind::Completions,
        "/tokenize" if memchr::memmem::find(&request.body, b"\"prompt\"").is_some() => {
            RequestKind::Completions
        }
        "/tokenize" => RequestKind::Chat,
        _ => return answer(404, "{}"),
    };
    match (ids(kind), path, kind) {
        (Err(_), ..) => answer(400, "{}"),
        (Ok(ids), "/tokenize", _) => tokens(&ids),
        (Ok(ids), _, RequestKind::Chat) => answer(200, json!({"token_ids": ids}).to_string()),
        (Ok(ids), ..) => answer(200, json!([{"token_ids": ids}]).to_string()),
    }
}

/// An answer of a status with a body.
pub fn answer(status: u16, body: impl Into<String>) -> Result<SideResponse, SideError> {
    Ok(SideResponse {
        status: http::StatusCode::from_u16(status).unwrap(),
        headers: http::HeaderMap::new(),
        body: Bytes::from(body.into()),
    })
}

/// A good answer.
pub fn tokens(ids: &[u32]) -> Result<SideResponse, SideError> {
    answer(200, json!({"tokens": ids, "count": ids.len(), "max_model_len": 8192}).to_string())
}

/// Endpoints by URL, for every model.
pub struct FakeDirectory(pub Vec<Arc<Endpoint>>);

impl FakeDirectory {
    pub fn new(engine: EngineKind, urls: &[&str]) -> Arc<Self> {
        let endpoint = |(slot, url): (usize, &&str)| {
            let address = Address::parse(url).unwrap();
            Arc::new(Endpoint {
                id: EndpointId::new("default", Arc::clone(&address.host), address.port, 0),
                slot: OwnerSlot(slot as u32),
                address,
                engine,
                role: Role::Both,
                model: "m".into(),
                started_at: None,
                pin_rank: false,
                adapters: Vec::new(),
                labels: Default::default(),
            })
        };
        Arc::new(Self(urls.iter().enumerate().map(endpoint).collect()))
    }
}

impl EndpointDirectory for FakeDirectory {
    fn endpoints_of(&self, _model: &ModelName) -> Vec<Arc<Endpoint>> {
        self.0.clone()
    }
}

/// A request for the model `m`, known to clients as `alias`.
pub fn request(kind: RequestKind, body: &Value) -> InferenceRequest {
    InferenceRequest {
        id: RequestId::new("r"),
        kind,
        requested_model: "alias".into(),
        model: "m".into(),
        adapter: None,
        stream: false,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: Bytes::from(body.to_string()),
    }
}

/// Writes a directory with a byte-level tokenizer of the given merges and added tokens, and a template.
pub fn write_tokenizer(directory: &Path, change: impl FnOnce(&mut Value), template: &str) {
    let mut tokenizer = small_tokenizer();
    change(&mut tokenizer);
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({"chat_template": template, "bos_token": "<s>"});
    std::fs::write(directory.join("tokenizer_config.json"), config.to_string()).unwrap();
}

/// A byte-level BPE of all bytes, a few merges, `<s>` before plain prompts, and ChatML's two tokens.
pub fn small_tokenizer() -> Value {
    let mut vocabulary = serde_json::Map::new();
    let mut extra = 0;
    for byte in 0..=255u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let point = if printable {
            byte
        } else {
            extra += 1;
            255 + extra
        };
        let letter = char::from_u32(point).unwrap();
        vocabulary.insert(letter.to_string(), json!(vocabulary.len()));
    }
    let merges = [("a", "b"), ("b", "c"), ("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w")];
    for (left, right) in merges {
        let id = vocabulary.len();
        vocabulary.insert(format!("{left}{right}"), json!(id));
    }
    let added: Vec<Value> = ["<s>", "<|im_start|>", "<|im_end|>"]
        .iter()
        .enumerate()
        .map(|(position, content)| {
            json!({"id": vocabulary.len() + position, "content": content, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let begin = vocabulary.len();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"},
             "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [begin], "tokens": ["<s>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": merges.map(|(left, right)| format!("{left} {right}"))},
    })
}

/// A ChatML template that begins with BOS.
pub const CHATML: &str = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                          {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
