//! The simulated cache against captures of real engines: the same script gives the same events.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rmpv::Value;
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::answer::Vocabulary;
use crate::config::{Encoding, EngineConfig, EventsConfig};
use crate::event::{Event, Stored};
use crate::publisher::{Message, Outlet};
use crate::tokenize::WordTokenizer;

/// One event without its numbers: hashes are named in order of their first appearance, `None` is "no parent".
#[derive(Clone, PartialEq, Eq, Debug)]
enum Shape {
    Stored { hashes: Vec<usize>, parent: Option<usize>, tokens: usize, extra: Vec<Vec<String>> },
    Removed(usize),
    Cleared,
}

/// Names hashes.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn of(&mut self, hash: String) -> usize {
        let next = self.0.len();
        *self.0.entry(hash).or_insert(next)
    }
}

/// One event of a capture.
#[derive(Clone, Debug)]
enum Captured {
    Stored {
        step: String,
        hashes: Vec<String>,
        parent: Option<String>,
        tokens: Vec<u32>,
        extra: Vec<Vec<String>>,
        adapter: Option<String>,
    },
    Removed(String),
    Cleared,
}

fn read(file: &str) -> Vec<Captured> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../router/kvcache/tests/data", file].iter().collect();
    let text = std::fs::read_to_string(path).expect("the capture is there");
    let mut events = Vec::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("is JSON");
        let step = line["step"].as_str().expect("has a step");
        let payload = from_hex(line["frames_hex"][2].as_str().expect("has a payload"));
        let batch = rmpv::decode::read_value(&mut &payload[..]).expect("is msgpack");
        for event in batch[1].as_array().expect("has events") {
            events.push(captured(step, event));
        }
    }
    events
}

fn captured(step: &str, event: &Value) -> Captured {
    let field = |name: &str, place: usize| match event {
        Value::Map(entries) => {
            entries.iter().find(|(key, _)| key.as_str() == Some(name)).map_or(&Value::Nil, |(_, value)| value)
        }
        Value::Array(places) => places.get(place).unwrap_or(&Value::Nil),
        other => panic!("no event: {other}"),
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match field("type", 0).as_str().expect("has a kind") {
        "BlockStored" => Captured::Stored {
            step: step.to_owned(),
            hashes: list(field("block_hashes", 1)).iter().map(Value::to_string).collect(),
            parent: Some(field("parent_block_hash", 2))
                .filter(|parent| !parent.is_nil())
                .map(Value::to_string),
            tokens: list(field("token_ids", 3)).iter().map(|id| id.as_u64().expect("an id") as u32).collect(),
            extra: list(field("extra_keys", 8))
                .iter()
                .map(|keys| list(keys).iter().filter_map(text).collect())
                .collect(),
            adapter: text(field("lora_name", 7)),
        },
        "BlockRemoved" => Captured::Removed(list(field("block_hashes", 1))[0].to_string()),
        "AllBlocksCleared" => Captured::Cleared,
        other => panic!("unknown event {other}"),
    }
}

fn from_hex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}

fn shape_of_capture(events: &[Captured]) -> Vec<Shape> {
    let mut names = Names::default();
    events
        .iter()
        .map(|event| match event.clone() {
            Captured::Stored { hashes, parent, tokens, extra, .. } => Shape::Stored {
                parent: parent.map(|parent| names.of(parent)),
                hashes: hashes.into_iter().map(|hash| names.of(hash)).collect(),
                tokens: tokens.len(),
                extra,
            },
            Captured::Removed(hash) => Shape::Removed(names.of(hash)),
            Captured::Cleared => Shape::Cleared,
        })
        .collect()
}

/// One request of the script.
#[derive(Clone, Debug)]
struct Ask {
    step: String,
    prompt: Vec<u32>,
    answer: usize,
    scope: Scope,
    after_reset: bool,
}

/// Finds the requests behind a capture: a store without a parent begins one, a store under the last hash of the
/// same step continues it, a store under another hash begins one that shares the blocks up to there.
fn script(events: &[Captured], block_size: usize) -> Vec<Ask> {
    let mut asks: Vec<Ask> = Vec::new();
    let mut prefixes: HashMap<String, Vec<u32>> = HashMap::new();
    let mut last_hash = None;
    let mut after_reset = false;
    for event in events {
        match event {
            Captured::Cleared => after_reset = true,
            Captured::Removed(_) => {}
            Captured::Stored { step, hashes, parent, tokens, extra, adapter } => {
                let before = parent.as_ref().map_or_else(Vec::new, |parent| prefixes[parent].clone());
                for (index, hash) in hashes.iter().enumerate() {
                    let end = (index + 1) * block_size;
                    prefixes.insert(hash.clone(), [&before[..], &tokens[..end]].concat());
                }
                let continues = parent.is_some()
                    && *parent == last_hash
                    && asks.last().is_some_and(|ask| ask.step == *step);
                last_hash = hashes.last().cloned();
                if let (true, Some(ask)) = (continues, asks.last_mut()) {
                    ask.prompt.extend(tokens);
                    continue;
                }
                let adapter = adapter.as_deref().map(Arc::from);
                let own_keys = usize::from(adapter.is_some());
                let salt = extra.first().and_then(|keys| keys.get(own_keys)).map(|salt| salt.as_str().into());
                asks.push(Ask {
                    step: step.clone(),
                    prompt: [&before[..], tokens].concat(),
                    answer: 2,
                    scope: Scope { adapter, salt: if parent.is_none() { salt } else { None } },
                    after_reset: std::mem::take(&mut after_reset),
                });
            }
        }
    }
    asks.iter_mut().for_each(|ask| complete(ask, block_size));
    asks
}

