//! Captured and hand-made payloads.

use kvasir_core::{EngineHash, KvEvent, Medium, Stored};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{LIVE, frames, lines, unhex};
use super::*;

/// The event in the shape that the fixtures show: named fields, absent ones left out.
fn shown(event: &KvEvent) -> Value {
    fn hash(hash: &EngineHash) -> Value {
        match hash {
            EngineHash::Int { bits, negative: false } => json!(bits),
            EngineHash::Int { bits, negative: true } => json!(bits.cast_signed()),
            EngineHash::Bytes(bytes) => {
                json!({"bytes_hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
            }
        }
    }
    fn medium(medium: &Medium) -> &str {
        match medium {
            Medium::Gpu => "GPU",
            Medium::Other(name) => name,
        }
    }
    match event {
        KvEvent::Stored(stored) => json!({
            "type": "BlockStored",
            "block_hashes": stored.hashes.iter().map(hash).collect::<Vec<_>>(),
            "parent_block_hash": stored.parent.as_ref().map(hash),
            "token_ids": stored.token_ids,
            "block_size": stored.block_size,
            "medium": medium(&stored.medium),
            "lora_name": stored.adapter,
            "extra_keys": stored.extra_keys,
            "group_idx": stored.group,
            "kv_cache_spec_kind": stored.spec_kind,
        }),
        KvEvent::Removed { hashes, group, medium: tier } => json!({
            "type": "BlockRemoved",
            "block_hashes": hashes.iter().map(hash).collect::<Vec<_>>(),
            "medium": medium(tier),
            "group_idx": group,
        }),
        KvEvent::AllCleared => json!({"type": "AllBlocksCleared"}),
    }
}

/// The fixture's own form brought to the same shape.
fn expected(event: &Value) -> Value {
    let names: &[&str] = match event[0].as_str() {
        Some("BlockStored") => &[
            "type",
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
            "extra_keys",
        ],
        Some("BlockRemoved") => &["type", "block_hashes", "medium"],
        _ => &["type"],
    };
    let mut map = match event {
        Value::Array(fields) => {
            names.iter().map(|name| (*name).to_owned()).zip(fields.iter().cloned()).collect()
        }
        Value::Object(map) => map.clone(),
        _ => panic!("{event}"),
    };
    for ignored in ["lora_id", "kv_cache_spec_sliding_window"] {
        map.remove(ignored);
    }
    if map["type"] != "AllBlocksCleared" {
        map.entry("group_idx").or_insert(json!(0));
    }
    if map["type"] == "BlockStored" {
        map.entry("kv_cache_spec_kind").or_insert(Value::Null);
        map.entry("extra_keys").or_insert(json!([]));
    }
    Value::Object(map)
}

#[test]
fn every_captured_batch_decodes_as_described() {
    for name in LIVE {
        for line in lines(name) {
            let received = parse_live(&frames(&line, "frames_hex")).unwrap();
            assert_eq!(Some(received.seq), line["seq"].as_u64());
            assert_eq!(Some(received.payload.len() as u64), line["payload_bytes"].as_u64());
            let batch = decode_batch(received.seq, &received.payload).unwrap();
            assert_eq!((batch.malformed, batch.unknown), (0, 0), "{name} {}", line["n"]);
            let decoded = &line["decoded"];
            if let Some(count) = decoded["n_events"].as_u64() {
                assert_eq!(batch.events.len() as u64, count);
                assert_eq!(shown(&batch.events[0])["type"], decoded["first_event_type"]);
                continue;
            }
            assert!((batch.ts - decoded[0].as_f64().unwrap()).abs() < 1e-6);
            assert_eq!(batch.rank.map(u64::from), decoded[2].as_u64());
            let events: Vec<Value> = batch.events.iter().map(shown).collect();
            let wanted: Vec<Value> = decoded[1].as_array().unwrap().iter().map(expected).collect();
            assert_eq!(events, wanted, "{name} {}", line["n"]);
        }
    }
}

#[test]
fn captured_replays_are_read() {
    for (name, first) in [("replay-vllm-0.18", 0), ("replay-vllm-0.32", 23)] {
        let mut next = first;
        let mut batches = 0;
        let mut ended = 0;
        for line in lines(name) {
            if line["reply_index"] == 0 {
                next = first;
            }
            match parse_replay(&frames(&line, "frames_hex_as_received")).unwrap() {
                ReplayFrame::Batch(received) => {
                    assert_eq!(received.seq, next);
                    next += 1;
                    batches += 1;
                    let batch = decode_batch(received.seq, &received.payload).unwrap();
                    assert!(!batch.events.is_empty() && batch.malformed == 0);
                }
                ReplayFrame::End => ended += 1,
            }
        }
        assert!(batches > 0 && ended > 0, "{name}");
    }
}

fn int(bits: u64) -> EngineHash {
    EngineHash::Int { bits, negative: false }
}

fn decode(hex: &str) -> Batch {
    decode_batch(7, &unhex(hex)).unwrap()
}

#[test]
fn kthena_sample_payloads() {
    let stored = |hashes: &[u64], parent: Option<u64>, tokens: Vec<u32>| {
        KvEvent::Stored(Stored {
            hashes: hashes.iter().copied().map(int).collect(),
            parent: parent.map(int),
            block_size: (tokens.len() / hashes.len()) as u32,
            token_ids: tokens,
            ..Stored::default()
        })
    };
    let removed = |hashes: &[u64]| KvEvent::Removed {
        hashes: hashes.iter().copied().map(int).collect(),
        group: 0,
        medium: Medium::Gpu,
    };
    for (hex, events) in [
        (
            "93cb3ff80000000000009196ab426c6f636b53746f726564920b16c0dc0020000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f10c000",
            vec![stored(&[11, 22], None, (0..32).collect())],
        ),
        (
            "93cb3ff80000000000009198ab426c6f636b53746f726564910b0792010202c0a3475055c000",
            vec![stored(&[11], Some(7), vec![1, 2])],
        ),
        (
            "93cb3ff80000000000009297ab426c6f636b53746f726564910bc092010202c0a347505593ac426c6f636b52656d6f766564910ba347505500",
            vec![stored(&[11], None, vec![1, 2]), removed(&[11])],
        ),
        ("93cb3ff80000000000009192ac426c6f636b52656d6f76656492010200", vec![removed(&[1, 2])]),
        ("93cb3ff80000000000009191b0416c6c426c6f636b73436c656172656400", vec![KvEvent::AllCleared]),
        (
            "83a27473cb3ff8000000000000a66576656e74739289a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573910bb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c6561726564b2646174615f706172616c6c656c5f72616e6b00",
            vec![stored(&[11], None, vec![1, 2]), KvEvent::AllCleared],
        ),
    ] {
        let batch = decode(hex);
        assert_eq!(
            batch,
            Batch { seq: 7, ts: 1.5, rank: Some(0), events, malformed: 0, unknown: 0 },
            "{hex}"
        );
    }
}

/// Packs JSON as msgpack; `{"$b": [..]}` are bytes.
fn pack(value: &Value) -> Vec<u8> {
    fn convert(value: &Value) -> rmpv::Value {
        match value {
            Value::Null => rmpv::Value::Nil,
            Value::Bool(flag) => (*flag).into(),
            Value::Number(number) => number.as_u64().map_or_else(
                || number.as_i64().map_or_else(|| number.as_f64().unwrap().into(), rmpv::Value::from),
                rmpv::Value::from,
            ),
            Value::String(text) => text.as_str().into(),
            Value::Array(items) => rmpv::Value::Array(items.iter().map(convert).collect()),
            Value::Object(map) => match map.get("$b") {
                Some(bytes) => {
                    let bytes = bytes.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8);
                    rmpv::Value::Binary(bytes.collect())
                }
                None => rmpv::Value::Map(map.iter().map(|(k, v)| (k.as_str().into(), convert(v))).collect()),
            },
        }
    }
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, &convert(value)).unwrap();
    out
}

