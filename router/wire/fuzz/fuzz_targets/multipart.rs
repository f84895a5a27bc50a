//! Any form: what was found can be rewritten and found again.
#![no_main]

use bytes::Bytes;
use kvasir_wire::{rewrite_multipart, scan_multipart};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The content type is the first line.
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(content_type) = std::str::from_utf8(&data[..end]) else { return };
    let body = Bytes::copy_from_slice(&data[end + 1..]);
    let Ok(found) = scan_multipart(content_type, &body) else { return };
    assert_eq!(&body[found.model_span.clone()], found.model.as_bytes());
    let out = rewrite_multipart(&body, &found, "other");
    if let Ok(again) = scan_multipart(content_type, &out) {
        assert_eq!(again.model, "other");
        assert_eq!(again.stream, found.stream);
    }
});
