//! Any encoded body: decoding ends, within its limit.
#![no_main]

use bytes::Bytes;
use kvasir_wire::decode_body;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let [choice, body @ ..] = data else { return };
    let encodings = ["gzip", "deflate", "gzip, deflate", "deflate, x-gzip"];
    let encoding = encodings[usize::from(*choice) % encodings.len()];
    if let Ok(decoded) = decode_body(encoding, Bytes::copy_from_slice(body), LIMIT) {
        assert!(decoded.len() <= LIMIT);
    }
});