fn events(list: Value) -> Batch {
    decode_batch(0, &pack(&json!([1700000000, list, 3]))).unwrap()
}

fn only_stored(batch: &Batch) -> &Stored {
    match &batch.events[..] {
        [KvEvent::Stored(stored)] => stored,
        other => panic!("{other:?} {}", batch.malformed),
    }
}

#[test]
fn all_hash_types_are_taken() {
    // KVE-02
    let bytes = json!({"$b": vec![7; 32]});
    let kinds = [json!(1), json!(u64::MAX), json!(-5), bytes.clone()];
    let wanted = [
        int(1),
        int(u64::MAX),
        EngineHash::Int { bits: (-5i64).cast_unsigned(), negative: true },
        EngineHash::Bytes(vec![7; 32].into()),
    ];
    let batch = events(json!([["BlockStored", kinds, null, [1, 2, 3, 4], 1, null]]));
    assert_eq!(only_stored(&batch).hashes, wanted);
    for (kind, hash) in kinds.iter().zip(&wanted) {
        let batch = events(json!([["BlockStored", [1], kind, [1], 1]]));
        assert_eq!(only_stored(&batch).parent.as_ref(), Some(hash));
    }
}

#[test]
fn one_bad_event_does_not_take_the_others_with_it() {
    let good = json!(["BlockRemoved", [1]]);
    for (bad, malformed, unknown) in [
        (json!(["BlockStored", [1], null, [4294967296u64], 1, null]), 1, 0),
        (json!(["BlockStored", [1], null, [-1], 1, null]), 1, 0),
        (json!(["BlockStored", "x"]), 1, 0),
        (json!(["BlockStored", [1]]), 1, 0),
        (json!(["BlockRemoved"]), 1, 0),
        (json!([]), 1, 0),
        (json!(5), 1, 0),
        (json!({"type": "BlockRemoved", "block_hashes": [[1]]}), 1, 0),
        (json!({"block_hashes": [1]}), 1, 0),
        (json!(["BlockMoved", 1, [2, {"a": [3]}]]), 0, 1),
        (json!({"type": "BlockMoved", "block_hashes": "other"}), 0, 1),
        (json!({"token_ids": {"a": 1}, "type": "BlockMoved"}), 0, 1),
    ] {
        let batch = events(json!([good, bad, good]));
        assert_eq!((batch.malformed, batch.unknown, batch.events.len()), (malformed, unknown, 2), "{bad}");
        assert_eq!((batch.ts, batch.rank), (1.7e9, Some(3)), "{bad}");
    }
}

