//! The wire form against what real engines send.

use rmpv::Value;

use super::*;

fn stored() -> Stored {
    Stored {
        hashes: vec![u64::MAX, 7],
        parent: Some(11),
        token_ids: vec![1, 2, 3, 4],
        block_size: 2,
        adapter: Some((1, "sql".into())),
        salt: Some("tenant".into()),
    }
}

fn written(style: Style, events: Vec<Event>) -> Value {
    let bytes = style.encode(&Batch { at: 1.5, events }).expect("encodes");
    rmpv::decode::read_value(&mut &bytes[..]).expect("is msgpack")
}

fn style(engine: EngineKind, encoding: Encoding, hash: HashForm) -> Style {
    Style { engine, encoding, hash, rank: 3 }
}

fn keys(event: &Value) -> Vec<&str> {
    event.as_map().expect("a map").iter().filter_map(|(key, _)| key.as_str()).collect()
}

fn field<'v>(event: &'v Value, name: &str) -> &'v Value {
    event
        .as_map()
        .and_then(|entries| entries.iter().find(|(key, _)| key.as_str() == Some(name)))
        .map(|(_, value)| value)
        .unwrap_or(&Value::Nil)
}

#[test]
fn maps_carry_the_keys_of_vllm_0_32_in_their_order() {
    let batch = written(
        style(EngineKind::Vllm, Encoding::Map, HashForm::U64),
        vec![Event::Cleared, Event::Removed(9), Event::Stored(stored())],
    );
    assert_eq!(batch[0].as_f64(), Some(1.5));
    assert_eq!(batch[2].as_u64(), Some(3));
    let events = &batch[1];
    assert_eq!(keys(&events[0]), ["type"]);
    assert_eq!(keys(&events[1]), ["type", "block_hashes", "medium", "group_idx"]);
    assert_eq!(
        keys(&events[2]),
        [
            "type",
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
            "extra_keys",
            "group_idx",
            "kv_cache_spec_kind"
        ]
    );
    assert_eq!(field(&events[2], "block_hashes")[0].as_u64(), Some(u64::MAX));
    let extra = field(&events[2], "extra_keys");
    assert_eq!(extra[0].as_array().map(Vec::len), Some(2), "adapter and salt on the first block");
    assert_eq!(extra[1].as_array().map(Vec::len), Some(1), "the adapter alone on the others");
}

#[test]
fn arrays_carry_the_nine_places_of_vllm_0_18() {
    let batch = written(
        style(EngineKind::Vllm, Encoding::Array, HashForm::U64),
        vec![
            Event::Stored(Stored { adapter: None, salt: None, parent: None, ..stored() }),
            Event::Removed(9),
        ],
    );
    let event = batch[1][0].as_array().expect("an array");
    assert_eq!(event.len(), 9);
    assert_eq!(event[0].as_str(), Some("BlockStored"));
    assert!(event[2].is_nil() && event[5].is_nil() && event[7].is_nil());
    assert_eq!(event[6].as_str(), Some("GPU"));
    assert_eq!(event[8], Value::Array(vec![Value::Nil, Value::Nil]));
    assert_eq!(batch[1][1].as_array().map(Vec::len), Some(3));
}

#[test]
fn hashes_take_the_form_that_is_asked_for() {
    let bytes =
        written(style(EngineKind::Vllm, Encoding::Map, HashForm::Bytes), vec![Event::Stored(stored())]);
    assert_eq!(
        field(&bytes[1][0], "parent_block_hash").as_slice().map(<[u8]>::len),
        Some(32),
        "the parent has the type of the hashes"
    );
    let signed =
        written(style(EngineKind::Sglang, Encoding::Map, HashForm::I64), vec![Event::Stored(stored())]);
    assert_eq!(field(&signed[1][0], "block_hashes")[0].as_i64(), Some(-1));
    assert_eq!(field(&signed[1][0], "cache_salt").as_str(), Some("tenant"));
    assert!(!keys(&signed[1][0]).contains(&"extra_keys"));
}

#[test]
fn sglang_removes_many_blocks_in_one_event() {
    let events = vec![Event::Removed(1), Event::Removed(2), Event::Cleared, Event::Removed(3)];
    let batch = written(style(EngineKind::Sglang, Encoding::Map, HashForm::I64), events.clone());
    assert_eq!(batch[1].as_array().map(Vec::len), Some(3));
    assert_eq!(field(&batch[1][0], "block_hashes").as_array().map(Vec::len), Some(2));
    let batch = written(style(EngineKind::Vllm, Encoding::Map, HashForm::U64), events);
    assert_eq!(batch[1].as_array().map(Vec::len), Some(4), "vLLM writes one for each block");
}
