//! Any body: the scan agrees with `serde_json`, and a rewrite can be read back.
#![no_main]

use bytes::Bytes;
use kvasir_core::RequestKind;
use kvasir_wire::{rewrite, scan};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const KINDS: [RequestKind; 6] = [
    RequestKind::Chat,
    RequestKind::Completions,
    RequestKind::Responses,
    RequestKind::Messages,
    RequestKind::Embeddings,
    RequestKind::Other,
];

fuzz_target!(|data: &[u8]| {
    let [choice, body @ ..] = data else { return };
    let kind = KINDS[usize::from(*choice) % KINDS.len()];
    let body = Bytes::copy_from_slice(body);
    let reference = serde_json::from_slice::<Value>(&body).ok();
    let Ok(found) = scan(kind, &body) else { return };
    if let Some(reference) = &reference {
        assert_eq!(reference["model"].as_str(), Some(found.model.as_str()));
    }
    let inject = found.lacks_usage(kind);
    let out = rewrite(&body, &found, Some("other\"name"), inject);
    let again = scan(kind, &out).expect("a rewritten body is a body");
    assert_eq!(again.model, "other\"name");
    assert_eq!(again.include_usage_asked, found.include_usage_asked || inject);
    assert_eq!(again.stream, found.stream);
    // The other way round does not hold: a repeated key that only we can read may be written over.
    assert!(reference.is_none() || serde_json::from_slice::<Value>(&out).is_ok());
});