#[test]
fn unknown_fields_and_trailing_elements_are_skipped() {
    let batch = events(json!([{
        "future": {"deep": [1, {"er": null}]}, "block_hashes": [1], "locality": "x", "token_ids": [1, 2],
        "block_size": 2, "type": "BlockStored", "lora_id": 4, "medium": "cpu", "session_id": "s",
    }]));
    let stored = only_stored(&batch);
    assert_eq!(stored.adapter.as_deref(), Some("4"));
    assert_eq!(stored.medium, Medium::Other("CPU".into()));
    let batch = events(json!([
        ["BlockStored", [1], null, [1, 2], 2, 1, "GPU", "l", [null], 2, "full_attention", 64, "more", {"a": 1}]
    ]));
    let stored = only_stored(&batch);
    assert_eq!((stored.adapter.as_deref(), stored.group), (Some("l"), 2));
    assert_eq!(stored.spec_kind.as_deref(), Some("full_attention"));
    // Two-element batches of older SGLang have no rank; a rank of an unknown type is none.
    let two = decode_batch(0, &pack(&json!([1.5, [["AllBlocksCleared"]]]))).unwrap();
    assert_eq!((two.events, two.rank), (vec![KvEvent::AllCleared], None));
    assert_eq!(decode_batch(0, &pack(&json!([1.5, [], "x", 1]))).unwrap().rank, None);
}

