//! Plain values for this crate's tests: endpoints, pools, requests, cycles.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvasir_core::{
    Address, BlockChain, BlockIndex, BlockLookup, BlockQuery, BlockSize, BoxFuture, Candidate, Candidates,
    Completeness, CycleState, Endpoint, EndpointId, EngineKind, EngineSample, InferenceRequest, Load,
    ModelName, OwnerSlot, PrefixHit, Prompt, QueryError, RequestId, RequestKind, Role, ScheduleMeter, Scorer,
    Scores,
};
use parking_lot::Mutex;

pub fn endpoint(index: u32) -> Endpoint {
    Endpoint {
        id: EndpointId::new("default", format!("pod-{index}"), 8000, 0),
        slot: OwnerSlot(index),
        address: Address::parse(&format!("http://pod-{index}:8000")).unwrap(),
        engine: EngineKind::Vllm,
        role: Role::Both,
        model: "m".into(),
        started_at: None,
        pin_rank: false,
        adapters: Vec::new(),
        labels: BTreeMap::new(),
    }
}

/// One endpoint for each load; slots count from 0.
pub fn pool_of(loads: impl IntoIterator<Item = Load>) -> Candidates {
    let candidates = (0..)
        .zip(loads)
        .map(|(index, load)| Candidate { endpoint: Arc::new(endpoint(index)), load })
        .collect();
    Candidates::new(candidates)
}

pub fn sampled(sample: EngineSample) -> Load {
    Load { sample: Some(sample), ..Load::default() }
}

pub fn request() -> InferenceRequest {
    InferenceRequest {
        id: RequestId::new("r1"),
        kind: RequestKind::Chat,
        requested_model: "m".into(),
        model: "m".into(),
        adapter: None,
        stream: false,
        prompt: Prompt::None,
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: None,
        body: Bytes::from_static(b"{}"),
    }
}

pub fn cycle() -> CycleState {
    CycleState::new(&request())
}

pub fn scores_of(scorer: &dyn Scorer, cycle: &CycleState, pool: &Candidates) -> Scores {
    let mut out = vec![None; pool.len()];
    scorer.score(cycle, pool, &mut out);
    out
}

/// Remembers ratios and evictions.
#[derive(Default)]
pub struct Heard {
    pub ratios: Mutex<Vec<(&'static str, f64)>>,
    pub evicted: Mutex<u64>,
}

impl ScheduleMeter for Heard {
    fn plugin_ran(&self, _: &ModelName, _: &'static str, _: &'static str, _: std::time::Duration) {}
    fn match_ratio(&self, _: &ModelName, plugin: &'static str, ratio: f64) {
        self.ratios.lock().push((plugin, ratio));
    }
    fn produce_failed(&self, _: &ModelName, _: &'static str, _: &'static str) {}
    fn prefix_evicted(&self, _: &ModelName, hashes: u64) {
        *self.evicted.lock() += hashes;
    }
}

/// An index that answers from a table.
#[derive(Default)]
pub struct Index {
    /// Block sizes of every model.
    pub sizes: Vec<u32>,
    /// Tokens held, by owner.
    pub held: std::collections::HashMap<u32, u32>,
    /// How far each owner is known, by owner.
    pub known: std::collections::HashMap<u32, Completeness>,
}

impl BlockIndex for Index {
    fn block_sizes(&self, _: &ModelName) -> smallvec::SmallVec<[BlockSize; 4]> {
        self.sizes.iter().filter_map(|size| BlockSize::new(*size)).collect()
    }

    fn walk(&self, _: &ModelName, _: &[BlockChain], owners: &[OwnerSlot], hits: &mut [PrefixHit]) {
        for (owner, hit) in owners.iter().zip(hits) {
            hit.tokens = self.held.get(&owner.0).copied().unwrap_or_default();
            hit.completeness = self.known.get(&owner.0).copied();
        }
    }
}

/// What a [`Store`] was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub models: Vec<String>,
    pub hashes: Vec<u64>,
    pub owners: Vec<String>,
    pub started: Vec<Option<u64>>,
}

/// A store that always gives the same answer and remembers what it was asked.
pub struct Store {
    pub answer: Result<Vec<u32>, QueryError>,
    pub asked: Mutex<Vec<Asked>>,
}

impl Default for Store {
    fn default() -> Self {
        Self { answer: Ok(Vec::new()), asked: Mutex::default() }
    }
}

impl Store {
    /// The owners hold so many leading blocks, in their order.
    pub fn holding(blocks: &[u32]) -> Arc<Self> {
        Arc::new(Self { answer: Ok(blocks.to_vec()), ..Self::default() })
    }
}

impl BlockLookup for Store {
    fn leading_blocks<'a>(&'a self, query: BlockQuery<'a>) -> BoxFuture<'a, Result<Vec<u32>, QueryError>> {
        self.asked.lock().push(Asked {
            models: query.models.iter().map(|name| (*name).to_owned()).collect(),
            hashes: query.hashes.to_vec(),
            owners: query.owners.iter().map(|owner| format!("{}.{}", owner.pod, owner.namespace)).collect(),
            started: query.owners.iter().map(|owner| owner.started_at).collect(),
        });
        Box::pin(async move { self.answer.clone() })
    }
}

/// A request whose body is `json`, with its prompt at the value of `field`, which must be the first of that name.
pub fn body(
    kind: RequestKind,
    json: &str,
    field: &str,
    at: fn(std::ops::Range<usize>) -> Prompt,
) -> InferenceRequest {
    let start = json.find(&format!("\"{field}\":")).unwrap() + field.len() + 3;
    let mut values = serde_json::Deserializer::from_str(&json[start..]).into_iter::<serde_json::Value>();
    values.next().unwrap().unwrap();
    let prompt = at(start..start + values.byte_offset());
    InferenceRequest { kind, prompt, body: Bytes::copy_from_slice(json.as_bytes()), ..request() }
}

/// A chat request with these messages (JSON).
pub fn chat(messages: &str) -> InferenceRequest {
    body(RequestKind::Chat, &format!(r#"{{"messages":{messages}}}"#), "messages", Prompt::Messages)
}

/// A completion request with this prompt.
pub fn completion(text: &str) -> InferenceRequest {
    let prompt = serde_json::to_string(text).unwrap();
    body(RequestKind::Completions, &format!(r#"{{"prompt":{prompt}}}"#), "prompt", Prompt::Text)
}