/// The events do not show a partial last block, nor where the prompt ends and the output begins; the steps do.
fn complete(ask: &mut Ask, block_size: usize) {
    if ask.step.contains("30-token") {
        ask.prompt.truncate(30);
        ask.answer = 4;
    } else if ask.step.starts_with("short prompt 10 tokens") {
        ask.prompt.truncate(10);
        ask.answer = 2 * block_size;
    } else {
        let first = ask.prompt[0];
        ask.prompt.extend([first ^ 1; 5]);
    }
}

async fn play(asks: &[Ask], config: EngineConfig) -> Vec<Shape> {
    let (outlet, mut batches) = Outlet::captured();
    let vocabulary = Arc::new(Vocabulary::new(&WordTokenizer, "m"));
    let core = Core::new(Arc::new(config), vocabulary, Some(outlet), 0);
    for ask in asks {
        if ask.after_reset {
            let published = batches.len();
            assert!(core.state.lock().cache.reset());
            assert_eq!(batches.len(), published, "a reset alone publishes nothing");
        }
        // Two answers for one prompt: the second one finds it in the cache.
        for _ in 0..if ask.step.starts_with("n=2") { 2 } else { 1 } {
            let order = Order {
                tokens: ask.prompt.clone(),
                scope: ask.scope.clone(),
                reads_cache: true,
                uses_cache: true,
                received: None,
                script: Script::words(u64::from(ask.prompt[0]), ask.answer, true),
            };
            Generation::new(Arc::clone(&core), order).finish().await;
        }
    }
    shape_of_batches(&mut batches)
}

fn shape_of_batches(batches: &mut Receiver<Message>) -> Vec<Shape> {
    let mut names = Names::default();
    let mut shapes = Vec::new();
    while let Ok(message) = batches.try_recv() {
        let Message::Batch(batch) = message else { panic!("batches only") };
        shapes.extend(batch.events.into_iter().map(|event| match event {
            Event::Stored(Stored { hashes, parent, token_ids, adapter, salt, .. }) => {
                let extra = |index| {
                    let adapter = adapter.iter().map(|(_, name)| name.to_string());
                    adapter.chain(salt.iter().filter(|_| index == 0).map(|salt| salt.to_string())).collect()
                };
                Shape::Stored {
                    parent: parent.map(|parent| names.of(parent.to_string())),
                    extra: (0..hashes.len()).map(extra).collect(),
                    hashes: hashes.into_iter().map(|hash| names.of(hash.to_string())).collect(),
                    tokens: token_ids.len(),
                }
            }
            Event::Removed(hash) => Shape::Removed(names.of(hash.to_string())),
            Event::Cleared => Shape::Cleared,
        }));
    }
    shapes
}

fn config(encoding: Encoding, block_size: usize, kv_blocks: usize) -> EngineConfig {
    EngineConfig {
        block_size,
        kv_blocks,
        adapters: vec!["sql-adapter".to_owned()],
        events: Some(EventsConfig { encoding, ..EventsConfig::default() }),
        prefill_us_per_token: 0.0,
        decode_us_per_token: 0.0,
        ..EngineConfig::default()
    }
}

async fn assert_same(file: &str, config: EngineConfig) {
    let events = read(file);
    let asks = script(&events, config.block_size);
    let expected = shape_of_capture(&events);
    let played = play(&asks, config).await;
    for (index, (ours, theirs)) in played.iter().zip(&expected).enumerate() {
        assert_eq!(ours, theirs, "{file}: event {index}");
    }
    assert_eq!(played.len(), expected.len(), "{file}");
}

/// `--num-gpu-blocks-override 300`.
#[tokio::test]
async fn vllm_0_32_with_map_events() {
    assert_same("vllm-0.32-int-hash-bs32.jsonl", config(Encoding::Map, 32, 300)).await;
}

/// `--num-gpu-blocks-override 600`.
#[tokio::test]
async fn vllm_0_32_with_adapters_and_byte_hashes() {
    assert_same("vllm-0.32-bytes-hash-lora-bs16.jsonl", config(Encoding::Map, 16, 600)).await;
}

/// `--num-gpu-blocks-override 600`.
#[tokio::test]
async fn vllm_0_18_with_array_events() {
    assert_same("vllm-0.18-array-events-bs16.jsonl", config(Encoding::Array, 16, 600)).await;
}