#[test]
fn extra_keys_become_text_without_ambiguity() {
    let keys = json!([
        ["1"], [1], [-1], [null], [{"$b": [1, 2]}], [["a", "bc"]], [["ab", "c"]], [[["a"], "bc"]], [1.5], [["a", 1]],
    ]);
    let count = keys.as_array().unwrap().len();
    let batch =
        events(json!([["BlockStored", vec![1; count], null, vec![1; count], 1, null, null, null, keys]]));
    let texts: Vec<_> = only_stored(&batch).extra_keys.iter().map(|keys| keys.clone().unwrap()).collect();
    assert_eq!(&*texts[0][0], "1");
    for (at, text) in texts.iter().enumerate() {
        assert!(!texts[at + 1..].contains(text), "{text:?}");
    }
}

#[test]
fn sglang_salts_and_bigrams_are_read() {
    let event = |parent: Value| {
        json!([{"type": "BlockStored", "block_hashes": [-1, -2], "parent_block_hash": parent,
            "token_ids": [[10, 11], [11, 12], [12, 13], [13, 14]], "block_size": 2, "cache_salt": "s"}])
    };
    let batch = events(event(Value::Null));
    assert_eq!(only_stored(&batch).token_ids, [10, 11, 12, 13]);
    assert_eq!(only_stored(&batch).extra_keys, [Some(vec!["s".into()]), None]);
    let batch = events(event(json!(-9)));
    assert!(only_stored(&batch).extra_keys.is_empty());
}

#[test]
fn frames_of_other_shapes_are_refused() {
    let frame = |bytes: &[u8]| bytes::Bytes::copy_from_slice(bytes);
    assert_eq!(parse_live(&[]).unwrap_err(), FrameError::Count(0));
    assert_eq!(
        parse_live(&[frame(b""), frame(b"1234567"), frame(b"")]).unwrap_err(),
        FrameError::Sequence(7)
    );
    assert_eq!(parse_replay(&[frame(b""), frame(&[0; 8])]).unwrap_err(), FrameError::Count(2));
    let end = parse_replay(&[frame(b""), frame(b""), frame(&[255; 8]), frame(b"")]);
    assert_eq!(end.unwrap(), ReplayFrame::End);
}

#[test]
fn length_headers_are_not_believed() {
    for hex in [
        "dd7fffffff",
        "93cb3ff8000000000000dd7fffffff",
        "93cb3ff800000000000091dd7fffffffab",
        "93cb3ff80000000000009196ab426c6f636b53746f726564dd7fffffff01",
        "83a27473cb3ff8000000000000a66576656e7473df7fffffff",
        "c67fffffff00",
    ] {
        if let Ok(batch) = decode_batch(0, &unhex(hex)) {
            assert!(batch.malformed > 0 && batch.events.is_empty(), "{hex}");
        }
    }
    let nested = [vec![0x93, 0x01, 0x91], vec![0x91; 5_000], vec![0x01, 0x00]].concat();
    assert_eq!(decode_batch(0, &nested).unwrap().malformed, 1);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_batch(0, &bytes);
    }

    #[test]
    fn broken_captures_are_survived(line in 0usize..22, at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let lines = lines("vllm-0.32-int-hash-bs32");
        let mut payload = parse_live(&frames(&lines[line], "frames_hex")).unwrap().payload.to_vec();
        let at = at % payload.len();
        payload[at] = byte;
        let _ = decode_batch(0, &payload);
        payload.truncate(cut % payload.len());
        let _ = decode_batch(0, &payload);
    }
}
