//! The captured runs of real engines, applied from end to end.

use super::*;
use crate::event::{decode_batch, fixtures, parse_live};

/// Applies a capture to owner 0 and gives the batches.
fn play(index: &Index, name: &str) -> Vec<Batch> {
    let batches: Vec<Batch> = fixtures::lines(name)
        .iter()
        .map(|line| {
            let received = parse_live(&fixtures::frames(line, "frames_hex")).unwrap();
            decode_batch(received.seq, &received.payload).unwrap()
        })
        .collect();
    for batch in &batches {
        assert!(index.apply(OwnerSlot(0), batch));
    }
    batches
}

fn first_stored(batch: &Batch) -> &Stored {
    batch
        .events
        .iter()
        .find_map(|event| match event {
            KvEvent::Stored(stored) if stored.spec_kind.as_deref() != Some("sliding_window") => Some(stored),
            _ => None,
        })
        .unwrap()
}

#[test]
fn the_same_hash_stored_twice_is_removed_twice() {
    let index = index(1);
    let batches: Vec<Batch> = fixtures::lines("vllm-0.32-int-hash-bs32")
        .iter()
        .map(|line| {
            let received = parse_live(&fixtures::frames(line, "frames_hex")).unwrap();
            decode_batch(received.seq, &received.payload).unwrap()
        })
        .collect();
    let twice = first_stored(&batches[0]).clone();
    assert_eq!(first_stored(&batches[1]).hashes, twice.hashes);
    let mut removals = 0;
    for batch in &batches {
        index.apply(OwnerSlot(0), batch);
        let removes =
            |event: &&KvEvent| matches!(event, KvEvent::Removed { hashes, .. } if *hashes == twice.hashes);
        removals += batch.events.iter().filter(removes).count();
        if !batch.events.iter().any(|event| matches!(event, KvEvent::AllCleared)) {
            assert_eq!(
                tokens_held(&index, &twice.token_ids, 1),
                [if removals < 2 { 32 } else { 0 }],
                "{}",
                batch.seq
            );
        }
    }
    assert_eq!(removals, 2);
}

#[test]
fn every_capture_ends_with_the_prompt_after_the_clear() {
    for name in [
        "vllm-0.18-array-events-bs16",
        "vllm-0.32-bytes-hash-lora-bs16",
        "vllm-0.32-int-hash-bs32",
        "vllm-0.32-hybrid-sliding-window-bs32",
    ] {
        let index = index(1);
        let batches = play(&index, name);
        let last = first_stored(batches.last().unwrap());
        assert_eq!(tokens_held(&index, &last.token_ids, 1), [last.token_ids.len() as u32], "{name}");
        let seen = stats(&index, 0);
        assert_eq!((seen.blocks, seen.orphans, seen.malformed_events), (last.hashes.len(), 0, 0), "{name}");
        assert_eq!(index.size().blocks, last.hashes.len(), "{name}");
        assert_eq!(u32::from(seen.block_size.unwrap()), last.block_size, "{name}");
    }
}

#[test]
fn chunked_prefill_and_output_blocks_chain_on() {
    // Every stored run of the capture that reaches back to a root is found by its tokens right after its batch.
    for name in ["vllm-0.18-array-events-bs16", "vllm-0.32-int-hash-bs32", "vllm-0.32-bytes-hash-lora-bs16"] {
        let index = index(1);
        let mut prompts: std::collections::HashMap<EngineHash, (Vec<u32>, CacheScope)> = Default::default();
        let mut checked = 0;
        for line in fixtures::lines(name) {
            let received = parse_live(&fixtures::frames(&line, "frames_hex")).unwrap();
            let batch = decode_batch(received.seq, &received.payload).unwrap();
            index.apply(OwnerSlot(0), &batch);
            for event in &batch.events {
                let KvEvent::Stored(stored) = event else { continue };
                let keys = stored.extra_keys.first().cloned().flatten().unwrap_or_default();
                let own = CacheScope {
                    adapter: stored.adapter.as_deref().map(AdapterName::from),
                    salt: keys.into_iter().find(|key| stored.adapter.as_ref() != Some(key)),
                };
                let (mut tokens, scope) = match &stored.parent {
                    None => (Vec::new(), own),
                    Some(parent) => match prompts.get(parent) {
                        Some(before) => before.clone(),
                        None => continue,
                    },
                };
                for (hash, ids) in
                    stored.hashes.iter().zip(stored.token_ids.chunks(stored.block_size as usize))
                {
                    tokens.extend_from_slice(ids);
                    prompts.insert(hash.clone(), (tokens.clone(), scope.clone()));
                }
                let found = hits(&index, &scope, &tokens, 1)[0].tokens as usize;
                assert_eq!(found, tokens.len(), "{name} {}", batch.seq);
                checked += 1;
            }
        }
        assert!(checked > 10, "{name}: {checked}");
    }
}

#[test]
fn ranks_are_owners_of_their_own() {
    let index = index(2);
    for line in fixtures::lines("vllm-0.32-data-parallel-2") {
        let received = parse_live(&fixtures::frames(&line, "frames_hex")).unwrap();
        let batch = decode_batch(received.seq, &received.payload).unwrap();
        let rank = batch.rank.unwrap();
        assert!(index.apply(OwnerSlot(rank), &batch));
        let stored = first_stored(&batch);
        let held = tokens_held(&index, &stored.token_ids, 2);
        assert_eq!(held[rank as usize], stored.token_ids.len() as u32);
    }
    assert_eq!((stats(&index, 0).last_seq, stats(&index, 1).last_seq), (Some(2), Some(3)));
}

#[test]
fn map_and_array_forms_give_the_same_key() {
    // KVE-01
    let index = index(2);
    let tokens = range(1, 16);
    let map = serde_json::json!([1700000000.5, [{
        "type": "BlockStored", "block_hashes": [15760518052499183552u64], "parent_block_hash": null,
        "token_ids": tokens, "block_size": 16, "lora_id": null, "medium": "GPU", "lora_name": null,
        "extra_keys": [null], "group_idx": 0, "kv_cache_spec_kind": "full_attention"}], 0]);
    let array = serde_json::json!([
        1700000000.5,
        [["BlockStored", [15760518052499183552u64], null, tokens, 16, null, "GPU", null, [null]]],
        0
    ]);
    for (slot, payload) in [map, array].iter().enumerate() {
        let batch = decode_batch(0, &rmp_serde::to_vec(payload).unwrap()).unwrap();
        index.apply(OwnerSlot(slot as u32), &batch);
    }
    assert_eq!(tokens_held(&index, &tokens, 2), [16, 16]);
    assert_eq!(index.size().blocks, 1);
}
