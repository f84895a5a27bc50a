//! Any bytes as changes: they are refused, or say the same when written again.
#![no_main]

use kvasir_coordination::delta::{MOST_CHANGES, decode_changes, encode_changes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((completeness, changes)) = decode_changes(bytes) {
        assert!(changes.len() <= MOST_CHANGES);
        assert_eq!(encode_changes(completeness, &changes), bytes);
    }
});
